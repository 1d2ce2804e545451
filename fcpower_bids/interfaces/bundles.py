"""Files of arrays and JSON between the nodes of a recording, which cannot run code; choices."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from fcpower_bids.records import Cleaning, Slices
from fcpower_bids.settings import Participant
from fcpower_bids.store import parse_json

_META = "json"
SLICES = "slices_"
"""Before the names of the arrays of `Slices` in the bundle of the parcels."""


def save_bundle(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> str:
    """Write named arrays and JSON-ready facts into one uncompressed file, and return its path."""
    np.savez(path, **{_META: np.array(json.dumps(facts))}, **arrays)  # type: ignore[arg-type]
    return str(path)


def load_bundle(path: Path | str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what :func:`save_bundle` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != _META}
        return arrays, parse_json(str(file[_META]))


def load_values(path: Path | str, name: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Read one array of a bundle and its facts, or a plain ``.npy`` or ``.tsv`` of anybody's. Raises DatasetError."""
    source = Path(path)
    if source.suffix == ".npz":
        arrays, facts = load_bundle(source)
        return arrays[name], facts
    if source.suffix == ".npy" and not source.with_suffix(".json").is_file():
        values = np.load(source, allow_pickle=False).astype(np.float64)
        names = [f"parcel{number:03d}" for number in range(1, values.shape[-1] + 1)]
    else:
        from fcpower_bids.outputs.tables import read_series  # bundles need no pandas

        values, names = read_series(source)
    return values, {"atlas": source.name.partition(".")[0], "parcels": names}


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


def choices_of(settings: Participant) -> dict[str, Any]:
    """Return what changes the numbers of a recording, as far as it is not the default: text, numbers, lists."""
    chosen, plain = settings.method_only(), settings.method_only().as_dict()
    return {
        field.name: plain[field.name]
        for field in dataclasses.fields(chosen)
        if field.name in plain and field.default != getattr(chosen, field.name)
    }


def settings_of(choices: Mapping[str, Any]) -> Participant:
    """Return these choices and everything else at its default."""
    hints = get_type_hints(Participant)
    values = {name: _typed(value, hints[name]) for name, value in choices.items()}
    return Participant(**values)


def _typed(value: Any, hint: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_typed(item, get_args(hint)[0]) for item in value)
    return Path(value) if isinstance(value, str) and (hint is Path or Path in get_args(hint)) else value
