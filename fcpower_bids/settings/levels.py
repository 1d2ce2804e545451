"""Options that each level reads and its help shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcpower_bids import plugins
from fcpower_bids.options import Level

if TYPE_CHECKING:
    from fcpower_bids.settings import Settings

LEVELS: Mapping[str, Level] = {
    "participant": Level(
        "recordings to cleaned series, FC, FC^alpha, quality, one page per person",
        "fcpower_bids.workflows.participant:run_participants",
        sections=("selection", "method", "encoder", "resources", "other"),
        without=("executor",),
        first=(
            *("dry_run", "participant_label", "session_label", "task_id", "space", "derivatives", "atlas", "atlas_dir"),
            *("strategy", "fd_thresh", "high_pass", "low_pass", "min_time", "alpha", "encoder"),
            *("encoder_weights", "nprocs", "work_dir", "config_file"),
        ),
    ),
    "group": Level(
        "prediction, identification and the other analyses of a cohort, one page",
        "fcpower_bids.workflows.group:run_group",
        sections=("selection", "encoder", "group", "resources", "other"),
        also=("atlas", "alpha", "min_time", "eigenvalue_floor", "shrink_to_identity"),
        without=(*("input_type", "bids_database_dir", "skip_bids_validation", "use_plugin"),),
        first=(
            *("targets", "phenotypes", "covariates", "family_column", "site_column", "sites", "check"),
            *("analyses", "representations", "derivatives", "participant_label", "exclude_file", "max_mean_fd"),
            *("folds", "repeats", "permutations", "preset", "save_models", "name", "nprocs"),
        ),
    ),
    **dict(zip(plugins.places("levels"), plugins.load("levels"), strict=True)),
}

ALL_LEVELS = ("config_file", "work_dir", "verbose", "debug")

TOLERATED = (
    *("nprocs", "omp_nthreads", "mem_mb", "random_seed", "quiet"),
    *("skip_bids_validation", "notrack", "fs_license_file"),
)
"""Options that a script gives to every level alike: where one is not read, nothing that is written hangs on it."""


def is_read(level: str, name: str, section: str) -> bool:
    """Whether a level reads an option, given the section of the latter."""
    own = LEVELS[level]
    return name not in own.without and (section in own.sections or name in (*own.also, *ALL_LEVELS))


def refuse_unread(level: str, sections: Mapping[str, str], given: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each option of the command line that a level does not read, with the levels that do."""
    for name in given:
        if name in sections and name not in TOLERATED and not is_read(level, name, sections[name]):
            readers = [one for one in LEVELS if is_read(one, name, sections[name])]
            levels = f"level{'s' if len(readers) > 1 else ''} {' and '.join(readers)}"
            yield f"--{name.replace('_', '-')} is an option of the {levels}; {level} does not use it. Leave it out."


def describe_unread(settings: Settings, analyses: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each choice at group level without a reader: its analysis, or folds of its own."""
    for field in dataclasses.fields(settings):
        reader = field.metadata.get("reader")
        if reader and getattr(settings, field.name) != field.default and reader not in analyses:
            yield f"--{field.name.replace('_', '-')} is for --analyses {reader}, which was not asked for."
    for name, brought in overridden(vars(settings)).items():
        yield f"--{name} is not used: {Path(brought).name} has the folds."


def overridden(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Choices that are given and not used, with the file that has the folds in their place."""
    brought = chosen.get("folds_file")
    return {name: str(brought) for name in ("folds", "repeats") if brought and chosen.get(name) is not None}
