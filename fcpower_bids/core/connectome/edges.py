"""Edges: the upper triangle row by row as a vector, times sqrt(2) for Frobenius products (Appendix B), and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

EDGE_WEIGHT = 2.0**0.5


def edge_count(n_parcels: int) -> int:
    """Count the edges among P parcels, E = P (P - 1) / 2."""
    return n_parcels * (n_parcels - 1) // 2


@lru_cache(maxsize=8)
def _flat_indices(n_parcels: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the edges in the upper and the lower triangle of a flattened (P, P) matrix."""
    rows, columns = np.triu_indices(n_parcels, 1)
    positions = rows * n_parcels + columns, columns * n_parcels + rows
    for each in positions:
        each.setflags(write=False)
    return positions


def vectorise_edges(matrices: ArrayLike, weighted: bool = True) -> NDArray[np.floating]:
    """Edges (..., E) of symmetric matrices (..., P, P), by default times sqrt(2), so that products are Frobenius's."""
    matrices = np.asarray(matrices)
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(f"Edges are taken from square matrices, not from an array of shape {matrices.shape}.")
    dtype = np.float32 if matrices.dtype == np.float32 else np.float64
    n_parcels = matrices.shape[-1]
    flattened = matrices.reshape(*matrices.shape[:-2], n_parcels * n_parcels)
    edges: NDArray[np.floating] = np.take(flattened, _flat_indices(n_parcels)[0], axis=-1).astype(dtype, copy=False)
    return edges * dtype(EDGE_WEIGHT) if weighted else edges


def rebuild_matrix(edges: ArrayLike, diagonal: ArrayLike = 0.0, weighted: bool = True) -> NDArray[np.floating]:
    """Put edges (..., E) and diagonals (..., P) back into matrices (..., P, P): the inverse of `vectorise_edges`."""
    edges = np.asarray(edges)
    n_edges = edges.shape[-1]
    n_parcels = (1 + isqrt(1 + 8 * n_edges)) // 2
    if edge_count(n_parcels) != n_edges:
        raise ValueError(f"{n_edges} is not the number of edges of a connectome: it must be P (P - 1) / 2.")
    dtype = np.float32 if edges.dtype == np.float32 else np.float64
    values = edges / dtype(EDGE_WEIGHT) if weighted else edges
    flat = np.empty((*edges.shape[:-1], n_parcels * n_parcels), dtype)
    for positions in _flat_indices(n_parcels):
        flat[..., positions] = values
    flat[..., :: n_parcels + 1] = diagonal
    return flat.reshape(*edges.shape[:-1], n_parcels, n_parcels)


def rebuild_connectome(edges: ArrayLike) -> NDArray[np.floating]:
    """Put the edges of one FC back, (P (P - 1) / 2,) to (P, P): the diagonal is 1, NaN for parcels without a value."""
    matrix = rebuild_matrix(edges, np.nan, weighted=False)
    np.fill_diagonal(matrix, np.where(np.isnan(matrix).all(axis=0), np.nan, 1.0))
    return matrix


def edge_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names of the two parcels of each edge, in the order of `vectorise_edges`."""
    rows, columns = np.triu_indices(len(names), 1)
    return [(names[row], names[column]) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]


def parcel_means(values: ArrayLike, n_parcels: int) -> NDArray[np.float64]:
    """Average a value per edge (E,) over the edges of every parcel (P,); NaN counts as no value."""
    values = np.asarray(values, dtype=np.float64)
    known = np.isfinite(values)
    sums, numbers = np.zeros(n_parcels), np.zeros(n_parcels)
    for ends in np.triu_indices(n_parcels, 1):
        sums += np.bincount(ends[known], values[known], n_parcels)
        numbers += np.bincount(ends[known], minlength=n_parcels)
    return np.divide(sums, numbers, out=np.full(n_parcels, np.nan), where=numbers > 0)
