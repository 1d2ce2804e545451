"""What passes between the steps of a recording, as one file of arrays and JSON; nothing in it can run code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.records import Cleaning, ParcelSeries

_META = "json"


def save_bundle(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Path:
    """Write named arrays and JSON-ready facts into one uncompressed file."""
    np.savez(path, **{_META: np.array(json.dumps(facts))}, **arrays)  # type: ignore[arg-type]
    return path


def load_bundle(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what :func:`save_bundle` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != _META}
        return arrays, json.loads(str(file[_META]))


def save_series(path: Path, cleaning: Cleaning, series: Sequence[ParcelSeries]) -> Path:
    """Write the cleaning of a recording and its series under every atlas."""
    arrays: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {}
    parts: list[tuple[str, Cleaning | ParcelSeries]] = [("cleaning", cleaning)]
    parts += [(str(number), one) for number, one in enumerate(series)]
    for prefix, record in parts:
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            (arrays if isinstance(value, np.ndarray) else facts)[f"{prefix}/{field.name}"] = value
    return save_bundle(path, arrays, facts)


def load_series(path: Path) -> tuple[Cleaning, list[ParcelSeries]]:
    """Read what :func:`save_series` wrote."""
    arrays, facts = load_bundle(path)
    fields: dict[str, dict[str, Any]] = {}
    for key, value in {**arrays, **facts}.items():
        prefix, _, name = key.partition("/")
        fields.setdefault(prefix, {})[name] = tuple(value) if isinstance(value, list) else value
    cleaning = Cleaning(**fields.pop("cleaning"))
    return cleaning, [ParcelSeries(**fields[prefix]) for prefix in sorted(fields, key=int)]
