"""Files of arrays and JSON between the nodes of a recording; nothing in them can run code."""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from fcpower_bids.records import Cleaning, Slices

_META = "json"
SLICES = "slices_"
"""Before the names of the arrays of `Slices` in the bundle of the parcels."""


def save_bundle(path: Path | IO[bytes], arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> str:
    """Write named arrays and JSON-ready facts into one uncompressed file, and return its path."""
    np.savez(path, **{_META: np.array(json.dumps(facts))}, **arrays)  # type: ignore[arg-type]
    return str(path)


def load_bundle(path: Path | str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what :func:`save_bundle` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != _META}
        return arrays, json.loads(str(file[_META]))


def is_sound(path: Path) -> bool:
    """Whether a bundle that was kept is there and whole: every array has the checksum that it was written with."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError):
        return False


def slices_of(arrays: Mapping[str, np.ndarray]) -> Slices | None:
    """Return the slices among the arrays of a bundle, if there are any."""
    if f"{SLICES}mean" not in arrays:
        return None
    return Slices(**{name: arrays[SLICES + name] for name in Slices._fields})


def save_cleaning(path: Path, cleaning: Cleaning, choices: Mapping[str, Any]) -> str:
    """Write what was done to the volumes of a recording, and the choices that it was done with."""
    fields = {field.name: getattr(cleaning, field.name) for field in dataclasses.fields(cleaning)}
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    facts = {name: value for name, value in fields.items() if name not in arrays}
    return save_bundle(path, arrays, {"cleaning": facts, "choices": dict(choices)})


def load_cleaning(path: Path | str) -> tuple[Cleaning, dict[str, Any]]:
    """Read what :func:`save_cleaning` wrote: the cleaning and its choices."""
    arrays, facts = load_bundle(path)
    fields: dict[str, Any] = {**arrays}
    for name, value in facts["cleaning"].items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    return Cleaning(**fields), facts["choices"]
