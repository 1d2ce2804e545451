"""The edges of all connectomes in one array on disk, so that the tables are parsed once.

``edges-<key>.npy`` has one row per file; ``index.json`` says which file each row was read from, with its size and
time. A file that has changed is read again, the rows of the others are copied; a cache that is damaged is made anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from tqdm import tqdm

from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.core.connectome.edges import edge_count, vectorise_edges
from fcpower_bids.errors import DatasetError, Unfit
from fcpower_bids.outputs.tables import read_json, read_matrix, write_json
from fcpower_bids.settings import Assembly, Messages
from fcpower_bids.store import atomic

T = TypeVar("T")
FORMAT = 1
WORTH_PROCESSES = 100
"""Files to parse from which on starting other processes pays."""
SECONDS_BEFORE_BAR, SECONDS_BETWEEN_LINES = 5, 30
ROUNDING = 1e-8
"""What other programs may leave between the two halves of a matrix, or above 1."""


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of n connectomes of P parcels.

    Attributes
    ----------
    parcels : tuple of str
        Names of the P parcels.
    array : memory map, shape (m, P (P - 1) / 2)
        Pearson correlations of all cached connectomes; NaN where a parcel is not covered.
    rows : tuple of int, length n
        Row of each connectome in ``array``.
    missing : ndarray of bool, shape (n, P)
        Parcels that are not covered.
    digests : tuple of str, length n
        Equal for connectomes that are equal to the bit.
    """

    parcels: tuple[str, ...]
    array: np.ndarray
    rows: tuple[int, ...]
    missing: NDArray[np.bool_]
    digests: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Row:
    """One connectome as it was read."""

    edges: np.ndarray
    parcels: tuple[str, ...]
    missing: list[int]


def read_edges(paths: Sequence[Path], folder: Path, settings: Assembly) -> Edges:
    """Read connectomes, from the cache where it has them.

    Parameters
    ----------
    paths : sequence of Path
        FC files below the output folder.
    folder : Path
        Where the cache of these connectomes is, or will be.
    settings : Assembly
        Output folder, number of processes, whether to be quiet.

    Raises
    ------
    DatasetError
        If a file is not a connectome, or their parcels differ.
    """
    states = {path.relative_to(settings.output_dir).as_posix(): _state(path) for path in paths}
    index, array = _load(folder)
    known = {name for name, state in states.items() if index["files"].get(name, {}).get("state") == state}
    if len(known) < len(states):
        _write(folder, settings, states, (index, array, known))
        index, array = _load(folder)
    if array is None:
        raise DatasetError(f"The cache {folder} cannot be read back. Check the disk, or name another --work-dir.")
    entries = [index["files"][name] for name in states]
    missing = np.zeros((len(entries), len(index["parcels"])), dtype=bool)
    for number, entry in enumerate(entries):
        missing[number, entry["missing"]] = True
    return Edges(
        tuple(index["parcels"]),
        array,
        tuple(entry["row"] for entry in entries),
        missing,
        tuple(entry["digest"] for entry in entries),
    )


def write_rows(path: Path, shape: tuple[int, int], rows: Iterable[np.ndarray]) -> None:
    """Write an array of float64 row by row, so that it never has to be in memory."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
        for row in rows:
            file.write(np.ascontiguousarray(row, dtype="<f8").tobytes())


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _load(folder: Path) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return index and array; nothing where they are missing, damaged or of another format."""
    try:
        index = read_json(folder / "index.json")
        array = np.load(folder / str(index["array"]), mmap_mode="r", allow_pickle=False)
        rows = {entry["row"] for entry in index["files"].values()}
        sound = index["format"] == FORMAT and rows == set(range(len(array)))
        if sound and array.shape[1] == edge_count(len(index["parcels"])):
            return index, array
    except (DatasetError, OSError, ValueError, LookupError, TypeError, AttributeError):
        pass
    return {"files": {}}, None


