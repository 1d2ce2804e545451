"""What kind of value each option takes, read from the types of Settings."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from fcpower_bids.settings import Settings


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


def scalar_type(name: str) -> Any:
    """Return the type of one value of an option: int, float, str, bool or Path."""
    hint = field_types()[name]
    if isinstance(hint, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return typing.get_args(hint)[0] if is_list(name) else hint
