"""Decimals as the nearest float, whatever the version of pandas that reads them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

NEAREST_BY_ITSELF = (3, 1)
EXACT: dict[str, Any] = (
    {"float_precision": "round_trip"} if tuple(map(int, version("pandas").split(".")[:2])) < NEAREST_BY_ITSELF else {}
)
"""Option that makes `pandas.read_csv` read a decimal as the nearest float; since 3.1 it is the default."""
