"""Types of option values, read from the annotations of Settings."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from fcpower_bids.analyses import ALL, ANALYSES
from fcpower_bids.encoders import ENCODERS
from fcpower_bids.imaging.atlas.declarations import declared_atlases
from fcpower_bids.imaging.confounds.strategies import strategy_names
from fcpower_bids.settings import Settings
from fcpower_bids.transforms import TRANSFORMS

LISTED = ("analyses", "encoder", "strategy", "transforms")
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
        "representations": ("fc", "fc_power", "embedding"),
        "strategy": strategy_names(),
        "transforms": tuple(TRANSFORMS),
    }


def help_text(field: dataclasses.Field[Any]) -> str:
    """Return the text of an option, with the names that it takes."""
    text: str = field.metadata["text"]
    names = known_names().get(field.name, ()) if field.name in LISTED else ()
    return f"{text} ({' '.join(names)})" if names else text
