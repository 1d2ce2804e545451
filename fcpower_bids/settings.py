"""Every choice that a user can make, once: the command line, the configuration file and the sidecars follow from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEVELS = ("participant", "group", "pack", "pretrain")
SECTIONS = {
    "selection": "Which recordings",
    "method": "Cleaning, parcels and connectomes",
    "encoder": "Embedding",
    "group": "Group level",
    "pretrain": "Pretraining",
    "resources": "Resources",
    "other": "Other",
}
METHOD_SECTIONS = ("method", "encoder")
"""Sections whose values change the numbers of the participant level; they make up the configuration hash."""


def option(default: Any, section: str, text: str, *flags: str, choices: tuple[str, ...] | None = None) -> Any:
    """Declare one choice: its default, its section of ``--help``, its text, other spellings, allowed values."""
    return dataclasses.field(
        default=default, metadata={"section": section, "text": text, "flags": flags, "choices": choices}
    )


@dataclass(frozen=True)
class Settings:
    """All choices of one run; immutable, equal by value, written to ``logs/settings.toml``.

    Attributes are documented by their own texts, which ``--help`` and ``docs/usage.md`` show.
    """

    bids_dir: Path
    output_dir: Path
    level: str

    # Which recordings
    derivatives: tuple[str, ...] = option(
        (), "selection", "fMRIPrep derivatives, as NAME=PATH or PATH [BIDS_DIR/derivatives/fmriprep]", "-d"
    )
    participant_label: tuple[str, ...] = option((), "selection", "participants, with or without 'sub-' [all]")
    session_label: tuple[str, ...] = option((), "selection", "sessions, with or without 'ses-' [all]", "--session-id")
    task_id: tuple[str, ...] = option((), "selection", "tasks [all]", "-t", "--task-label")
    run_id: tuple[str, ...] = option((), "selection", "runs [all]")
    space: tuple[str, ...] = option(
        (), "selection", "spaces [per run the first of MNI152NLin2009cAsym, MNI152NLin6Asym, fsLR]"
    )
    bids_filter_file: Path | None = option(
        None, "selection", "JSON of entity filters for 'bold', as fMRIPrep's (null = absent, '*' = any)"
    )
    bids_database_dir: Path | None = option(None, "selection", "folder that keeps the index of the inputs")
    skip_bids_validation: bool = option(False, "selection", "do not stop at a missing dataset_description.json")

    # Cleaning, parcels and connectomes
    atlas: tuple[str, ...] = option(
        ("Schaefer400",), "method", "atlases: names, FILE[:TSV], BIDS-Atlas DATASET[:SELECTOR], A+B for merged parts"
    )
    atlas_dir: tuple[Path, ...] = option((), "method", "folders searched for atlases before TemplateFlow")
    strategy: str = option("24P", "method", "confound strategy: a shipped name or a YAML file")
    high_pass: float = option(0.01, "method", "lower edge of the pass-band in Hz, 0 for none")
    low_pass: float = option(0.08, "method", "upper edge of the pass-band in Hz, 0 for none")
    dummy_scans: str = option("auto", "method", "volumes to drop at the start: a number or 'auto' (non-steady state)")
    fd_thresh: float = option(0.5, "method", "censor volumes with more framewise displacement in mm, 0 for none")
    min_time: float = option(120.0, "method", "seconds that must be left after censoring, else excluded")
    min_coverage: float = option(0.5, "method", "share of a parcel's voxels that must have signal, else n/a")
    combine_runs: str = option(
        "none", "method", "runs of one session and task: also their combination", choices=("none", "concat", "average")
    )
    alpha: str = option("0.35", "method", "exponent of FC^alpha; at group level also 'grid', 'nested' or 'align'")
    transforms: tuple[str, ...] = option(("power",), "method", "connectome transforms to write")
    floor: float | None = option(None, "method", "eigenvalue floor for transforms that need full rank (mean is 1)")
    shrinkage: float | None = option(None, "method", "shrinkage towards the identity for the same, 0 to 1")

    # Embedding
    encoder: str | None = option(None, "encoder", "encoder that embeds each recording")
    encoder_weights: str | None = option(None, "encoder", "its weights: a folder, a file or a hub id")
    encoder_revision: str | None = option(None, "encoder", "revision of the hub id")
    encoder_read: str = option("sequence", "encoder", "how a recording is read", choices=("sequence", "windows"))
    encoder_protocol: str = option(
        "own", "encoder", "feed a published encoder as its authors do, or as in the paper", choices=("own", "paper")
    )
    encoder_aux: tuple[Path, ...] = option((), "encoder", "further files of a published encoder, or folders with them")
    accept_encoder_licence: bool = option(False, "encoder", "you accept the licence of a published encoder's weights")
    allow_missing_parcels: bool = option(False, "encoder", "fill parcels that the atlas lacks with their mean, 0")

    # Group level
    targets: tuple[str, ...] = option((), "group", "phenotypes to predict [all numeric columns of --phenotypes]")
    composite: tuple[str, ...] = option((), "group", "NAME=COLUMN,COLUMN,...: first component, fitted in the fold")
    covariates: tuple[str, ...] = option((), "group", "columns regressed from the targets inside the fold")
    phenotypes: tuple[Path, ...] = option((), "group", "phenotype tables [participants.tsv and phenotype/*.tsv]")
    family_column: str | None = option(None, "group", "column whose equal values never span a split")
    site_column: str | None = option(None, "group", "column of sites; with --hold-out-sites each is held out in turn")
    hold_out_sites: bool = option(False, "group", "folds are the sites")
    representations: tuple[str, ...] = option(("fc", "fc_power"), "group", "what predicts: fc fc_power embedding")
    analyses: tuple[str, ...] = option(
        (), "group", "analyses, 'all' for every one [prediction fingerprinting qc_fc, as far as the cohort allows]"
    )
    kernel: str = option("correlation", "group", "kernel of the regression", choices=("correlation", "linear"))
    preset: str = option(
        "paper",
        "group",
        "protocol of the cross-validation; '--preset paper' without --analyses also asks for all of them",
        choices=("paper", "cbig"),
    )
    repeats: int | None = option(None, "group", "repetitions of the outer folds [preset]")
    folds: int | None = option(None, "group", "outer folds [preset]")
    inner_folds: int | None = option(None, "group", "inner folds [preset]")
    group_fit: str = option(
        "cohort", "group", "whom tangent references, PCA and their like are fitted to", choices=("cohort", "fold")
    )
    scan_minutes: tuple[float, ...] = option((), "group", "learning_curves: lengths of scan [doubling from 1.2]")
    sample_sizes: tuple[int, ...] = option((), "group", "learning_curves: numbers of people [25 50 100 150 ...]")
    learned_filters: bool = option(False, "group", "spectral_controls: also learn filters inside the folds (slow)")
    permutations: int = option(0, "group", "permutations for the null of each prediction")
    save_models: bool = option(False, "group", "also write a model per target that 'fcpower_bids predict' applies")
    exclude_file: Path | None = option(None, "group", "TSV of recordings or participants to leave out, with reasons")
    max_mean_fd: float | None = option(None, "group", "leave out recordings with a higher mean FD in mm")
    max_parcel_missing: float = option(0.1, "group", "drop parcels that a larger share of people lacks")
    max_missing_parcels: float = option(0.1, "group", "leave out people who lack a larger share of parcels")

    # Pretraining
    corpus: str | None = option(
        None,
        "pretrain",
        "folder of a packed corpus or of one in the public layout, or its hub id [OUTPUT_DIR/corpus]",
    )
    public_corpus: Path | None = option(None, "pretrain", "pack: also write it to this folder in the public layout")
    roi_labels: Path | None = option(None, "pretrain", "names of the parcels of a public corpus, one per line")
    draw: str = option("windows", "pretrain", "what is drawn with equal chance", choices=("windows", "recordings"))
    steps: int = option(300_000, "pretrain", "optimiser steps")
    batch_size: int = option(1024, "pretrain", "recordings per step, over all devices")
    learning_rate: float = option(8.5e-4, "pretrain", "peak learning rate")
    loss: str = option("cka", "pretrain", "objective", choices=("cka", "cka_debiased", "kl"))
    warmup: int = option(100, "pretrain", "steps of linear warm-up")
    architecture: tuple[str, ...] = option((), "pretrain", "FIELD=NUMBER: a student of another size (d=64 layers=2)")
    chunk: int | None = option(None, "pretrain", "recordings in memory at a time (same gradient) [all]")
    held_out: float = option(0.1, "pretrain", "share of families kept out of training, to choose the checkpoint")
    checkpoint_every: int = option(2000, "pretrain", "steps between checkpoints")
    evaluation: tuple[str, ...] = option((), "pretrain", "DATASET or DATASET/SUBJECT that must not be in the corpus")
    tensorboard: bool = option(False, "pretrain", "also log to TensorBoard, which has to be installed")
    window: int = option(80, "pretrain", "volumes that the student sees")
    surrogates: bool = option(False, "pretrain", "phase-randomised views that keep the connectome")
    precision: str = option("32-true", "pretrain", "arithmetic", choices=("32-true", "bf16-mixed", "16-mixed"))
    devices: int | None = option(None, "pretrain", "processes or accelerators per node [as started by srun, else 1]")
    num_nodes: int | None = option(None, "pretrain", "nodes, with processes on each [as started by srun, else 1]")
    accelerator: str = option("auto", "pretrain", "where to train", choices=("auto", "cpu", "gpu"))

    # Resources
    nprocs: int = option(0, "resources", "processes at a time, 0 for all cores", "--n-cpus", "--nthreads")
    omp_nthreads: int = option(1, "resources", "threads per process")
    mem_mb: int = option(0, "resources", "memory for all processes in MB, 0 for what there is")
    low_mem: bool = option(False, "resources", "one process at a time")
    use_plugin: Path | None = option(None, "resources", "nipype plugin as YAML, for clusters")
    work_dir: Path | None = option(None, "resources", "folder for intermediate results [OUTPUT_DIR/work]", "-w")
    clean_workdir: bool = option(False, "resources", "empty the work folder first")
    stop_on_first_crash: bool = option(False, "resources", "stop at the first failed recording")
    resource_monitor: bool = option(False, "resources", "record time and memory of each step")

    # Other
    config_file: Path | None = option(None, "other", "TOML file with any of these options; the command line wins", "-c")
    dry_run: bool = option(False, "other", "print what was found and what would be written, then stop")
    boilerplate_only: bool = option(False, "other", "write the methods text, then stop")
    reports_only: bool = option(False, "other", "make the reports again from what was written")
    write_graph: bool = option(False, "other", "draw the workflow into logs/")
    random_seed: int = option(0, "other", "seed of everything random", "--seed")
    strict: bool = option(False, "other", "exit with 6 when quality control excluded recordings")
    debug: bool = option(False, "other", "tracebacks, and keep the work folder")
    verbose: bool = option(False, "other", "say more", "-v")
    quiet: bool = option(False, "other", "say only errors", "-q")
    notrack: bool = option(False, "other", "accepted and ignored: nothing is ever tracked")
    fs_license_file: Path | None = option(None, "other", "accepted and ignored: FreeSurfer is not used")

    @property
    def exponent(self) -> float:
        """The exponent as a number; the paper's 0.35 while the group level is to choose it."""
        try:
            return float(self.alpha)
        except ValueError:
            return 0.35

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.work_dir or self.output_dir / "work"

    @property
    def band(self) -> tuple[float | None, float | None]:
        """The pass-band in Hz; None on a side without a limit."""
        return self.high_pass or None, self.low_pass or None

    def method_only(self) -> Settings:
        """Return the same choices with all that cannot change participant-level numbers at its default."""
        chosen = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata.get("section") in METHOD_SECTIONS or field.name == "random_seed"
        }
        return Settings(Path(), Path(), self.level, **chosen)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON and TOML values; unset ones are left out."""
        plain = {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return {name: value for name, value in plain.items() if value is not None}

    def configuration_hash(self) -> str:
        """Eight characters that differ whenever a choice that changes participant-level numbers differs."""
        chosen = {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.metadata.get("section") in METHOD_SECTIONS
        }
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]

    def as_toml(self) -> str:
        """Return the settings as TOML; given back with ``--config-file`` it reproduces the run."""
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in self.as_dict().items()]
        return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
