"""Every choice that a user can make, once, in the parts that layers are given; command line and files follow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.settings.options import LEVELS as LEVELS
from fcpower_bids.settings.options import Choices, is_read, option, overridden, plain_value
from fcpower_bids.settings.options import GroupLevel as GroupLevel

METHOD_SECTIONS = ("method", "encoder")
"""Sections whose values change the numbers of the participant level; they make up the configuration hash."""
CLEANING = (
    *("strategy", "high_pass", "low_pass", "filter_order", "padding", "convention", "dummy_scans", "fd_thresh"),
    *("head_radius", "motion_filter_type", "band_stop_min", "band_stop_max", "motion_filter_order"),
    *("min_time", "min_coverage"),
)
"""Choices of the cleaning, of which an output folder has one set."""
SECTIONS = {
    "selection": "Which recordings",
    "method": "Cleaning, parcels and connectomes",
    "encoder": "Embedding",
    "group": "Group level",
    "pretrain": "Pretraining",
    "resources": "Resources",
    "other": "Other",
}


@dataclass(frozen=True)
class Resources(Choices):
    """Processes, memory, and what happens with intermediate results."""

    nprocs: int = option(0, "resources", "processes, 0 for all cores", "--n-cpus")
    omp_nthreads: int = option(1, "resources", "threads per process")
    mem_mb: int = option(0, "resources", "memory of all processes in MB; 0: large arrays take up to 2 GB")
    executor: str = option("", "resources", "address of a Dask scheduler [processes here]")
    use_plugin: Path | None = option(None, "resources", "nipype plugin for clusters, as YAML")


@dataclass(frozen=True)
class Run(Choices):
    """Where options come from, and which part of the work is wanted."""

    config_file: Path | None = option(None, "other", "TOML file of options, or 'nilearn' or 'xcp_d'", "-c")
    dry_run: bool = option(False, "other", "print what would be done, then stop")
    reports_only: bool = option(False, "other", "make the reports again")


@dataclass(frozen=True)
class Seed(Choices):
    """The seed of everything random."""

    random_seed: int = option(0, "other", "seed of everything random")


@dataclass(frozen=True)
class Messages(Choices):
    """Messages on the terminal, and the end of the command."""

    debug: bool = option(False, "other", "show tracebacks, keep the work folder")
    verbose: bool = option(False, "other", "say more", "-v")
    quiet: bool = option(False, "other", "say only errors", "-q")


@dataclass(frozen=True)
class Selection(Choices):
    """Which recordings of which datasets."""

    derivatives: tuple[str, ...] = option(
        (),
        "selection",
        "fMRIPrep derivatives, PATH or NAME=PATH [BIDS_DIR/derivatives/fmriprep]; group: series or connectomes as "
        "LAYOUT=PATH or list=FILE, or outputs of sites as SITE=PATH",
        "-d",
        question=False,
    )
    input_type: str | None = option(
        None,
        "selection",
        "who preprocessed the recordings [as their folders show]",
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
        None, "selection", "fMRIPrep's JSON of entity filters for 'bold' (null = absent, '*' = any)", question=True
    )
    bids_database_dir: Path | None = option(
        None, "selection", "folder that keeps the index of the inputs", question=False
    )
    dataset_name: str | None = option(
        None,
        "selection",
        "name by which an encoder knows its training people [DOI, or Name and a digest]",
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

    replace: bool = option(False, "other", "outputs of another question, source or cleaning may be replaced")
    name: str = option("", "group", "results go to group/NAME/ and group_NAME.html [group/ and group.html]")

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
        "feed a published encoder as its authors or as the paper",
        choices=("own", "paper"),
        in_file=True,
    )
    encoder_aux: tuple[Path, ...] = option(
        (),
        "encoder",
        "further files of a published encoder, or folders with them; F-BERT: JSON with what its config.json lacks",
        in_file=True,
    )
    accept_encoder_licence: bool = option(False, "encoder", "you accept the licence of the weights", in_file=True)
    allow_missing_parcels: bool = option(
        False, "encoder", "fill parcels that the atlas lacks with their mean, 0", in_file=True
    )


@dataclass(frozen=True)
class Method(Choices):
    """Atlases, cleaning, and the connectomes that are made."""

    atlas: tuple[str, ...] = option(
        ("Schaefer400",), "method", "names, FILE[:TSV], BIDS-Atlas DATASET[:SELECTOR], A+B for merged parts"
    )
    atlas_dir: tuple[Path, ...] = option((), "method", "folders searched for atlases before TemplateFlow")
    strategy: str = option("24P", "method", "confound strategy: a name or a YAML file")
    high_pass: float = option(0.01, "method", "lower edge of the band (Hz), 0 for none")
    low_pass: float = option(0.08, "method", "upper edge of the band (Hz), 0 for none")
    filter_order: int | None = option(
        None, "method", "order of the Butterworth filter before its two passes [2]", in_file=True
    )
    padding: str | None = option(
        None,
        "method",
        "how the filter continues a series beyond its ends [even]",
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
    dummy_scans: str = option("auto", "method", "volumes to drop at the start, or 'auto' (non-steady state)")
    fd_thresh: float = option(0.5, "method", "censor volumes with more framewise displacement (mm), 0 for none")
    head_radius: str | None = option(None, "method", "in mm, or 'auto' (from the mask) [as the table has it]")
    motion_filter_type: str | None = option(
        None, "method", "takes breathing out of the motion parameters [none]", choices=("notch", "lp")
    )
    band_stop_min: float | None = option(None, "method", "its lower edge in breaths per minute (lp: the only one)")
    band_stop_max: float | None = option(None, "method", "its upper edge in breaths per minute")
    motion_filter_order: int = option(4, "method", "order of the motion filter, over all passes", in_file=True)
    min_time: float = option(120.0, "method", "seconds that censoring must leave, else excluded", question=True)
    min_coverage: float = option(0.5, "method", "share of a parcel's voxels that must have signal")
    alpha: float = option(ALPHA_STAR, "method", "exponent of FC^alpha; group: also 'grid', 'nested', 'align'")
    transforms: tuple[str, ...] = option(("power",), "method", "transforms of the connectome to write")
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


@dataclass(frozen=True)
class Pretraining(Choices):
    """The corpus, the student, and the optimisation."""

    corpus: str | None = option(None, "pretrain", "folder or hub id of a corpus, packed or public [OUTPUT_DIR/corpus]")
    roi_labels: Path | None = option(None, "pretrain", "parcel names of a public corpus, one per line", in_file=True)
    size: str = option("1m", "pretrain", "size of the student; small is for trying out", choices=("small", "1m", "8m"))
    steps: int = option(300_000, "pretrain", "optimiser steps; 0: the corpus alone")
    batch_size: int | None = option(
        None, "pretrain", "windows per step, over all devices [1024; 128 with kl, as the paper]", in_file=True
    )
    learning_rate: float | None = option(
        None, "pretrain", "peak learning rate [8.5e-4; with kl 3e-4, or 1e-4 for 8m]", in_file=True
    )
    loss: str = option("cka", "pretrain", "objective", choices=("cka", "kl"))
    warmup: int | None = option(None, "pretrain", "steps of linear warm-up [100; 2000 for 8m with kl]", in_file=True)
    architecture: tuple[str, ...] = option(
        (), "pretrain", "FIELD=NUMBER: a student of another size (d=64 layers=2)", in_file=True
    )
    microbatch: int | None = option(
        None, "pretrain", "recordings in memory at a time (same gradient) [all]", in_file=True
    )
    held_out: float = option(
        0.1, "pretrain", "share of families that do not train, to choose the checkpoint", in_file=True
    )
    probe: Path | None = option(
        None,
        "pretrain",
        "outputs of another cohort, whose --targets, else identification, choose the checkpoint",
        in_file=True,
    )
    accept_unproven: bool = option(False, "pretrain", "exit with 0 also where it is not proven", in_file=True)
    checkpoint_every: int = option(2000, "pretrain", "steps between checkpoints", in_file=True)
    checkpoint_minutes: float = option(15.0, "pretrain", "also save this often; 0: only the above", in_file=True)
    window: int = option(80, "pretrain", "volumes that the student sees", in_file=True)
    devices: int | None = option(None, "pretrain", "processes or accelerators per node [as started by srun, else 1]")


@dataclass(frozen=True)
class Participant(Seed, Embedding, Method):
    """Settings on which the numbers of a recording depend, for its steps, files and status."""

    def method_only(self) -> Participant:
        """Return these choices alone, without what cannot change the numbers of a recording."""
        return Participant(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Participant)})

    def configuration_hash(self) -> str:
        """Eight characters that differ whenever a choice that changes participant-level numbers differs."""
        chosen = self.of_sections(*METHOD_SECTIONS)
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]

    def cleaning(self) -> dict[str, Any]:
        """Return the choices of the cleaning as sidecars state them; a strategy of one's own by name and content."""
        chosen = {name: value for name, value in self.as_dict().items() if name in CLEANING}
        path = Path(self.strategy)
        if path.is_file():
            chosen["strategy"] = f"{path.name} ({hashlib.sha256(path.read_bytes()).hexdigest()[:8]})"
        return chosen


