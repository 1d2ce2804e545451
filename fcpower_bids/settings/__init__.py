"""Every choice that a user can make, once: the levels that read it, the record of a run, and its command."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fcpower_bids.settings.options import CLEANING as CLEANING
from fcpower_bids.settings.options import METHOD_SECTIONS as METHOD_SECTIONS
from fcpower_bids.settings.options import Group, Inputs, Method, Pretraining, Run, plain_value

SECTIONS = {
    "selection": "Which recordings",
    "method": "Cleaning, parcels and connectomes",
    "encoder": "Embedding",
    "group": "Group level",
    "pretrain": "Pretraining",
    "resources": "Resources",
    "other": "Other",
}


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
        without=("input_type", "bids_database_dir", "use_plugin", "dry_run"),
    ),
    "pretrain": Level(
        "an encoder from a corpus, or from the recordings that were processed",
        sections=("pretrain",),
        also=(
            *("participant_label", "atlas", "alpha", "family_column", "nprocs", "random_seed", "quiet"),
            *("targets", "phenotypes", "derivatives"),
        ),
    ),
}

ALL_LEVELS = ("config_file", "work_dir", "verbose", "debug")

TOLERATED = ("nprocs", "omp_nthreads", "mem_mb", "random_seed", "quiet")
"""Options that a script gives to every level alike: where one is not read, nothing that is written hangs on it."""


@dataclass(frozen=True)
class Option:
    """A field of Settings that is an option, with its type."""

    part: str  # of Settings that has it
    name: str
    default: Any
    kind: type  # of one value: int, float, str, bool or Path
    is_list: bool
    section: str  # of the help
    text: str
    flags: tuple[str, ...]  # further spellings
    choices: tuple[str, ...] = ()  # allowed values; empty where any is
    question: bool | None = None  # whether another value makes another question; None outside of the group level
    in_file: bool = False  # set in the file of ``--config-file`` alone

    @property
    def flag(self) -> str:
        """Its spelling on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def levels(self) -> list[str]:
        """Levels that read it."""
        return [level for level in LEVELS if self.is_read(level)]

    def is_read(self, level: str) -> bool:
        """Whether a level reads it."""
        traits = LEVELS[level]
        named = self.name in (*traits.also, *ALL_LEVELS)
        return self.name not in traits.without and (self.section in traits.sections or named)

    def is_taken(self, level: str) -> bool:
        """Whether the command line of a level has it."""
        return not self.in_file and (self.name in TOLERATED or self.is_read(level))


PLACES = ("bids_dir", "output_dir", "level")
ONCE = ("dry_run", "reports_only", "replace")
"""Options that are about a single run, not about what it makes: no record has them."""


@cache
def options() -> Mapping[str, Option]:
    """Return the options by name."""
    known = {}
    parts = {name: kind for name, kind in typing.get_type_hints(Settings).items() if name not in PLACES}
    for part, fields in parts.items():
        hints = typing.get_type_hints(fields)
        for field in dataclasses.fields(fields):
            hint = hints[field.name]
            if isinstance(hint, types.UnionType):
                hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
            many = typing.get_origin(hint) is tuple
            kind = typing.get_args(hint)[0] if many else hint
            known[field.name] = Option(part, field.name, field.default, kind, many, **field.metadata)
    return known


@dataclass(frozen=True)
class Settings:
    """All choices of one run, in parts; immutable, equal by value, written to ``logs/settings.toml``."""

    bids_dir: Path
    output_dir: Path
    level: str
    inputs: Inputs = Inputs()
    method: Method = Method()
    group: Group = Group()
    pretraining: Pretraining = Pretraining()
    run: Run = Run()

    def __getitem__(self, name: str) -> Any:
        """Return an option by its name."""
        return getattr(getattr(self, options()[name].part), name)

    def changed(self, **choices: Any) -> Settings:
        """Return these settings with some options, or folders, by name."""
        whole = {name: choices.pop(name) for name in PLACES if name in choices}
        parts: dict[str, dict[str, Any]] = {}
        for name, value in choices.items():
            parts.setdefault(options()[name].part, {})[name] = value
        made = {part: dataclasses.replace(getattr(self, part), **values) for part, values in parts.items()}
        return dataclasses.replace(self, **whole, **made)

    @property
    def results(self) -> Path:
        """Folder of the tables of the group level."""
        return self.output_dir / "group" / self.group.name

    @property
    def results_page(self) -> Path:
        """Page of the cohort."""
        return self.output_dir / (f"group_{self.group.name}.html" if self.group.name else "group.html")

    @property
    def record(self) -> Path:
        """File of the choices of the participant level: with the logs, for it holds absolute paths."""
        return self.output_dir / "logs" / "settings.toml"

    @property
    def results_record(self) -> Path:
        """File of the choices of the group level."""
        named = f"_{self.group.name}" if self.group.name else ""
        return self.output_dir / "logs" / f"settings_group{named}.toml"

    @property
    def index(self) -> Path:
        """Page of all recordings."""
        return self.output_dir / "index.html"

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.run.work_dir or self.output_dir / "work"

    def as_dict(self) -> dict[str, Any]:
        """Return folders, level and options as plain JSON and TOML values; unset ones are left out."""
        given = {name: getattr(self, name) for name in PLACES} | {name: self[name] for name in options()}
        return {name: plain_value(value) for name, value in given.items() if value is not None}

    def of_sections(self, *sections: str) -> dict[str, Any]:
        """Return the values of some sections of the help by name, as plain values."""
        return {name: plain_value(self[name]) for name, option in options().items() if option.section in sections}

    def question(self) -> dict[str, Any]:
        """Return the options that make the question, as plain values."""
        return {name: plain_value(self[name]) for name, option in options().items() if option.question}

    def as_toml(self) -> str:
        """Return what the level uses as TOML; given back with ``--config-file`` it reproduces the run."""
        chosen = self.as_dict()
        used = {
            name: value
            for name, value in chosen.items()
            if name in PLACES or options()[name].is_read(self.level)
            if name not in ONCE
        }
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in used.items()]
        return "\n".join(lines) + "\n"
