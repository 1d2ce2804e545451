"""The options of a run in five parts: which recordings, how they are cleaned, the cohort, pretraining, the machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from fcpower_bids.core import ALPHA_STAR

PERMUTE, HOLD_OUT = "permute", "hold-out"
METHOD_SECTIONS = ("method", "encoder")
"""Sections whose values change the numbers of the participant level; they make up the configuration hash."""
CLEANING = (
    *("strategy", "high_pass", "low_pass", "filter_order", "padding", "dummy_scans", "fd_thresh"),
    *("head_radius", "motion_filter_type", "band_stop_min", "band_stop_max", "motion_filter_order"),
    *("min_time", "min_coverage"),
)
"""Choices of the cleaning, of which an output folder has one set."""


def option(section: str, default: Any, text: str, *flags: str, **about: Any) -> Any:
    """Declare one choice; `about`: what else `Option` knows of it."""
    return dataclasses.field(default=default, metadata={"section": section, "text": text, "flags": flags, **about})


of_selection, of_method, of_encoder = (partial(option, name) for name in ("selection", *METHOD_SECTIONS))
of_pretraining, of_resources, of_others = (partial(option, name) for name in ("pretrain", "resources", "other"))
asks = partial(option, "group", question=True)
"""An option of the group level that changes the question: people, target or score."""
refines = partial(option, "group", question=False)
"""An option of the group level that changes the answer, not the question."""
tunes = partial(refines, in_file=True)
in_method, in_encoder, in_pretraining = (partial(of, in_file=True) for of in (of_method, of_encoder, of_pretraining))

STRATEGIES = Path(__file__).parents[1] / "data" / "strategies"


@cache
def strategy_names() -> tuple[str, ...]:
    """Return the names of the shipped strategies."""
    return tuple(sorted(path.stem for path in STRATEGIES.glob("*.yml")))


def plain_value(value: Any) -> Any:
    """Return a value as JSON and TOML have it: paths as text, tuples as lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return value


@dataclass(frozen=True)
class Inputs:
    """Which recordings of which datasets."""

    derivatives: tuple[str, ...] = of_selection(
        (),
        "fMRIPrep derivatives, PATH or NAME=PATH [BIDS_DIR/derivatives/fmriprep]; group: series or connectomes as "
        "LAYOUT=PATH or list=FILE, or outputs of sites as SITE=PATH",
        "-d",
        question=False,
    )
    input_type: str | None = of_selection(
        None,
        "who preprocessed the recordings [as their folders show]",
        choices=("fmriprep", "nibabies", "hcp"),
        question=False,
    )
    participant_label: tuple[str, ...] = of_selection((), "participants, with or without 'sub-' [all]", question=True)
    session_label: tuple[str, ...] = of_selection((), "sessions, with or without 'ses-' [all]", question=True)
    task_id: tuple[str, ...] = of_selection((), "tasks [all]", question=True)
    space: tuple[str, ...] = of_selection(
        (), "spaces [per recording the first of MNI152NLin2009cAsym, MNI152NLin6Asym, fsLR]", question=True
    )
    bids_filter_file: Path | None = of_selection(
        None, "fMRIPrep's JSON of entity filters for 'bold' (null = absent, '*' = any)", question=True
    )
    bids_database_dir: Path | None = of_selection(None, "folder that keeps the index of the inputs", question=False)


