"""The edges of all connectomes of a cohort, as they are in the files."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray

from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.core.connectome.edges import edge_count, rebuild_connectome, rebuild_matrix, vectorise_edges
from fcpower_bids.errors import DatasetError, Unfit, UsageError
from fcpower_bids.outputs.tables import MISSING, column_names, read_array, read_matrix, refuse_pipe
from fcpower_bids.progress import track
from fcpower_bids.resources import given_bytes, machine_bytes
from fcpower_bids.settings import Assembly

WORTH_PROCESSES = 100
"""Files to parse from which on starting other processes pays."""
MOST_LACKING = 0.5
"""Share of the parcels of all that a connectome must have to be of the same parcellation."""
PLACE = re.compile(r"parcel\d+")
"""Names that were given by place: which parcel is lacking cannot be told by them."""
ROUNDING = 1e-8
"""Largest asymmetry of a matrix of another program, or excess over 1."""


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of n connectomes of P parcels."""

    parcels: tuple[str, ...]  # names of the P parcels
    # (n or more, P (P - 1) / 2): Pearson correlations, NaN where a parcel is not covered; rows after the n are void
    array: NDArray[np.floating]
    missing: NDArray[np.bool_]  # (n, P): parcels that are not covered
    digests: tuple[str, ...]  # of length n: equal for connectomes that are equal to the bit
    # files that were asked for and are no connectomes, and why; they are not among the n
    unreadable: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Row:
    """One connectome as it was read."""

    edges: np.ndarray
    parcels: tuple[str, ...]
    missing: list[int]


def read_edges(paths: Sequence[Path], settings: Assembly) -> Edges:
    """Read connectomes. Raises DatasetError, UsageError: they need more than the memory that is given."""
    unreadable: dict[Path, str] = {}
    parcels = parcels_of_all(dict(zip(paths, map(_names, paths), strict=True)))
    missing: list[list[int]] = []
    digests: list[str] = []
    array: NDArray[np.floating] = np.empty((0, 0))
    tables = sum(not edges_beside(path).is_file() for path in paths)
    processes = 1 if tables < WORTH_PROCESSES else settings.nprocs or cpu_count()
    read = Parallel(n_jobs=processes, return_as="generator", pre_dispatch="2*n_jobs")(map(delayed(_try_read), paths))
    for path, row in zip(paths, track(read, "connectomes", settings, len(paths)), strict=True):
        if isinstance(row, str):
            unreadable[path] = row
            continue
        if not digests:
            shape = len(paths), edge_count(len(parcels))
            if (needed := 8 * shape[0] * shape[1]) > min(given_bytes(), machine_bytes()):
                raise UsageError(
                    f"{shape[0]:,} connectomes of {len(parcels)} parcels need {needed / 1e9:.2g} GB of memory: give "
                    "more (--mem-mb, or another machine), or choose an atlas of fewer parcels."
                )
            array = np.empty(shape)
        row = _spread(row, parcels)
        array[len(digests)] = row.edges
        missing.append(row.missing)
        digests.append(hashlib.blake2b(row.edges.data, digest_size=16).hexdigest())
    if not digests:
        raise DatasetError(next(iter(unreadable.values())))
    uncovered = np.zeros((len(digests), len(parcels)), dtype=bool)
    for number, each in enumerate(missing):
        uncovered[number, each] = True
    return Edges(parcels, array, uncovered, tuple(digests), unreadable)


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


def _names(path: Path) -> tuple[str, ...]:
    """Parcels of a connectome by its header; nothing where that cannot be read, which is said when it is parsed."""
    try:
        return tuple(column_names(path))
    except (DatasetError, OSError):
        return ()


def parcels_of_all(named: Mapping[Path, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the longest list of parcels; what another lacks of it has no value there.

    Raises DatasetError: another has names or an order of its own, less than `MOST_LACKING` of them, or names that are
    places.
    """
    counts = Counter(filter(None, named.values()))
    longest = max(counts, key=lambda names: (len(names), counts[names]), default=())
    for path, names in named.items():
        if names in ((), longest):
            continue
        there = set(names)
        is_by_name = not all(map(PLACE.fullmatch, names))
        is_part = tuple(name for name in longest if name in there) == names
        if not (is_part and is_by_name and len(names) > MOST_LACKING * len(longest)):
            other = [name for name in names if name not in set(longest)][:3]
            how = f"the others lack {', '.join(other)}" if other else "which are lacking cannot be told"
            raise DatasetError(
                f"The parcels differ between people: {path.name} has {len(names)}, others have {len(longest)}, and "
                f"{how}. Run the participant level for all with one atlas, or leave one kind out with --exclude-file."
            )
    return longest


def _spread(row: _Row, parcels: tuple[str, ...]) -> _Row:
    """Put the edges of a connectome among those of all parcels, NaN where it lacks one."""
    if row.parcels == parcels:
        return row
    place = [parcels.index(name) for name in row.parcels]
    diagonal = np.ones(len(place))
    diagonal[row.missing] = np.nan
    matrix = np.full((len(parcels), len(parcels)), np.nan)
    matrix[np.ix_(place, place)] = rebuild_matrix(row.edges, diagonal, weighted=False)
    lacking = sorted({*range(len(parcels))}.difference(place) | {place[parcel] for parcel in row.missing})
    return _Row(vectorise_edges(matrix, weighted=False), parcels, lacking)
