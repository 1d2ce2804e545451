"""One array of numbers from a file of any usual format, with the names of its columns where the file has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.errors import DAMAGED_ARRAY, DatasetError

Read = tuple[NDArray[np.float64], tuple[str, ...]]
"""Values, and the names of the columns; no names where the file has none."""
PARCELS = "parcels"
"""Array of a ``.npz`` that names the columns of the others."""
SIGNATURE = b"\x89HDF\r\n\x1a\n"
MISSING = frozenset({"", "n/a", "na", "nan", "none", "null"})


def read_array(path: Path, key: str = "") -> Read:
    """Read one array. Raises DatasetError."""
    reader = next((reader for ending, reader in READERS.items() if path.name.lower().endswith(ending)), None)
    if reader is None:
        raise DatasetError(f"{path} has none of the endings that can be read: {' '.join(READERS)}. Save it as one.")
    if not path.is_file():
        raise DatasetError(f"{path} is not there. Correct the path, or fetch the file (datalad get).")
    try:
        values, names = reader(path, key)
    except MemoryError:
        raise DatasetError(f"{path} says of itself that it holds more than the memory. Save it again.") from None
    if not values.size:
        raise DatasetError(f"{path} holds no numbers. Take it out, or write it again.")
    return values, names


def _text(path: Path, key: str) -> Read:
    """A table of numbers with tabs, commas, semicolons or blanks; a header and a column of names are recognised."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read as text ({error}). Save it as UTF-8.") from None
    rows = [_cells(line) for line in lines if line.strip()]
    names: list[str] = []
    if rows and not all(_is_number(cell) for cell in rows[0]):
        names = [cell.lstrip("#").strip('"') for cell in rows.pop(0) if cell != "#"]
    first = int(bool(rows) and not _is_number(rows[0][0]))  # a column of names, such as "Node"
    width = {len(row) for row in rows}
    if len(width) > 1:
        raise DatasetError(f"{path} has rows of {min(width)} and of {max(width)} fields. Write it again.")
    if names and rows and len(names) == len(rows[0]):
        names = names[first:]
    try:
        values = np.array([[_number(cell) for cell in row[first:]] for row in rows], dtype=np.float64)
    except ValueError as error:
        raise DatasetError(f"{path} is not a table of numbers ({error}).") from None
    if names and values.ndim == 2 and len(names) != values.shape[1]:
        raise DatasetError(f"{path} has {len(names)} names over {values.shape[1]} columns. Write it again.")
    return values, tuple(names)


def _cells(line: str) -> list[str]:
    separator = next((mark for mark in ("\t", ";", ",") if mark in line), None)
    return [cell.strip() for cell in line.strip("\r\n").split(separator)] if separator else line.split()


def _is_number(cell: str) -> bool:
    return cell.lower() in MISSING or re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf", cell) is not None


def _number(cell: str) -> float:
    return float("nan") if cell.lower() in MISSING else float(cell)


def _npy(path: Path, key: str) -> Read:
    try:
        values = np.lib.format.open_memmap(path, mode="r")  # reads the header alone, which may promise anything
        if values.offset + values.nbytes != path.stat().st_size:
            raise ValueError("its size is not that which its header says")
        return np.array(values, dtype=np.float64), ()
    except (*DAMAGED_ARRAY, OSError, TypeError) as error:
        raise DatasetError(f"{path} cannot be read as an array of numbers ({error}). Save it again.") from None


def _npz(path: Path, key: str) -> Read:
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = tuple(map(str, archive[PARCELS])) if PARCELS in archive.files else ()
            return _pick({name: archive[name] for name in archive.files if not key or name == key}, key, path), names
    except (ValueError, OSError) as error:
        raise DatasetError(f"{path} cannot be read as arrays of numbers ({error}). Save it again.") from None


def _mat(path: Path, key: str) -> Read:
    from scipy.io import loadmat  # few have such files

    if _is_hdf5(path):  # version 7.3, with the axes of MATLAB
        values, names = _hdf5(path, key)
        return values.T, names
    try:  # scipy calls kinds of files and of cells that it does not read NotImplementedError
        content = loadmat(path, squeeze_me=True, struct_as_record=True)
    except (ValueError, OSError, TypeError, NotImplementedError) as error:
        raise DatasetError(f"{path} cannot be read as a MATLAB file ({error}). Save it again.") from None
    variables = {name: value for name, value in content.items() if not name.startswith("__")}
    return _pick(variables, key, path), ()


def _is_hdf5(path: Path) -> bool:
    """Whether a file has the signature of HDF5, before which MATLAB has a block of 512 bytes."""
    with path.open("rb") as stream:
        beginning = stream.read(520)
    return SIGNATURE in (beginning[:8], beginning[512:])


def _hdf5(path: Path, key: str) -> Read:
    try:
        import h5py  # an extra
    except ImportError as error:
        raise DatasetError(f"{path} is HDF5 and needs h5py: pip install 'fcpower_bids[matlab]'.") from error
    try:
        with h5py.File(path, "r") as file:
            found: dict[str, Any] = {}
            file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
            numeric = {n: np.asarray(d) for n, d in found.items() if d.dtype.kind in "fiu" and (not key or n == key)}
    except OSError as error:
        raise DatasetError(f"{path} cannot be read as HDF5 ({error}). Save it again.") from None
    return _pick(numeric, key, path), ()


def _pick(variables: Mapping[str, Any], key: str, path: Path) -> NDArray[np.float64]:
    """The variable that is asked for, or the only numeric one of more than one value."""
    numeric = {
        name: np.asarray(value)
        for name, value in variables.items()
        if np.asarray(value).dtype.kind in "fiu" and np.asarray(value).size > 1
    }
    if key and key not in numeric:
        raise DatasetError(f"{path} has no numeric variable '{key}'. It has: {', '.join(variables) or 'none'}.")
    if not key and len(numeric) != 1:
        raise DatasetError(f"{path} holds {', '.join(numeric) or 'nothing numeric'}: say which in the column 'key'.")
    return np.asarray(numeric[key or next(iter(numeric))], dtype=np.float64)


def _parcellated(path: Path, key: str) -> Read:
    from fcpower_bids.imaging.series.cifti import read_parcellated  # loads nibabel

    return read_parcellated(path)


READERS: dict[str, Callable[[Path, str], Read]] = {
    ".pconn.nii": _parcellated,
    ".ptseries.nii": _parcellated,
    ".tsv": _text,
    ".csv": _text,
    ".txt": _text,
    ".1d": _text,
    ".npy": _npy,
    ".npz": _npz,
    ".mat": _mat,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
}