@dataclass(frozen=True)
class Method:
    """Atlases, cleaning, connectomes and encoder: what the numbers of a recording depend on."""

    atlas: tuple[str, ...] = of_method(
        ("Schaefer400",), "names, FILE[:TSV], BIDS-Atlas DATASET[:SELECTOR], A+B for merged parts"
    )
    atlas_dir: tuple[Path, ...] = of_method((), "folders searched for atlases before TemplateFlow")
    strategy: str = of_method("24P", "confound strategy: a name or a YAML file")
    high_pass: float = of_method(0.01, "lower edge of the band (Hz), 0 for none")
    low_pass: float = of_method(0.08, "upper edge of the band (Hz), 0 for none")
    filter_order: int = in_method(2, "order of the Butterworth filter before its two passes")
    padding: str = in_method(
        "even", "how the filter continues a series beyond its ends", choices=("even", "constant", "odd")
    )
    dummy_scans: str = of_method("auto", "volumes to drop at the start, or 'auto' (non-steady state)")
    fd_thresh: float = of_method(0.5, "censor volumes with more framewise displacement (mm), 0 for none")
    head_radius: str | None = of_method(None, "in mm, or 'auto' (from the mask) [as the table has it]")
    motion_filter_type: str | None = of_method(
        None, "takes breathing out of the motion parameters [none]", choices=("notch", "lp")
    )
    band_stop_min: float | None = of_method(None, "its lower edge in breaths per minute (lp: the only one)")
    band_stop_max: float | None = of_method(None, "its upper edge in breaths per minute")
    motion_filter_order: int = in_method(4, "order of the motion filter, over all passes")
    min_time: float = of_method(120.0, "seconds that censoring must leave, else excluded", question=True)
    min_coverage: float = of_method(0.5, "share of a parcel's voxels that must have signal")
    alpha: float = of_method(ALPHA_STAR, "exponent of FC^alpha; group: also 'grid', 'nested', 'align'")
    transforms: tuple[str, ...] = of_method(("power",), "transforms of the connectome to write")
    eigenvalue_floor: float | None = in_method(None, "least eigenvalue for transforms that need full rank (mean: 1)")
    shrink_to_identity: float | None = in_method(None, "shrinkage towards the identity for the same, 0 to 1")
    encoder: str | None = of_encoder(None, "encoder that embeds each recording")
    encoder_weights: str | None = of_encoder(
        None, "its weights: a folder, a file or a hub id; what else it needs lies in the folder"
    )
    encoder_revision: str | None = in_encoder(None, "revision of the hub id")
    encoder_read: str = in_encoder("sequence", "how a recording is read", choices=("sequence", "windows"))
    encoder_protocol: str = in_encoder(
        "own", "feed a published encoder as its authors or as the paper", choices=("own", "paper")
    )
    random_seed: int = of_others(0, "seed of everything random")

    @property
    def full_rank_remedy(self) -> dict[str, float | None]:
        """Least eigenvalue and shrinkage, by the names that transforms have for them."""
        return {"eigenvalue_floor": self.eigenvalue_floor, "shrink_to_identity": self.shrink_to_identity}

    @property
    def band(self) -> tuple[float | None, float | None]:
        """The pass-band in Hz; None on a side without a limit."""
        return self.high_pass or None, self.low_pass or None

    def configuration_hash(self) -> str:
        """Eight characters that differ whenever a choice that changes participant-level numbers differs.

        Files of one's own go in by what they are called, wherever they lie.
        """
        fields = [field for field in dataclasses.fields(self) if field.metadata["section"] in METHOD_SECTIONS]
        chosen = {field.name: plain_value(getattr(self, field.name)) for field in fields}
        chosen["atlas"] = [re.sub(r"[^:+]*/", "", str(name)) for name in self.atlas]  # of FILE:TABLE and FILE+FILE, too
        chosen["strategy"] = self.cleaning()["strategy"]
        del chosen["atlas_dir"]
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]

    def cleaning(self) -> dict[str, Any]:
        """Return the choices of the cleaning as sidecars state them; a strategy of one's own by name and content."""
        given = {name: plain_value(getattr(self, name)) for name in CLEANING}
        chosen = {name: value for name, value in given.items() if value is not None}
        path = Path(self.strategy)
        if path.is_file():
            chosen["strategy"] = f"{path.name} ({hashlib.sha256(path.read_bytes()).hexdigest()[:8]})"
        return chosen

    def connectomes(self, atlases: Iterable[str]) -> dict[str, Any]:
        """Return what else an output folder has one of: names of the atlases, transforms and their parameters."""
        chosen: dict[str, Any] = {"atlas": sorted(atlases), "transforms": sorted(self.transforms)}
        chosen |= {"alpha": self.alpha} if "power" in self.transforms else {}
        return {name: value for name, value in {**chosen, **self.full_rank_remedy}.items() if value is not None}


