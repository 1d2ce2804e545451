"""Codes for missing values in tables of people: named, declared in their JSON, or apart from all that is measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CODES = frozenset(
    [int(digit * length) for digit in "789" for length in (2, 3, 4, 5)]
    + [-int(digit * length) for digit in "789" for length in (1, 2, 3, 4, 5)]
)
"""99, 999, 9999, 99999, the same of 7 and 8, their negatives, and -7, -8, -9."""
MEANS_MISSING = re.compile(
    r"\b(missing|unknown|refused?|declined|not (available|applicable|known|done|assessed|collected|administered)|"
    r"no (data|answer|response)|don'?t know|do not know|n/?a)\b",
    re.IGNORECASE,
)
HINT_KEYS = ("MissingValues", "MissingValue", "MissingValueCodes")


def remove_codes(
    frame: pd.DataFrame, hints: Mapping[str, Any], named: Sequence[str] = (), guess: bool = True
) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    """Set codes for missing values to missing: named, declared, infinite, or `CODES` that stand apart (`guess`)."""
    cleaned = frame.copy()
    found: dict[str, list[str]] = {}
    for name in map(str, frame.columns):
        column = frame[name]
        pairs = (code.rpartition("=") for code in named)  # CODE, or COLUMN=CODE
        listed = [*_codes_of(hints.get(name)), *(code for of, _, code in pairs if of in ("", name))]
        codes = {str(code) for code in listed} | {shorten(_number(code)) for code in listed}
        declared = [bool(codes) and not pd.isna(value) and shorten(value) in codes for value in column]
        is_code = np.array(declared, dtype=bool) | (_obvious(column) if guess else False)
        for person in column.index[is_code]:
            found.setdefault(str(person), []).append(f"{name} = {shorten(column[person])}")
        cleaned[name] = column.mask(is_code)
    return as_numbers(cleaned) if named else cleaned, [
        (person, f"{', '.join(texts)} read as missing") for person, texts in sorted(found.items())
    ]


def shorten(value: Any) -> str:
    """Text of a value, whole numbers without decimals."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers where a column has nothing else; identifiers such as ``family_id`` stay text."""
    for name in frame.columns:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if not name.endswith("_id") and numbers.notna().sum() == frame[name].notna().sum():
            frame[name] = numbers.astype(float)
    return frame


def _codes_of(hint: Any) -> Iterable[Any]:
    if not isinstance(hint, Mapping):
        return
    for key in HINT_KEYS:
        value = hint.get(key, [])
        yield from value if isinstance(value, list) else [value]
    levels = hint.get("Levels")
    if isinstance(levels, Mapping):
        for code, level in levels.items():
            text = " ".join(map(str, level.values())) if isinstance(level, Mapping) else str(level)
            if MEANS_MISSING.search(text):
                yield code


def _number(code: Any) -> Any:
    try:
        return float(code)
    except (TypeError, ValueError):
        return code


def _obvious(column: pd.Series) -> NDArray[np.bool_]:
    if column.dtype != np.float64:
        return np.zeros(len(column), dtype=bool)
    values = column.to_numpy()
    suspect = np.isin(values, list(CODES))
    others = values[np.isfinite(values) & ~suspect]
    if not len(others):
        return suspect | np.isinf(values)
    low, high = float(others.min()), float(others.max())
    width = high - low
    with np.errstate(over="ignore"):  # of values that no measurement is, which are named where they are used
        above = (values > high + width) & (values > 2 * high)
        below = (values < 0) & ((low >= 0) | ((values < low - width) & (values < 2 * low)))
    return (suspect & (above | below)) | np.isinf(values)