@dataclass(frozen=True)
class ParticipantOutputs(Participant, Places):
    """The outputs of the participant level and the choices behind them: for its dataset and its pages."""


@dataclass(frozen=True)
class Inputs(Method, Selection, Places):
    """Settings of the search for recordings."""


@dataclass(frozen=True)
class Assembly(Messages, Resources, GroupLevel, Embedding, Inputs):
    """Settings of the assembly of a cohort."""


@dataclass(frozen=True)
class Analysis(Messages, Seed, Resources, GroupLevel, Embedding, Method):
    """Settings of an analysis: no file, no folder, no selection of people."""


@dataclass(frozen=True)
class Settings(
    Pretraining, ParticipantOutputs, Assembly, Analysis, Messages, Seed, Run, Resources, GroupLevel, Embedding, Inputs
):
    """All choices of one run, documented by their own texts, written to ``logs/settings.toml``."""

    def as_toml(self) -> str:
        """Return what the level uses as TOML; given back with ``--config-file`` it reproduces the run."""
        sections = {field.name: field.metadata.get("section") for field in dataclasses.fields(self)}
        chosen = self.as_dict()
        used = {
            name: value
            for name, value in chosen.items()
            if (section := sections[name]) is None or is_read(self.level, name, section)
            if name not in overridden(chosen)
        }
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in used.items()]
        return "\n".join(lines) + "\n"


