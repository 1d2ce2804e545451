"""The edges of all connectomes on disk, a row per file, known by name, size and time (`fcpower_bids.ondisk`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray

from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.core.connectome.edges import edge_count, rebuild_connectome, vectorise_edges
from fcpower_bids.errors import DatasetError, Unfit
from fcpower_bids.locks import lock
from fcpower_bids.ondisk import Facts, GrowingRows, RowsOnDisk
from fcpower_bids.outputs.tables import MISSING, column_names, read_array, read_matrix, refuse_pipe
from fcpower_bids.progress import track
from fcpower_bids.settings import Assembly
from fcpower_bids.store import is_inner

WORTH_PROCESSES = 100
"""Files to parse from which on starting other processes pays."""
ROUNDING = 1e-8
"""Largest asymmetry of a matrix of another program, or excess over 1."""
ADDING = "adding"
"""Lock of the run that reads connectomes into the folder."""


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of n connectomes of P parcels."""

    parcels: tuple[str, ...]  # names of the P parcels
    array: RowsOnDisk  # (n, P (P - 1) / 2): Pearson correlations; NaN where a parcel is not covered
    missing: NDArray[np.bool_]  # (n, P): parcels that are not covered
    digests: tuple[str, ...]  # of length n: equal for connectomes that are equal to the bit
    names: tuple[str, ...]  # of length n: of their rows among all that are on disk
    # files that were asked for and are no connectomes, and why; they are not among the n
    unreadable: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Row:
    """One connectome as it was read."""

    edges: np.ndarray
    parcels: tuple[str, ...]
    missing: list[int]


def read_edges(paths: Sequence[Path], folder: Path, settings: Assembly) -> Edges:
    """Read connectomes, from the cache where it has them. Raises DatasetError."""
    states = {path.relative_to(settings.output_dir).as_posix(): _state(path) for path in paths}
    stored = GrowingRows(folder)
    unreadable: dict[str, str] = {}
    if _unknown(stored, states):
        with lock(folder / ADDING):
            stored = GrowingRows(folder)  # another run may have added them meanwhile
            unreadable = _add(stored, settings, states)
        states = {name: state for name, state in states.items() if name not in unreadable}
        stored = GrowingRows(folder)
        if not states:
            raise DatasetError(next(iter(unreadable.values())))
        if _unknown(stored, states):
            raise DatasetError(f"The cache {folder} cannot be read back. Check the disk, or name another --work-dir.")
    entries = [stored.rows[name] for name in states]
    missing = np.zeros((len(entries), len(stored.about["parcels"])), dtype=bool)
    for number, entry in enumerate(entries):
        missing[number, entry["missing"]] = True
    return Edges(
        tuple(stored.about["parcels"]),
        stored.view(list(states)),
        missing,
        tuple(entry["digest"] for entry in entries),
        tuple(states),
        {settings.output_dir / name: reason for name, reason in unreadable.items()},
    )


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _unknown(stored: GrowingRows, states: dict[str, list[int]]) -> list[str]:
    """Files whose rows are not there, or are of another state of the file."""
    rows = {name: row for name, row in stored.rows.items() if {"missing", "digest"} <= row.keys()}
    return [name for name, state in states.items() if rows.get(name, {}).get("state") != state]


def _add(stored: GrowingRows, settings: Assembly, states: dict[str, list[int]]) -> dict[str, str]:
    """Add the rows of all files that are new or have changed; return those that are no connectomes, and why."""
    unreadable: dict[str, str] = {}
    unknown = _unknown(stored, states)
    parcels = _first_parcels(unknown, settings)
    if parcels and parcels != stored.about.get("parcels"):
        unknown = list(states)
        parcels = _first_parcels(unknown, settings)
        stored.clear({"parcels": parcels}, edge_count(len(parcels)))
    stored.discard([name for name in stored.rows if name not in states and _is_gone(name, settings)])

    def rows() -> Iterator[tuple[str, Facts, np.ndarray]]:
        found = _parse([settings.output_dir / name for name in unknown], settings)
        for name, row in zip(unknown, found, strict=True):
            if isinstance(row, str):
                unreadable[name] = row
                continue
            _check_parcels(name, row.parcels, parcels)
            digest = hashlib.blake2b(row.edges.data, digest_size=16).hexdigest()
            yield name, {"state": states[name], "missing": row.missing, "digest": digest}, row.edges

    stored.add(rows())
    return unreadable


