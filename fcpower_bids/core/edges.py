"""Edges: the upper triangle row by row as a vector, times sqrt(2) for Frobenius products (Appendix B), and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.connectome import eigendecompose, eigenvalues, surely_above
from fcpower_bids.errors import Unfit

EDGE_WEIGHT = 2.0**0.5


def edge_count(n_parcels: int) -> int:
    """Count the edges among P parcels, E = P (P - 1) / 2."""
    return n_parcels * (n_parcels - 1) // 2


@lru_cache(maxsize=8)
def _flat_indices(n_parcels: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the edges in the upper and the lower triangle of a flattened (P, P) matrix."""
    rows, columns = np.triu_indices(n_parcels, 1)
    positions = rows * n_parcels + columns, columns * n_parcels + rows
    for indices in positions:
        indices.setflags(write=False)
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


# --- Matrices as other programs store them --------------------------------------------------------------------------


SCALES = ("r", "z")
ORDERS = ("upper", "lower")
ROUNDING = 1e-3
"""Difference of the two halves of a matrix, or excess over 1, that rounding to few digits leaves."""
WORST_EIGENVALUE = -0.5
"""Below this, in units of the mean eigenvalue, a matrix is no connectome of one recording, whatever its rounding."""
CLEARED = 1.5
"""Eigenvalues up to this many times the noise of rounding are cleared; the lowest one measured was 0.9 times it."""
MOST_DIGITS = 9
FEWEST_VALUES = 10


def rounding_step(values: ArrayLike) -> float:
    """Distance between neighbouring values of an array (1e-6: six decimals; 2^-24: single precision), or 0."""
    known = np.asarray(values, dtype=np.float64).ravel()
    known = known[np.isfinite(known) & (known != 0) & (np.abs(known) != 1)][:20_000]
    if len(np.unique(known)) < FEWEST_VALUES:
        return 0.0
    for digits in range(1, MOST_DIGITS + 1):
        scaled = known * 10.0**digits
        if np.abs(scaled - np.round(scaled)).max() < 1e-5:
            return float(10.0**-digits)
    return 2.0**-24 if (known == known.astype(np.float32)).all() else 0.0


def without_rounding(matrix: ArrayLike, step: float) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Any]]:
    """Set eigenvalues of correlations (P, P) to zero that are within the noise of a rounding by `step`. Raises Unfit.

    The decomposition shows first whether these are the correlations of one recording at all. Returns the correlations,
    eigenvalues of the parcels that are covered, descending, and facts for the sidecar.
    """
    matrix = np.array(matrix, dtype=np.float64)
    there = np.isfinite(np.diag(matrix))
    covered = matrix[np.ix_(there, there)]
    if not covered.size:
        raise Unfit("it has no value for any parcel")
    noise = step * math.sqrt(len(covered) / 3)
    if not step or surely_above(covered, CLEARED * noise):  # the vectors are wanted where something may be cleared
        values, vectors = eigenvalues(covered)[::-1], covered
    else:
        values, vectors = (part[..., ::-1] for part in eigendecompose(covered))
    if values[0] < WORST_EIGENVALUE:
        raise Unfit(
            f"it has an eigenvalue of {values[0]:.2g}, which no correlation matrix has: the order of a vector, the "
            "scale or the file is another than declared"
        )
    kept = values > CLEARED * noise
    cleared = 0 if not step or not kept.any() else int((~kept).sum())
    facts: dict[str, Any] = {}
    if step:
        facts |= {"RoundingStep": step, "RoundingNoise": noise, "ClearedEigenvalues": cleared}
    if values[0] < -max(2 * CLEARED * noise, 1e-8):
        facts["LowestEigenvalue"] = float(values[0])
        facts["Note"] = "Negative eigenvalues beyond rounding: these are not the correlations of one complete series"
    if not cleared:
        return matrix, values[::-1], facts
    factor = vectors[:, kept] * np.sqrt(values[kept])
    factor /= np.linalg.norm(factor, axis=1, keepdims=True)
    clear = np.clip(factor @ factor.T, -1.0, 1.0)  # symmetric to the last bit
    np.fill_diagonal(clear, 1.0)
    matrix[np.ix_(there, there)] = clear
    return matrix, np.concatenate([eigenvalues(factor.T @ factor), np.zeros(cleared)]), facts


