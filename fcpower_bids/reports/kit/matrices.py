"""Matrices for the page: every value at the digits that are shown, in two bytes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

MISSING = -32768
MOST_DIGITS = 4


def encode_matrix(title: str, values: np.ndarray, order: np.ndarray) -> dict[str, Any]:
    """Pack the lower half and the diagonal of a symmetric matrix for the script of the page.

    Each value is stored as the integer that its decimals make, so what the page shows is the number in the table
    rounded to ``digits`` decimals, and nothing else.

    Shapes and units: values (P, P), order (P,).
    """
    values = np.asarray(values, dtype=np.float64)[np.ix_(order, order)]
    rows, columns = np.tril_indices(len(values))
    beside = np.abs(values[rows[rows != columns], columns[rows != columns]])
    beside = beside[np.isfinite(beside)]
    largest = float(np.nanmax(np.abs(values))) if np.isfinite(values).any() else 1.0
    digits = next((d for d in range(MOST_DIGITS, 0, -1) if largest * 10**d < 32767), 0)
    whole = np.clip(np.rint(values[rows, columns] * 10.0**digits), -32767, 32767)
    packed = np.where(np.isfinite(whole), whole, MISSING).astype("<i2")
    return {
        "title": title,
        "digits": digits,
        "limit": float(np.percentile(beside, 99)) if beside.size else largest,
        "data": base64.b64encode(packed.tobytes()).decode("ascii"),
    }


def network_spans(networks: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return name, first and one past the last place of each run of equal networks."""
    spans, start = [], 0
    for name, members in groupby(networks):
        stop = start + len(list(members))
        spans.append((name, start, stop))
        start = stop
    return spans
