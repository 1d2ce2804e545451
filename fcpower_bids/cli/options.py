"""Types of option values, read from the annotations of Settings."""

from __future__ import annotations

import argparse
import dataclasses
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from fcpower_bids.analyses import ALL, ANALYSES
from fcpower_bids.encoders import ENCODERS
from fcpower_bids.imaging.atlas.declarations import declared_atlases
from fcpower_bids.imaging.confounds.strategies import strategy_names
from fcpower_bids.predictors import PREDICTORS
from fcpower_bids.settings import Settings
from fcpower_bids.transforms import TRANSFORMS

LISTED = ("analyses", "encoder", "predictors", "strategy", "transforms")
"""Options whose names are shown in their help; atlases are too many."""


def option_fields() -> list[dataclasses.Field[Any]]:
    """Return the fields of Settings that are options."""
    return [field for field in dataclasses.fields(Settings) if "section" in field.metadata]


@cache
def field_types() -> Mapping[str, Any]:
    """Return the type of every field, resolved."""
    return typing.get_type_hints(Settings)


def is_list(name: str) -> bool:
    """Whether an option takes several values."""
    return typing.get_origin(field_types()[name]) is tuple


def or_choices(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the words that an option takes in the place of its value: the choices of another option."""
    other = field.metadata["or_choice"]
    return Settings.__dataclass_fields__[other].metadata["choices"] if other else ()


def scalar_type(name: str) -> Any:
    """Return the type of one value of an option: int, float, str, bool or Path."""
    hint = field_types()[name]
    if isinstance(hint, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return typing.get_args(hint)[0] if is_list(name) else hint


def known_names() -> Mapping[str, tuple[str, ...]]:
    """Return, for the options that take names of a registry or of the shipped data, what these names are."""
    return {
        "atlas": ("builtin", *declared_atlases()),
        "analyses": (ALL, *ANALYSES),
        "encoder": tuple(ENCODERS),
        "predictors": tuple(PREDICTORS),
        "representations": ("fc", "fc_power", "embedding"),
        "strategy": strategy_names(),
        "transforms": tuple(TRANSFORMS),
    }


def help_text(field: dataclasses.Field[Any]) -> str:
    """Return the text of an option, with the names that it takes."""
    text: str = field.metadata["text"]
    names = known_names().get(field.name, ()) if field.name in LISTED else ()
    return f"{text} ({' '.join(names)})" if names else text


ASKED = "_ARGCOMPLETE"
LINE = "COMP_LINE"


def answer_the_shell(find_parser: Callable[[Sequence[str]], argparse.ArgumentParser]) -> None:
    """Print what can follow on the command line and end the process, if it is the shell that asks; else do nothing."""
    if ASKED not in os.environ:
        return
    import argcomplete  # only a shell that completes needs it

    parser = find_parser(os.environ.get(LINE, "").split()[1:])
    argcomplete.autocomplete(parser, always_complete_options="long", exclude=_second_spellings(parser))


def with_names(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add to the options that take names of a registry, or of the shipped data, what these names are."""
    names = known_names()
    for action in parser._actions:
        if action.dest in names:
            action.completer = _completer(names[action.dest])  # type: ignore[attr-defined]
    return parser


def _completer(names: tuple[str, ...]) -> Callable[..., list[str]]:
    """Names that begin as the word does; files where none does, since most of these options also take a path."""

    def complete(prefix: str, **_: object) -> list[str]:
        from argcomplete.completers import FilesCompleter  # only a shell that completes needs it

        found = [name for name in names if name.startswith(prefix)]
        return found or list(FilesCompleter()(prefix))

    return complete


def _second_spellings(parser: argparse.ArgumentParser) -> list[str]:
    """``--fd_thresh`` is understood, but only ``--fd-thresh`` is offered."""
    return [flag for action in parser._actions for flag in action.option_strings if "_" in flag]