def correlations_from(values: ArrayLike, scale: str = "r", order: str = "upper") -> NDArray[np.float64]:
    """Correlations (P, P) from a full matrix, one triangle or a vector, as `scale` "r" or "z". Raises Unfit.

    `order` of a vector: "upper" (``numpy.triu_indices``, MATLAB's ``squareform``) or "lower" (nilearn's). Parcels
    without any value are NaN.
    """
    matrix = _square(np.asarray(values, dtype=np.float64), order)
    _check_scale(matrix, scale)
    if scale == "z":
        matrix = np.tanh(matrix)
    known = np.isfinite(matrix)
    np.fill_diagonal(known, val=False)
    empty = ~known.any(axis=0)
    matrix[np.diag_indices_from(matrix)] = 1.0
    matrix[empty] = np.nan
    matrix[:, empty] = np.nan
    covered = matrix[np.ix_(~empty, ~empty)]
    if not np.isfinite(covered).all():
        raise Unfit("single correlations are missing between parcels that have others")
    return np.clip(matrix, -1.0, 1.0)


def _square(array: NDArray[np.float64], order: str) -> NDArray[np.float64]:
    array = np.squeeze(array)
    if array.ndim == 1:
        return _from_vector(array, order)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        shape = " x ".join(map(str, array.shape))
        raise Unfit(f"it has the shape {shape}: neither a square matrix nor one of its triangles")
    if np.array_equal(array, array.T, equal_nan=True):
        return array.copy()
    upper, lower = (np.nan_to_num(half) for half in (np.triu(array, 1), np.tril(array, -1)))
    if upper.any() != lower.any():
        return array + np.where(np.eye(len(array), dtype=bool), 0.0, array.T) if upper.any() or lower.any() else array
    if np.abs(upper - lower.T).max(initial=0.0) > ROUNDING:
        raise Unfit("its two halves differ, so it is no matrix of correlations")
    return np.array((array + array.T) / 2)


def _from_vector(vector: NDArray[np.float64], order: str) -> NDArray[np.float64]:
    """Rebuild the matrix; a vector holds the diagonal if only 1, 0 or nothing stands in its places."""
    n = (math.isqrt(8 * len(vector) + 1) + 1) // 2
    if n < 2 or n * (n - 1) // 2 != len(vector):
        raise Unfit(f"{len(vector)} values are no triangle of a matrix (P(P-1)/2, or P(P+1)/2 with the diagonal)")
    triangle = np.triu_indices if order == "upper" else np.tril_indices
    rows, columns = triangle(n - 1, 0)  # P (P + 1) / 2 with the diagonal is (P + 1) P / 2 without it
    diagonal = vector[rows == columns]
    constant = any(
        bool(same.all()) for same in (np.isclose(diagonal, 1), np.isclose(diagonal, 0), ~np.isfinite(diagonal))
    )
    if not constant or n == 2:
        rows, columns = triangle(n, 1 if order == "upper" else -1)
    matrix = np.zeros((max(rows.max(), columns.max()) + 1,) * 2)
    matrix[rows, columns] = vector
    matrix[columns, rows] = vector
    return matrix


def _check_scale(matrix: NDArray[np.float64], scale: str) -> None:
    diagonal = np.diag(matrix)
    sizes = np.abs(matrix)
    np.fill_diagonal(sizes, 0.0)
    largest = float(np.nanmax(sizes, initial=0.0))
    if scale == "r" and largest > 1 + ROUNDING:
        raise Unfit(f"it is declared as r but has the value {largest:.3g}: declare it as z (Fisher z)")
    odd = diagonal[~np.isnan(diagonal) & (np.abs(diagonal) > ROUNDING) & ~(np.abs(diagonal - 1) <= ROUNDING)]
    if scale == "r" and len(odd) and (np.abs(odd) < 1).all():
        raise Unfit(
            f"it has {odd[0]:.3g} on its diagonal, where correlations have 1: a covariance has to be scaled first, and "
            "of a matrix that was shrunk or smoothed the correlations from before are wanted"
        )
    if scale == "r" and len(odd):
        raise Unfit(
            f"it is declared as r but has {odd[0]:.3g} on its diagonal, where correlations have 1: declare it as z "
            "(Fisher z); a covariance has to be scaled first"
        )
    if scale == "z" and np.isfinite(diagonal).all() and np.allclose(diagonal, 1.0, atol=1e-6) and largest <= 1:
        raise Unfit("it is declared as z but has 1 on its diagonal and nothing above 1: declare it as r")
