"""Choices of one run: which recordings, from and to where, with which encoder, and how it is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class Resources(Choices):
    """Processes, memory, and what happens with intermediate results."""

    nprocs: int = option(0, "resources", "processes at a time, 0 for all cores", "--n-cpus")
    omp_nthreads: int = option(1, "resources", "threads per process")
    mem_mb: int = option(0, "resources", "memory for all processes in MB; 0: large arrays take up to 2 GB")
    executor: str = option("", "resources", "group level: address of a Dask scheduler [processes here]")
    use_plugin: Path | None = option(None, "resources", "nipype plugin as YAML, for clusters")


@dataclass(frozen=True)
class Run(Choices):
    """Where options come from, and which part of the work is wanted."""

    config_file: Path | None = option(
        None, "other", "TOML file with any of these options, or 'nilearn' or 'xcp_d'; the command line wins", "-c"
    )
    dry_run: bool = option(False, "other", "print what was found and what would be written, then stop")
    reports_only: bool = option(False, "other", "make the reports again from what was written")


@dataclass(frozen=True)
class Seed(Choices):
    """The seed of everything random."""

    random_seed: int = option(0, "other", "seed of everything random")


@dataclass(frozen=True)
class Messages(Choices):
    """Messages on the terminal, and the end of the command."""

    debug: bool = option(False, "other", "tracebacks, and keep the work folder")
    verbose: bool = option(False, "other", "say more", "-v")
    quiet: bool = option(False, "other", "say only errors", "-q")


@dataclass(frozen=True)
class Selection(Choices):
    """Which recordings of which datasets."""

    derivatives: tuple[str, ...] = option(
        (),
        "selection",
        "fMRIPrep derivatives, as NAME=PATH or PATH [BIDS_DIR/derivatives/fmriprep]; at group level series or "
        "connectomes of other programs, as LAYOUT=PATH or list=FILE, or output folders of several sites, as SITE=PATH",
        "-d",
        question=False,
    )
    input_type: str | None = option(
        None,
        "selection",
        "who preprocessed the derivatives [as their folders show]",
        choices=("fmriprep", "nibabies", "hcp"),
        question=False,
    )
    participant_label: tuple[str, ...] = option(
        (), "selection", "participants, with or without 'sub-' [all]", question=True
    )
    session_label: tuple[str, ...] = option((), "selection", "sessions, with or without 'ses-' [all]", question=True)
    task_id: tuple[str, ...] = option((), "selection", "tasks [all]", question=True)
    space: tuple[str, ...] = option(
        (), "selection", "spaces [per recording the first of MNI152NLin2009cAsym, MNI152NLin6Asym, fsLR]", question=True
    )
    bids_filter_file: Path | None = option(
        None, "selection", "JSON of entity filters for 'bold', as fMRIPrep's (null = absent, '*' = any)", question=True
    )
    bids_database_dir: Path | None = option(
        None, "selection", "folder that keeps the index of the inputs", question=False
    )
    dataset_name: str | None = option(
        None,
        "selection",
        "name of the dataset, by which an encoder knows the people it was trained on [DOI, or Name and a digest]",
        question=False,
        in_file=True,
    )


@dataclass(frozen=True)
class Places(Choices):
    """The folders of a run, and its level."""

    bids_dir: Path
    output_dir: Path
    level: str
    work_dir: Path | None = option(None, "resources", "folder for intermediate results [OUTPUT_DIR/work]", "-w")

    replace: bool = option(
        False,
        "other",
        "results of another question (group), and outputs of another source or cleaning, may be replaced",
    )
    name: str = option("", "group", "name of these results: group/NAME/ and group_NAME.html [group/ and group.html]")

    @property
    def results(self) -> Path:
        """Folder of the tables of the group level."""
        return self.output_dir / "group" / self.name

    @property
    def results_page(self) -> Path:
        """Page of the cohort."""
        return self.output_dir / (f"group_{self.name}.html" if self.name else "group.html")

    @property
    def record(self) -> Path:
        """File of the choices of the participant level: with the logs, for it holds absolute paths."""
        return self.output_dir / "logs" / "settings.toml"

    @property
    def results_record(self) -> Path:
        """File of the choices of the group level."""
        named = f"_{self.name}" if self.name else ""
        return self.output_dir / "logs" / f"settings_group{named}.toml"

    @property
    def index(self) -> Path:
        """Page of all recordings."""
        return self.output_dir / "index.html"

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.work_dir or self.output_dir / "work"


@dataclass(frozen=True)
class Embedding(Choices):
    """The encoder, its weights, and how it is fed."""

    encoder: str | None = option(None, "encoder", "encoder that embeds each recording")
    encoder_weights: str | None = option(None, "encoder", "its weights: a folder, a file or a hub id")
    encoder_revision: str | None = option(None, "encoder", "revision of the hub id", in_file=True)
    encoder_read: str = option(
        "sequence", "encoder", "how a recording is read", choices=("sequence", "windows"), in_file=True
    )
    encoder_protocol: str = option(
        "own",
        "encoder",
        "feed a published encoder as its authors do, or as in the paper",
        choices=("own", "paper"),
        in_file=True,
    )
    encoder_aux: tuple[Path, ...] = option(
        (),
        "encoder",
        "further files of a published encoder, or folders with them; of F-BERT: JSON with what its config.json lacks",
        in_file=True,
    )
    accept_encoder_licence: bool = option(
        False, "encoder", "you accept the licence of a published encoder's weights", in_file=True
    )
    allow_missing_parcels: bool = option(
        False, "encoder", "fill parcels that the atlas lacks with their mean, 0", in_file=True
    )


@dataclass(frozen=True)
class Method(Choices):
    """Atlases, cleaning, and the connectomes that are made."""

    atlas: tuple[str, ...] = option(
        ("Schaefer400",),
        "method",
        "atlases: names, FILE[:TSV], BIDS-Atlas DATASET[:SELECTOR], A+B for merged parts",
    )
    atlas_dir: tuple[Path, ...] = option((), "method", "folders searched for atlases before TemplateFlow")
    strategy: str = option("24P", "method", "confound strategy: a shipped name or a YAML file")
    high_pass: float = option(0.01, "method", "lower edge of the pass-band in Hz, 0 for none")
    low_pass: float = option(0.08, "method", "upper edge of the pass-band in Hz, 0 for none")
    filter_order: int | None = option(
        None, "method", "order of the Butterworth filter before its two passes [2]", in_file=True
    )
    padding: str | None = option(
        None,
        "method",
        "how a series goes on beyond its ends in the filter [even]",
        choices=("even", "constant", "odd"),
        in_file=True,
    )
    convention: str = option(
        "fcpower",
        "method",
        "whose steps of cleaning are followed to rounding",
        choices=("fcpower", "nilearn", "xcp_d"),
        in_file=True,
    )
    dummy_scans: str = option("auto", "method", "volumes to drop at the start: a number or 'auto' (non-steady state)")
    fd_thresh: float = option(0.5, "method", "censor volumes with more framewise displacement in mm, 0 for none")
    head_radius: str | None = option(
        None,
        "method",
        "radius of the head in mm for the displacement, or 'auto' (from the mask) [as the table has it]",
    )
    motion_filter_type: str | None = option(
        None, "method", "filter that takes breathing out of the motion parameters [none]", choices=("notch", "lp")
    )
    band_stop_min: float | None = option(None, "method", "its lower edge in breaths per minute (lp: the only one)")
    band_stop_max: float | None = option(None, "method", "its upper edge in breaths per minute")
    motion_filter_order: int = option(4, "method", "its order, over all passes", in_file=True)
    min_time: float = option(120.0, "method", "seconds that must be left after censoring, else excluded", question=True)
    min_coverage: float = option(0.5, "method", "share of a parcel's voxels that must have signal, else n/a")
    alpha: float = option(
        ALPHA_STAR,
        "method",
        "exponent of FC^alpha; at group level also 'grid', 'nested' or 'align'",
        or_choice="alpha_selection",
    )
    transforms: tuple[str, ...] = option(("power",), "method", "connectome transforms to write")
    eigenvalue_floor: float | None = option(
        None, "method", "least eigenvalue for transforms that need full rank (mean: 1)", in_file=True
    )
    shrink_to_identity: float | None = option(
        None, "method", "shrinkage towards the identity for the same, 0 to 1", in_file=True
    )

    @property
    def full_rank_remedy(self) -> dict[str, float | None]:
        """Least eigenvalue and shrinkage, by the names that transforms have for them."""
        return {"eigenvalue_floor": self.eigenvalue_floor, "shrink_to_identity": self.shrink_to_identity}

    @property
    def band(self) -> tuple[float | None, float | None]:
        """The pass-band in Hz; None on a side without a limit."""
        return self.high_pass or None, self.low_pass or None