def _first_parcels(names: Sequence[str], settings: Assembly) -> list[str]:
    """Parcels of the first file with a whole header; none where there is none."""
    for path in (path for name in names if (path := settings.output_dir / name).is_file()):
        with suppress(DatasetError):  # which the reading of that file will say
            if parcels := column_names(path):
                return parcels
    return []


def _is_gone(name: str, settings: Assembly) -> bool:
    return not is_inner(name) or (name.endswith((".tsv", ".npy")) and not (settings.output_dir / name).is_file())


def _parse(paths: list[Path], settings: Assembly) -> Iterator[_Row | str]:
    """Read tables in their order, in several processes where there are many, with a bar where it takes long."""
    tables = sum(not edges_beside(path).is_file() for path in paths)
    processes = 1 if tables < WORTH_PROCESSES else settings.nprocs or cpu_count()
    read = Parallel(n_jobs=processes, return_as="generator", pre_dispatch="2*n_jobs")(map(delayed(_try_read), paths))
    yield from track(read, "connectomes", settings, len(paths))


def _try_read(path: Path) -> _Row | str:
    """Return a connectome, or why the file is none."""
    try:
        return _read(path)
    except DatasetError as error:
        return str(error)


def _read(path: Path) -> _Row:
    refuse_pipe(path)
    array = edges_beside(path)
    if array.is_file():  # the numbers of the table, which takes ten times as long to read
        return _row_of_edges(path, array)
    matrix, parcels = read_matrix(path)
    return _row_of(path, matrix, parcels)


def _row_of(path: Path, matrix: np.ndarray, parcels: Sequence[str]) -> _Row:
    if matrix.shape != (len(parcels), len(parcels)):
        raise _unusable(path, f"It has {len(matrix)} rows for {len(parcels)} parcels")
    try:
        covered = covered_parcels(matrix)
    except Unfit as error:
        raise _unusable(path, str(error)) from error
    known = matrix[np.ix_(covered, covered)]
    if np.abs(known - known.T).max() > ROUNDING or np.abs(known).max() > 1 + ROUNDING:
        raise _unusable(path, "It is not symmetric, or has values outside -1 to 1")
    return _Row(vectorise_edges(matrix, weighted=False), tuple(parcels), np.flatnonzero(~covered).tolist())


def _row_of_edges(path: Path, array: Path) -> _Row:
    """Take the array in the place of the table, unless one of them has changed since."""
    edges = read_array(array)
    parcels, first = (column_names(path), edges[:0]) if array == path else _first_row(path)
    if edges.shape != (edge_count(len(parcels)),):
        raise _unusable(path, f"{array.name} has {edges.size} edges for {len(parcels)} parcels")
    if array != path and not _same(edges[: len(parcels) - 1], first[1:]):
        raise _unusable(path, f"{array.name} is not of it")
    if array.stat().st_mtime_ns < path.stat().st_mtime_ns:  # a copy may be so, too
        row = _row_of(path, *read_matrix(path))
        if not _same(edges, row.edges):
            raise _unusable(path, f"{array.name} is not of it")
        return row
    if np.isfinite(edges).all() and np.abs(edges).max(initial=0) <= 1 + ROUNDING:
        return _Row(edges, tuple(parcels), [])
    return _row_of(path, rebuild_connectome(edges), parcels)


def _first_row(path: Path) -> tuple[list[str], np.ndarray]:
    """Read the parcels and the first row of a table."""
    with path.open(encoding="utf-8") as file:
        names, row = (file.readline().rstrip("\n").split("\t")[1:] for _ in range(2))
    try:
        return names, np.array([float(cell.replace(MISSING, "nan")) for cell in row])
    except ValueError:
        return names, np.empty(0)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=ROUNDING, equal_nan=True)


def edges_beside(path: Path) -> Path:
    """Return the path of the edges of a connectome, in the folder of its table."""
    return path.with_suffix(".npy")


def _unusable(path: Path, reason: str) -> DatasetError:
    return DatasetError(
        f"{path} is no connectome. {reason.rstrip('.')}. Remove it and run the participant level again."
    )


def _check_parcels(name: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    if list(found) == list(wanted):
        return
    other = [parcel for parcel in found if parcel not in set(wanted)][:3]
    how = f"the others lack {', '.join(other)}" if other else "they are not the same in the same order"
    raise DatasetError(
        f"The parcels differ between people: {name} has {len(found)}, the others {len(wanted)}, and {how}. "
        "Run the participant level for all with one atlas."
    )
