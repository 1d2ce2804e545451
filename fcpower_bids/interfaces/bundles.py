"""Files of arrays and JSON between the nodes of a recording, which cannot run code; stored parcel means; choices."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, get_args, get_type_hints

import numpy as np

from fcpower_bids._version import __version__
from fcpower_bids.errors import DAMAGED_ARRAY
from fcpower_bids.imaging.atlas.loading import atlas_digest
from fcpower_bids.outputs.status import file_state
from fcpower_bids.records import Atlas, Cleaning, Slices
from fcpower_bids.settings import Participant
from fcpower_bids.store import parse_json

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


def is_sound(path: Path) -> bool:
    """Whether parcel means that were kept are there and whole: checksums, and a column and a coverage per parcel."""
    try:
        with zipfile.ZipFile(path) as file:
            whole = file.testzip() is None
        arrays, facts = load_bundle(path)
        n_parcels = len(facts["parcels"])
        return whole and arrays["series"].shape[1:] == arrays["coverage"].shape == (n_parcels,)
    except (OSError, zipfile.BadZipFile, zlib.error, LookupError, TypeError, RecursionError, *DAMAGED_ARRAY):
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


CONTENT = 3
"""Of these files; those of another number are not read."""


def means_path(folder: Path, bold: Path, mask: Path | None, atlas: Atlas) -> Path:
    """Where the parcel means of a recording are kept: named by series, mask, atlas content and version."""
    states = [(path.name, file_state(path)) for path in (bold, mask) if path is not None]
    key = hashlib.sha256(repr((__version__, CONTENT, states, atlas_digest(atlas))).encode()).hexdigest()[:16]
    return folder / f"{_stem(bold, atlas)}_{key}.npz"


def _stem(bold: Path, atlas: Atlas) -> str:
    """Return names that a person recognises, short enough for a file's."""
    return f"{bold.name.partition('.')[0][:120]}_{atlas.name[:80]}"


def remove_outdated(path: Path, bold: Path, atlas: Atlas) -> None:
    """Remove what the same file gave when it was another; a file of the same name elsewhere is left alone."""
    for other in path.parent.glob(f"{glob.escape(_stem(bold, atlas))}_{'?' * 16}.npz"):
        if other != path and is_sound(other) and str(load_bundle(other)[1]["bold"]) == str(bold):
            other.unlink(missing_ok=True)


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
