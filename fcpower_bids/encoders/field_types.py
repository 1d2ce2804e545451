"""Types of the fields of a configuration: a dataclass accepts any value from a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any


def _whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _range(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_finite, value)) and value[0] <= value[1]


def _names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)


KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_whole, "a whole number above 0"),
    "float": (_finite, "a finite number"),
    "bool": (lambda value: isinstance(value, (bool, int)) and value in (0, 1), "true or false"),
    "str": (lambda value: isinstance(value, str), "text"),
    "tuple[str, ...]": (_names, "a list of names"),
    "int | None": (lambda value: value is None or _whole(value, 0), "a whole number"),
    "float | None": (lambda value: value is None or _finite(value), "a finite number"),
    "tuple[float, float] | None": (lambda value: value is None or _range(value), "two finite numbers, the lower first"),
}
"""By annotation: whether a value is one, and what to call it."""


def wrong_types(kind: type, values: Mapping[str, Any]) -> list[str]:
    """Say of every value that a field of a dataclass cannot hold what it must be."""
    problems = []
    for field in fields(kind):
        fits, words = KINDS[str(field.type)]
        if field.name in values and not fits(values[field.name]):
            problems.append(f"{field.name} must be {words}, not {_short(values[field.name])}")
    return problems


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
