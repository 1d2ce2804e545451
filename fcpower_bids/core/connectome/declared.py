"""Connectomes as other programs store them: r or Fisher z, a square, a triangle or a vector; every claim is checked."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.errors import Unfit

SCALES = ("r", "z")
ORDERS = ("upper", "lower")
ROUNDING = 1e-3
"""What rounding to few digits leaves between the two halves of a matrix, or above 1."""
WORST_EIGENVALUE = -0.5
"""Below this, in units of the mean eigenvalue, a matrix is no connectome of one recording, whatever its rounding."""


def correlations_from(values: ArrayLike, scale: str = "r", order: str = "upper") -> NDArray[np.float64]:
    """Return the matrix of correlations that an array of another program means.

    Parameters
    ----------
    values : array_like, shape (P, P), (P(P-1)/2,) or (P(P+1)/2,)
        A full matrix, one triangle of it with zeros or NaN in the other, or a triangle as a vector, without or with the
        diagonal.
    scale : {"r", "z"}
        Pearson correlations, or their Fisher z.
    order : {"upper", "lower"}
        Whether a vector holds the upper triangle row by row (``numpy.triu_indices``; equal to MATLAB's ``squareform``)
        or the lower one (``numpy.tril_indices``, nilearn's ``sym_matrix_to_vec``).

    Returns
    -------
    ndarray, shape (P, P)
        Symmetric, 1 on the diagonal; rows and columns of NaN for parcels without any value.

    Raises
    ------
    Unfit
        If the array is no such matrix, or contradicts what is said of it.
    """
    matrix = _square(np.asarray(values, dtype=np.float64), order)
    off = ~np.eye(len(matrix), dtype=bool)
    _check_scale(matrix, off, scale)
    if scale == "z":
        matrix = np.tanh(matrix)
    empty = ~np.isfinite(np.where(off, matrix, np.nan)).any(axis=0)
    matrix[np.diag_indices_from(matrix)] = 1.0
    matrix[empty] = np.nan
    matrix[:, empty] = np.nan
    covered = matrix[np.ix_(~empty, ~empty)]
    if not np.isfinite(covered).all():
        raise Unfit("single correlations are missing between parcels that have others")
    lowest = float(np.linalg.eigvalsh(covered)[0]) if len(covered) else 0.0
    if lowest < WORST_EIGENVALUE:
        raise Unfit(
            f"it has an eigenvalue of {lowest:.2g}, which no correlation matrix has: the order of a vector, the scale "
            "or the file is another than declared"
        )
    return np.clip(matrix, -1.0, 1.0)


def _square(array: NDArray[np.float64], order: str) -> NDArray[np.float64]:
    array = np.squeeze(array)
    if array.ndim == 1:
        return _from_vector(array, order)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        shape = " x ".join(map(str, array.shape))
        raise Unfit(f"it has the shape {shape}: neither a square matrix nor one of its triangles")
    upper, lower = (np.nan_to_num(half) for half in (np.triu(array, 1), np.tril(array, -1)))
    if upper.any() != lower.any():
        return array + np.where(np.eye(len(array), dtype=bool), 0.0, array.T) if upper.any() or lower.any() else array
    if np.abs(upper - lower.T).max(initial=0.0) > ROUNDING:
        raise Unfit("its two halves differ, so it is no matrix of correlations")
    return np.array((array + array.T) / 2)


def _from_vector(vector: NDArray[np.float64], order: str) -> NDArray[np.float64]:
    """Rebuild the matrix; that a vector holds the diagonal is told by what stands there: only 1, 0 or nothing."""
    n = (math.isqrt(8 * len(vector) + 1) + 1) // 2
    if n < 2 or n * (n - 1) // 2 != len(vector):
        raise Unfit(f"{len(vector)} values are no triangle of a matrix (P(P-1)/2, or P(P+1)/2 with the diagonal)")
    triangle = np.triu_indices if order == "upper" else np.tril_indices
    rows, columns = triangle(n - 1, 0)  # P (P + 1) / 2 with the diagonal is (P + 1) P / 2 without it
    diagonal = vector[rows == columns]
    constant = any(bool(same.all()) for same in (np.isclose(diagonal, 1), diagonal == 0, ~np.isfinite(diagonal)))
    if not constant or n == 2:
        rows, columns = triangle(n, 1 if order == "upper" else -1)
    matrix = np.zeros((max(rows.max(), columns.max()) + 1,) * 2)
    matrix[rows, columns] = vector
    matrix[columns, rows] = vector
    return matrix


def _check_scale(matrix: NDArray[np.float64], off: NDArray[np.bool_], scale: str) -> None:
    diagonal = np.diag(matrix)
    largest = float(np.nanmax(np.abs(matrix[off]), initial=0.0))
    if scale == "r" and largest > 1 + ROUNDING:
        raise Unfit(f"it is declared as r but has the value {largest:.3g}: declare it as z (Fisher z)")
    if scale == "z" and np.isfinite(diagonal).all() and np.allclose(diagonal, 1.0, atol=1e-6) and largest <= 1:
        raise Unfit("it is declared as z but has 1 on its diagonal and nothing above 1: declare it as r")