@dataclass(frozen=True)
class Group:
    """Phenotypes, folds, analyses, and who takes part."""

    name: str = refines("", "results go to group/NAME/ and group_NAME.html [group/ and group.html]")
    targets: tuple[str, ...] = asks(
        (),
        "columns to predict; hcp58: those of Ooi et al. 2022; NAME=COLUMN,COLUMN,...: first component; "
        "'NAME=COLUMN>=NUMBER': two classes [all numeric columns of --phenotypes]",
    )
    covariates: tuple[str, ...] = asks(
        (),
        "columns regressed from the targets, and in the model of edges",
    )
    phenotypes: tuple[Path, ...] = refines((), "phenotype tables [participants.tsv and phenotype/*.tsv]")
    missing_values: tuple[str, ...] = tunes((), "values that mean missing: -1 or age=0")
    family_column: str | None = asks(None, "column whose equal values never span a split")
    site_column: str | None = asks(None, "column of sites; see --sites")
    sites: str = asks(
        PERMUTE,
        "permute targets within sites, hold sites out in turn, or take them from the features (ComBat)",
        choices=(PERMUTE, HOLD_OUT, "combat"),
    )
    stratify: bool = tunes(False, "spread sites and classes evenly over folds; families stay whole")
    representations: tuple[str, ...] = refines(("fc", "fc_power"), "features of people: fc fc_power embedding")
    analyses: tuple[str, ...] = refines(
        (),
        "analyses, 'all', or 'check' for what would mislead alone [prediction fingerprinting qc_fc, as the cohort "
        "allows]",
    )
    alpha_selection: str | None = tunes(
        None,
        "choose the exponent as '--alpha grid' does; --alpha is then for all else",
        choices=("grid", "nested", "align"),
    )
    kernel: str = refines("correlation", "kernel of the regression", choices=("correlation", "linear"))
    preset: str = asks(
        "recommended",
        "cross-validation; 'paper' without --analyses asks for all of them",
        choices=("recommended", "paper", "cbig"),
    )
    repeats: int | None = refines(None, "repetitions of the outer folds [preset]")
    folds: int | None = refines(None, "outer folds [preset]")
    inner_folds: int | None = tunes(None, "inner folds [preset]")
    folds_file: Path | None = asks(None, "a folds.tsv, or a table of people with a column of folds per repeat")
    penalties: tuple[float, ...] = tunes((), "ridge penalties, as they are [preset]")
    selection: str | None = tunes(
        None,
        "score of the inner folds that selects the penalty [preset]",
        choices=tuple(f"{how}_{score}" for score in ("pearson", "mse", "predictive_cod") for how in ("pooled", "mean")),
    )
    fit_transforms_on: str | None = tunes(
        None, "people that z-scores, PCA and tangent references are fitted to [preset]", choices=("cohort", "fold")
    )
    permutations: int | None = refines(
        None,
        "of each prediction [up to 1000, at a third of its cost; none with other presets] and of edges [1000]",
    )
    exclude_file: Path | None = asks(None, "TSV of what to leave out [OUTPUT_DIR/exclude.tsv]")
    max_mean_fd: float | None = asks(None, "leave out recordings with a higher mean FD (mm)")
    equal_minutes: bool = asks(False, "cut every scan to the length of the shortest")
    save_models: bool = refines(False, "also write models for 'fcpower_bids predict'")
    scan_minutes: tuple[float, ...] = tunes((), "learning_curves: lengths of scan [doubling from 1.2]")
    sample_sizes: tuple[int, ...] = tunes((), "learning_curves: numbers of people [25 50 100 150 ...]")
    subsamples: bool = tunes(
        False, "learning_curves: cross-validate within random subsamples of people, not with fewer who train"
    )
    tangent_reference: Path | None = tunes(
        None,
        "transform_screen: table of the mean FC of other people, the reference of one more tangent row",
    )
    nbs_threshold: float | None = tunes(None, "edges: |t| above which edges form networks [that of p = 0.001]")
    slow_controls: bool = tunes(
        False,
        "spectral_controls: also filters learned in the folds, which needs torch",
    )

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Targets that are columns, those of `classes` among them."""
        return tuple((as_class(item) or (item,))[0] for item in self.targets if not is_composite(item))

    @property
    def classes(self) -> dict[str, tuple[str, float]]:
        """Column and number of each target of two classes by its name: ``NAME=COLUMN>=NUMBER``."""
        return {name: (column, number) for name, column, number in filter(None, map(as_class, self.targets))}

    @property
    def composites(self) -> dict[str, tuple[str, ...]]:
        """Columns of each composite by its name: targets of the form ``NAME=COLUMN,COLUMN,...``."""
        pairs = (item.partition("=") for item in self.targets if is_composite(item))
        return {name.strip(): tuple(part.strip() for part in parts.split(",")) for name, _, parts in pairs}

    def made_of(self, target: str) -> frozenset[str]:
        """A target, the columns of a composite, and those of which a class is cut."""
        names = {target, *self.composites.get(target, ())}
        return frozenset(names | {self.classes[name][0] for name in names if name in self.classes})


def as_class(target: str) -> tuple[str, str, float] | None:
    """Name, column and number of ``NAME=COLUMN>=NUMBER``, NaN where it is no number; None for any other target."""
    if not (match := re.fullmatch(r"([^=]*)=([^=,]*)>=(.*)", target)):
        return None
    try:
        number = float(match[3])
    except ValueError:
        number = math.nan
    return match[1].strip(), match[2].strip(), number


def is_composite(target: str) -> bool:
    """Whether a target is of the form ``NAME=COLUMN,COLUMN,...``; a column may have one of the signs in its name."""
    return "," in target.partition("=")[2] and as_class(target) is None


@dataclass(frozen=True)
class Pretraining:
    """The corpus, the student, and the optimisation."""

    corpus: str | None = of_pretraining(None, "folder or hub id of a corpus, packed or public [OUTPUT_DIR/corpus]")
    size: str = of_pretraining("1m", "size of the student; small is for trying out", choices=("small", "1m", "8m"))
    steps: int = of_pretraining(300_000, "optimiser steps; 0: the corpus alone")
    minutes: float | None = of_pretraining(
        None, "length of the training, from which steps and warm-up follow [as --steps says]"
    )
    batch_size: int | None = in_pretraining(
        None, "windows per step, over all devices [1024; 128 with kl, as the paper]"
    )
    learning_rate: float | None = in_pretraining(None, "peak learning rate [8.5e-4; with kl 3e-4, or 1e-4 for 8m]")
    loss: str = of_pretraining("cka", "objective", choices=("cka", "kl"))
    warmup: int | None = in_pretraining(None, "steps of linear warm-up [100; 2000 for 8m with kl]")
    architecture: tuple[str, ...] = in_pretraining((), "FIELD=NUMBER: a student of another size (d=64 layers=2)")
    held_out: float = in_pretraining(0.1, "share of families that do not train, to choose the checkpoint")
    probe: Path | None = in_pretraining(
        None, "outputs of another cohort, whose --targets, else identification, choose the checkpoint"
    )
    checkpoint_minutes: float = in_pretraining(15.0, "save this often, besides every 2000 steps; 0: only then")
    window: int = in_pretraining(80, "volumes that the student sees")
    devices: int | None = of_pretraining(None, "processes or accelerators per node [as started by srun, else 1]")


@dataclass(frozen=True)
class Run:
    """Processes, memory, messages on the terminal, and which part of the work is wanted."""

    work_dir: Path | None = of_resources(None, "folder for intermediate results [OUTPUT_DIR/work]", "-w")
    nprocs: int = of_resources(0, "processes, 0 for all cores", "--n-cpus")
    omp_nthreads: int = of_resources(1, "threads per process")
    mem_mb: int = of_resources(0, "memory of all processes in MB; 0: large arrays take up to 2 GB")
    executor: str = of_resources("", "address of a Dask scheduler [processes here]")
    use_plugin: Path | None = of_resources(None, "nipype plugin for clusters, as YAML")
    config_file: Path | None = of_others(None, "TOML file of options", "-c")
    dry_run: bool = of_others(False, "print what would be done, then stop")
    reports_only: bool = of_others(False, "make the reports again")
    replace: bool = of_others(False, "outputs of another question or source, or made otherwise, are replaced")
    debug: bool = of_others(False, "show tracebacks, keep the work folder")
    verbose: bool = of_others(False, "say more", "-v")
    quiet: bool = of_others(False, "say only errors", "-q")
