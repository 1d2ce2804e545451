"""Options that each level reads and its help shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcpower_bids.settings import Settings

SECTIONS_OF: Mapping[str, tuple[str, ...]] = {
    "participant": ("selection", "method", "encoder", "resources", "other"),
    "group": ("selection", "encoder", "group", "resources", "other"),
    "pack": (),
    "pretrain": ("pretrain",),
}
"""Whole sections."""

ALSO: Mapping[str, tuple[str, ...]] = {
    "participant": (),
    "group": ("atlas", "alpha", "combine_runs", "min_time", "eigenvalue_floor", "shrink_to_identity"),
    "pack": (
        *(
            "participant_label",
            "atlas",
            "alpha",
            "corpus",
            "public_corpus",
            "exclude_from_corpus",
            "window",
            "family_column",
        ),
        *("nprocs", "quiet", "dataset_name"),
    ),
    "pretrain": (
        *("participant_label", "atlas", "alpha", "family_column", "encoder", "nprocs", "random_seed", "quiet"),
        *("dry_run", "dataset_name"),
    ),
}
"""Options of other sections."""

NOT: Mapping[str, tuple[str, ...]] = {
    "participant": ("executor", "solver_device"),
    "group": (
        *("input_type", "bids_database_dir", "skip_bids_validation", "clean_workdir", "remove_parcel_means"),
        *("boilerplate_only", "write_graph", "use_plugin", "stop_on_first_crash", "strict"),
    ),
    "pack": (),
    "pretrain": ("public_corpus",),
}
"""Options of these sections that the level does not read."""

FIRST: Mapping[str, tuple[str, ...]] = {
    "participant": (
        *("dry_run", "participant_label", "session_label", "task_id", "space", "derivatives", "atlas", "atlas_dir"),
        *("strategy", "fd_thresh", "high_pass", "low_pass", "min_time", "combine_runs", "alpha", "encoder"),
        *("encoder_weights", "nprocs", "work_dir", "config_file"),
    ),
    "group": (
        *("targets", "phenotypes", "covariates", "family_column", "site_column", "hold_out_sites", "check", "analyses"),
        *("representations", "derivatives", "participant_label", "exclude_file", "max_mean_fd", "folds", "repeats"),
        *("permutations", "preset", "save_models", "name", "nprocs"),
    ),
    "pack": (
        *("participant_label", "atlas", "corpus", "public_corpus", "exclude_from_corpus", "window", "family_column"),
        *("dataset_name", "quiet"),
    ),
    "pretrain": (
        *("corpus", "participant_label", "encoder", "atlas", "family_column", "steps", "batch_size", "learning_rate"),
        *(
            "loss",
            "window",
            "held_out",
            "exclude_from_corpus",
            "checkpoint_every",
            "accelerator",
            "devices",
            "precision",
        ),
        *("accept_unproven", "random_seed", "nprocs", "quiet"),
    ),
}
"""The options that most people use, in the order of a first run; the help of a level shows them first."""

ALL_LEVELS = ("config_file", "work_dir", "verbose", "debug")

TOLERATED = (
    *("nprocs", "omp_nthreads", "mem_mb", "low_mem", "resource_monitor", "random_seed", "quiet", "strict"),
    *("skip_bids_validation", "notrack", "fs_license_file"),
)
"""Options that a script gives to every level alike: where one is not read, nothing that is written hangs on it."""


def is_read(level: str, name: str, section: str) -> bool:
    """Whether a level reads an option, given the section of the latter."""
    if name in NOT[level]:
        return False
    return section in SECTIONS_OF[level] or name in (*ALSO[level], *ALL_LEVELS)


def refuse_unread(level: str, sections: Mapping[str, str], given: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each option of the command line that a level does not read, with the levels that do."""
    for name in given:
        if name in sections and name not in TOLERATED and not is_read(level, name, sections[name]):
            readers = [one for one in SECTIONS_OF if is_read(one, name, sections[name])]
            levels = f"level{'s' if len(readers) > 1 else ''} {' and '.join(readers)}"
            yield f"--{name.replace('_', '-')} is an option of the {levels}; {level} does not use it. Leave it out."


def tell_unread(settings: Settings, analyses: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each choice at group level without a reader: its analysis, or folds of its own."""
    for field in dataclasses.fields(settings):
        reader = field.metadata.get("reader")
        if reader and getattr(settings, field.name) != field.default and reader not in analyses:
            yield f"--{field.name.replace('_', '-')} is for --analyses {reader}, which was not asked for."
    for name, brought in overridden(vars(settings)).items():
        yield f"--{name} is not used: {Path(brought).name} has the folds."


def overridden(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Choices that are given and not used, with the file that has the folds in their place."""
    brought = chosen.get("folds_file") or chosen.get("test_people")
    return {name: str(brought) for name in ("folds", "repeats") if brought and chosen.get(name) is not None}
