"""Declaration of an option, a field with a section of ``--help`` and a text; and which level reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcpower_bids.settings import Settings

PERMUTE, HOLD_OUT = "permute", "hold-out"


def option(
    default: Any,
    section: str,
    text: str,
    *flags: str,
    choices: tuple[str, ...] | None = None,
    reader: str | None = None,
    question: bool | None = None,
    in_file: bool = False,
) -> Any:
    """Declare one choice; with `in_file` it is set in the file of ``--config-file`` alone."""
    about: dict[str, Any] = {"section": section, "text": text, "flags": flags, "choices": choices}
    about |= {"reader": reader, "question": question, "in_file": in_file}
    return dataclasses.field(default=default, metadata=about)


def asks(default: Any, text: str, **about: Any) -> Any:
    """Declare an option of the group level that changes the question: people, target or score."""
    return option(default, "group", text, question=True, **about)


def refines(default: Any, text: str, **about: Any) -> Any:
    """Declare an option of the group level that changes the answer, not the question."""
    return option(default, "group", text, question=False, **about)


@dataclass(frozen=True)
class Choices:
    """A part of the choices of a run; immutable, equal by value."""

    def as_dict(self) -> dict[str, Any]:
        """Return the choices as plain JSON and TOML values; unset ones are left out."""
        plain = {field.name: plain_value(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return {name: value for name, value in plain.items() if value is not None}

    def of_sections(self, *sections: str) -> dict[str, Any]:
        """Return the values of some sections by name, as plain values."""
        return {
            field.name: plain_value(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.metadata.get("section") in sections
        }

    def question(self) -> dict[str, Any]:
        """Return the options that make the question, as plain values."""
        fields = dataclasses.fields(self)
        return {each.name: plain_value(getattr(self, each.name)) for each in fields if each.metadata.get("question")}


def plain_value(value: Any) -> Any:
    """Return a value as JSON and TOML have it: paths as text, tuples as lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return value


# Levels


@dataclass(frozen=True)
class Level:
    """A level of the command line: ``fcpower_bids bids_dir output_dir LEVEL``."""

    summary: str  # its line of the help
    sections: tuple[str, ...] = ()  # sections of options that it reads whole
    # also, without: options of other sections that it reads, and options of these sections that it does not
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


LEVELS: Mapping[str, Level] = {
    "participant": Level(
        "recordings to cleaned series, FC, FC^alpha, quality, one page per person",
        sections=("selection", "method", "encoder", "resources", "other"),
        without=("executor",),
    ),
    "group": Level(
        "prediction, identification and the other analyses of a cohort, one page",
        sections=("selection", "encoder", "group", "resources", "other"),
        also=("atlas", "alpha", "min_time", "eigenvalue_floor", "shrink_to_identity"),
        without=("input_type", "bids_database_dir", "use_plugin"),
    ),
    "pretrain": Level(
        "an encoder from a corpus, or from the recordings that were processed",
        sections=("pretrain",),
        also=(
            *("participant_label", "atlas", "alpha", "family_column", "nprocs", "random_seed", "quiet"),
            *("dry_run", "dataset_name", "site_column", "targets", "phenotypes"),
        ),
    ),
}

ALL_LEVELS = ("config_file", "work_dir", "verbose", "debug")

TOLERATED = ("nprocs", "omp_nthreads", "mem_mb", "random_seed", "quiet")
"""Options that a script gives to every level alike: where one is not read, nothing that is written hangs on it."""


def is_read(level: str, name: str, section: str) -> bool:
    """Whether a level reads an option, given the section of the latter."""
    own = LEVELS[level]
    return name not in own.without and (section in own.sections or name in (*own.also, *ALL_LEVELS))


def describe_unread(settings: Settings, analyses: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each choice at group level without a reader: its analysis, or folds of its own."""
    for field in dataclasses.fields(settings):
        reader = field.metadata.get("reader")
        if reader and getattr(settings, field.name) != field.default and reader not in analyses:
            yield f"--{field.name.replace('_', '-')} is for --analyses {reader}, which was not asked for."
        given = field.name in OF_PREDICTION and getattr(settings, field.name) != field.default
        if given and analyses and UNPREDICTED.issuperset(analyses):
            yield f"--{field.name.replace('_', '-')} is for predictions, and {' and '.join(analyses)} has none."
    for name, instead in overridden(vars(settings)).items():
        yield f"--{name} is not used: {instead}."


OF_PREDICTION = ("kernel", "folds", "repeats", "inner_folds", "folds_file", "stratify", "penalties", "selection")
UNPREDICTED = frozenset({"fingerprinting", "qc_fc", "spectrum_geometry", "edges"})
"""Analyses without a prediction."""


def overridden(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Choices that are given and not used, with what takes their place."""
    instead = {}
    if brought := chosen.get("folds_file"):
        instead = dict.fromkeys(("folds", "repeats"), f"{Path(str(brought)).name} has the folds")
    elif chosen.get("sites") == HOLD_OUT:
        instead = {"folds": "every site is held out in turn"}
    return {name: words for name, words in instead.items() if chosen.get(name) is not None}