def _write(
    folder: Path,
    settings: Assembly,
    states: dict[str, list[int]],
    old: tuple[dict[str, Any], np.ndarray | None, set[str]],
) -> None:
    """Write the array of all wanted files under a new name, then the index, then remove arrays of before."""
    index, array, known = old
    if known and array is not None:
        first = next(name for name in states if name not in known)
        same = _parcels_of(settings.output_dir / first) == index["parcels"]
        known = known if same else set()
    fresh = _parse([settings.output_dir / name for name in states if name not in known], settings)
    parcels = list(index["parcels"] if known else _parcels_of(settings.output_dir / next(iter(states))))
    files: dict[str, dict[str, Any]] = {}

    def rows() -> Iterator[np.ndarray]:
        for number, (name, state) in enumerate(states.items()):
            if name in known and array is not None:
                files[name] = {**index["files"][name], "row": number}
                yield read_row(array, index["files"][name]["row"])
            else:
                row = next(fresh)
                _check_parcels(name, row.parcels, parcels)
                digest = hashlib.blake2b(row.edges.tobytes(), digest_size=16).hexdigest()
                files[name] = {"row": number, "state": state, "missing": row.missing, "digest": digest}
                yield row.edges

    key = hashlib.blake2b(json.dumps([FORMAT, states]).encode(), digest_size=8).hexdigest()
    target = folder / f"edges-{key}.npy"
    write_rows(target, (len(states), edge_count(len(parcels))), rows())
    write_json(folder / "index.json", {"format": FORMAT, "array": target.name, "parcels": parcels, "files": files})
    for stale in folder.glob("*.npy"):
        if stale != target:
            stale.unlink(missing_ok=True)


def _parse(paths: list[Path], settings: Assembly) -> Iterator[_Row]:
    """Read tables in their order, in several processes where there are many, with a bar where it takes long."""
    processes = 1 if settings.low_mem or len(paths) < WORTH_PROCESSES else settings.nprocs or cpu_count()
    read = Parallel(n_jobs=processes, return_as="generator", pre_dispatch="2*n_jobs")(map(delayed(_read), paths))
    yield from track(read, len(paths), "connectomes", settings)


def track(items: Iterable[T], total: int, what: str, settings: Messages) -> Iterator[T]:
    """Yield the items; a bar appears where that takes more than a few seconds, a line now and then in a log."""
    bar = tqdm(
        items,
        total=total,
        desc=what,
        delay=SECONDS_BEFORE_BAR,
        mininterval=0.1 if sys.stderr.isatty() else SECONDS_BETWEEN_LINES,
        disable=settings.quiet,
        file=sys.stderr,
    )
    return iter(bar)


def read_row(array: np.ndarray, row: int) -> NDArray[np.float64]:
    """Read one row of a memory map from its file: pages that were mapped would add up to the size of the whole."""
    if not isinstance(array, np.memmap) or array.filename is None:
        return array[row]
    size = array.shape[1]
    return np.fromfile(array.filename, dtype=array.dtype, count=size, offset=array.offset + row * size * array.itemsize)


def _read(path: Path) -> _Row:
    matrix, parcels = read_matrix(path)
    try:
        covered = covered_parcels(matrix)
    except Unfit as error:
        raise _unusable(path, str(error)) from error
    known = matrix[np.ix_(covered, covered)]
    if np.abs(known - known.T).max() > ROUNDING or np.abs(known).max() > 1 + ROUNDING:
        raise _unusable(path, "It is not symmetric, or has values outside -1 to 1")
    return _Row(vectorise_edges(matrix, weighted=False), tuple(parcels), np.flatnonzero(~covered).tolist())


def _unusable(path: Path, reason: str) -> DatasetError:
    return DatasetError(
        f"{path} is no connectome. {reason.rstrip('.')}. Remove it and run the participant level again."
    )


def _parcels_of(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:
        return file.readline().rstrip("\n").split("\t")[1:]


def _check_parcels(name: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    if list(found) == list(wanted):
        return
    other = [parcel for parcel in found if parcel not in set(wanted)][:3]
    how = f"the others lack {', '.join(other)}" if other else "they are not the same in the same order"
    raise DatasetError(
        f"The parcels differ between people: {name} has {len(found)}, the others {len(wanted)}, and {how}. "
        "Run the participant level for all with one atlas."
    )