# The command that made outputs, with the choices that change numbers; on a page without folders

OF_COMMAND = ("selection", "method", "encoder", "group", "pretrain")
"""Sections of options that change the computation or its people."""
ALSO = ("random_seed",)
FOLDERS = re.compile(r"(^|[=:+])(?:[A-Za-z]:)?[/~][^=:]*/")
"""The folders before a file, also in ``NAME=PATH`` and ``FILE:TSV``."""


def command_of(choices: Mapping[str, Any], without: tuple[str, ...] = (), whole: bool = False) -> str:
    """Return the command line that gives these choices, without resources, messages and unused choices."""
    if not {"bids_dir", "output_dir", "level"} <= choices.keys():
        return ""
    level, places = str(choices["level"]), [Path(str(choices[name])).absolute() for name in ("bids_dir", "output_dir")]
    without = (*without, *overridden(choices))
    chosen = [name for name in choices if name not in without]
    options = [word for name in chosen for word in _option(name, choices[name], level)]
    # keys of the file have no flag: they are given by the choices that the level has written
    named = f"_{choices['name']}" if choices.get("name") else ""
    record = {"participant": "settings.toml", "group": f"settings_group{named}.toml"}.get(
        level, f"settings_{level}.toml"
    )
    in_file = any(_is_key(name) and any(_option(name, choices[name], level, in_file=True)) for name in chosen)
    if whole:
        file = ["--config-file", str(places[1] / "logs" / record)] if in_file else []
        return shlex.join(["fcpower_bids", *map(str, places), level, *options, *file])
    shown = (path.name or name for path, name in zip(places, ("BIDS_DIR", "OUTPUT_DIR"), strict=True))
    file = ["--config-file", record] if in_file else []
    return shlex.join(["fcpower_bids", *shown, level, *(FOLDERS.sub(r"\1", word) for word in options), *file])


def _is_key(name: str) -> bool:
    """Whether a choice is a key of the file alone."""
    field = Settings.__dataclass_fields__.get(name)
    return field is not None and bool(field.metadata.get("in_file"))


def join_words(words: Iterable[str | Path], whole: bool = False) -> str:
    """Return a command line, quoted for a shell; of a path the last name alone, or all of it."""
    paths = ((word.absolute() if isinstance(word, Path) else word) for word in words)
    return shlex.join(word if isinstance(word, str) else str(word) if whole else word.name for word in paths)


def _option(name: str, value: Any, level: str, in_file: bool = False) -> Iterator[str]:
    """Words of an option that the level uses and that is not at its default."""
    field = Settings.__dataclass_fields__.get(name)
    section = "" if field is None else field.metadata.get("section", "")
    if field is None or not (section in OF_COMMAND or name in ALSO) or not is_read(level, name, section):
        return
    if _is_key(name) != in_file:
        return
    if value is None or field.default is dataclasses.MISSING or value == plain_value(field.default):
        return
    yield f"--{name.replace('_', '-')}"
    if value is not True:
        yield from map(str, value if isinstance(value, list) else [value])
