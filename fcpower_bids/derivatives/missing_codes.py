"""Numbers that mean "missing": -9999 and the like, and what the sidecar of a table declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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


def remove_codes(frame: pd.DataFrame, hints: Mapping[str, Any]) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    """Set codes for missing values to missing.

    A value is a code when the sidecar declares it (``MissingValues``, or a level described as missing, unknown,
    refused, ...), when it is infinite, or when it is one of `CODES` and either negative where the other values are not,
    or further outside their range than the range is wide, and at least twice as far from zero.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per person.
    hints : mapping
        The sidecar: column name to its description.

    Returns
    -------
    cleaned : pandas.DataFrame
    codes : list of (str, str)
        Person, and the columns with their codes.
    """
    cleaned = frame.copy()
    found: dict[str, list[str]] = {}
    for name in map(str, frame.columns):
        column = frame[name]
        is_code = _declared(column, hints.get(name)) | _obvious(column)
        for person in column.index[is_code]:
            found.setdefault(str(person), []).append(f"{name} = {_short(column[person])}")
        cleaned[name] = column.mask(is_code)
    return cleaned, [(person, f"{', '.join(texts)} read as missing") for person, texts in sorted(found.items())]


def _short(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _declared(column: pd.Series, hint: Any) -> NDArray[np.bool_]:
    codes = {_short(_number(code)) for code in _codes_of(hint)}
    if not codes:
        return np.zeros(len(column), dtype=bool)
    return np.array([not pd.isna(value) and _short(value) in codes for value in column], dtype=bool)


def _codes_of(hint: Any) -> Iterable[Any]:
    if not isinstance(hint, Mapping):
        return
    for key in HINT_KEYS:
        value = hint.get(key, [])
        yield from value if isinstance(value, list) else [value]
    levels = hint.get("Levels")
    if isinstance(levels, Mapping):
        yield from (code for code, text in levels.items() if MEANS_MISSING.search(_level_text(text)))


def _level_text(level: Any) -> str:
    return " ".join(map(str, level.values())) if isinstance(level, Mapping) else str(level)


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
    low, high = others.min(), others.max()
    width = high - low
    above = (values > high + width) & (values > 2 * high)
    below = (values < 0) & ((low >= 0) | ((values < low - width) & (values < 2 * low)))
    return (suspect & (above | below)) | np.isinf(values)
