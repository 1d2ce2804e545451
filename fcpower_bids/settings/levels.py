"""Which options each level reads: what its help shows."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS_OF: Mapping[str, tuple[str, ...]] = {
    "participant": ("selection", "method", "encoder", "resources", "other"),
    "group": ("selection", "encoder", "group", "resources", "other"),
    "pack": (),
    "pretrain": ("pretrain",),
}
"""Whole sections."""

ALSO: Mapping[str, tuple[str, ...]] = {
    "participant": (),
    "group": ("atlas", "alpha", "combine_runs", "min_time", "floor", "shrinkage"),
    "pack": ("participant_label", "atlas", "corpus", "public_corpus", "evaluation", "window", "family_column", "quiet"),
    "pretrain": ("participant_label", "atlas", "alpha", "family_column", "encoder", "nprocs", "random_seed", "quiet"),
}
"""Options of other sections."""

NOT: Mapping[str, tuple[str, ...]] = {
    "participant": ("executor", "solver_device"),
    "group": (
        *("input_type", "bids_database_dir", "skip_bids_validation", "clean_workdir", "remove_parcel_means"),
        *("boilerplate_only", "write_graph"),
    ),
    "pack": (),
    "pretrain": ("public_corpus",),
}
"""Options of these sections that the level does not read."""

ALL_LEVELS = ("config_file", "work_dir", "verbose", "debug")


def is_read(level: str, name: str, section: str) -> bool:
    """Whether a level reads an option, given the section of the latter."""
    if name in NOT[level]:
        return False
    return section in SECTIONS_OF[level] or name in (*ALSO[level], *ALL_LEVELS)
