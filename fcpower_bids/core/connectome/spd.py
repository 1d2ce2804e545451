"""Functions of a symmetric positive (semi)definite matrix through its eigenvalues: FC^alpha, logarithm, spectrum.

Every map is ``eigendecompose -> weights of the eigenvalues -> spectral_map``: one decomposition serves all exponents,
and the signs and the order of the eigenvectors do not matter. The weights and the description of the spectrum are in
`spectrum`, and can be imported from here as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import ParcelError, standardise
from fcpower_bids.core.connectome.spectrum import (
    CLIP_TOLERANCE,
    clip_tolerance,
    power_weights,
    regularise,
    spectrum_summary,
)


def eigendecompose(matrix: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Sigma = V diag(lambda) V' (the paper, Section 3.2).

    `matrix` (P, P): symmetric. Returns `eigenvalues` (P,): in descending order; `eigenvectors` (P, P): one per column,
    in the same order; signs are arbitrary. Raises ParcelError: the matrix has NaN or infinite entries, which would
    silently spoil the whole decomposition; ValueError: not square or not symmetric.
    """
    return _descending(_checked(matrix))


def _descending(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    eigenvalues, eigenvectors = linalg.eigh(matrix, driver="evd", check_finite=False)
    return eigenvalues[::-1], eigenvectors[:, ::-1]


LOW_RANK = 0.6
"""Share of the parcels, up to which the rank makes `decompose_range` cheaper than all eigenvectors."""


def decompose_range(matrix: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of the range of a positive semidefinite matrix, as FC^alpha needs them.

    FC of fewer volumes than parcels has few of them. With L (P, r) its pivoted Cholesky factor, which shows the rank,
    ``L'L = U diag(lambda) U'`` and ``V = L U / sqrt(lambda)``: P r^2 operations in the place of some 10 P^3. A matrix
    of higher rank is decomposed by `eigendecompose`; what of it is not in the range is left to its callers to clip.
    `matrix` (P, P): symmetric. Where it is not semidefinite, as means of Fisher z may be, all of it is decomposed.
    Returns `eigenvalues` (k,): in descending order; `eigenvectors` (P, k): one per column. Raises ValueError: as
    `eigendecompose`.
    """
    matrix = _checked(matrix)
    most = int(LOW_RANK * len(matrix))
    # Where one more parcel than the rank are independent, as a small factor shows, there is nothing to gain.
    block, failed = linalg.lapack.dpotrf(matrix[: most + 1, : most + 1].T, lower=1)
    if not failed and np.diag(block).min() ** 2 > CLIP_TOLERANCE:
        return _descending(matrix)
    factor, pivots, number, _ = linalg.lapack.dpstrf(matrix.T, lower=1)
    lower = np.empty((len(matrix), number))
    lower[pivots - 1] = np.tril(factor[:, :number])
    left = np.abs(np.einsum("ij,ij->i", lower, lower) - np.diag(matrix)).max()
    if not 0 < number <= most or left > CLIP_TOLERANCE:
        return _descending(matrix)  # of higher rank; or what is left is no rounding, and it is not semidefinite
    eigenvalues, rotation = _descending(lower.T @ lower)
    return eigenvalues, lower @ (rotation / np.sqrt(eigenvalues))


def _checked(matrix: ArrayLike) -> FloatArray:
    """Return a matrix that is square, finite and symmetric, in double precision."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"A connectome must be a square matrix, not an array of shape {matrix.shape}.")
    broken = ~np.isfinite(matrix)
    if broken.any():
        # A missing parcel spoils its row in every column; its diagonal shows which parcel it is.
        parcels = np.diag(broken) if np.diag(broken).any() else broken.any(axis=0)
        raise ParcelError("A connectome has missing or infinite values", np.flatnonzero(parcels))
    if np.abs(matrix - matrix.T).max() > 1e-6 * np.abs(matrix).max():
        raise ValueError("A connectome must be symmetric, and this matrix is not.")
    return matrix


def spectral_map(eigenvalues: ArrayLike, eigenvectors: ArrayLike, weights: ArrayLike) -> FloatArray:
    """V diag(weights) V', exactly symmetric.

    `eigenvalues` (k,): unused by the arithmetic; checked against the weights so that spectra of two recordings cannot
    be mixed up. `eigenvectors` (P, k). `weights` (k,). Raises ValueError: the numbers of eigenvalues, eigenvectors and
    weights differ.
    """
    eigenvectors, weights = np.asarray(eigenvectors), np.asarray(weights)
    if not np.shape(eigenvalues) == weights.shape == eigenvectors.shape[1:]:
        raise ValueError("Eigenvalues, eigenvectors and weights must belong to the same decomposition.")
    # numpy computes W @ W.T with one triangle (syrk): half the work, and symmetric to the last bit.
    negative = weights < 0
    half = (eigenvectors if not negative.any() else eigenvectors[:, ~negative]) * np.sqrt(weights[~negative])
    mapped: FloatArray = half @ half.T
    if negative.any():
        half = eigenvectors[:, negative] * np.sqrt(-weights[negative])
        mapped -= half @ half.T
    return mapped


def spectral_power(matrix: ArrayLike, alpha: float = ALPHA_STAR, tolerance: float | None = None) -> FloatArray:
    """FC^alpha = V diag(lambda^alpha) V' (the paper, Equation 1).

    `matrix` (P, P): symmetric positive semidefinite. `alpha`: the exponent; alpha = 1 returns the matrix. `tolerance`:
    by default from the type of `matrix`. Returns (P, P). Raises ValueError: NaN (a `ParcelError`), or not a symmetric
    matrix.
    """
    matrix = np.asarray(matrix)
    tolerance = clip_tolerance(matrix.dtype) if tolerance is None else tolerance
    eigenvalues, eigenvectors = eigendecompose(matrix)
    return spectral_map(eigenvalues, eigenvectors, power_weights(eigenvalues, alpha, tolerance))


def matrix_log(matrix: ArrayLike, floor: float | None = None, shrinkage: float | None = None) -> FloatArray:
    """Log Sigma = V diag(ln lambda) V', the log-Euclidean map: the limit of (Sigma^alpha - I) / alpha at alpha -> 0.

    `matrix` (P, P): symmetric positive definite, or made so by `regularise` with `floor` or `shrinkage`. Raises
    ValueError: rank-deficient without a remedy, or not a symmetric matrix.
    """
    matrix = np.asarray(matrix)
    eigenvalues, eigenvectors = eigendecompose(matrix)
    regular = regularise(eigenvalues, floor, shrinkage, clip_tolerance(matrix.dtype))
    return spectral_map(eigenvalues, eigenvectors, np.log(regular))


def full_rank(matrix: ArrayLike, floor: float | None = None, shrinkage: float | None = None) -> FloatArray:
    """Return a matrix (P, P) made full rank in the way the caller chose by name, or as it is where it has full rank.

    Raises ValueError: rank-deficient without a remedy (see `regularise`), or not a symmetric matrix.
    """
    matrix = np.asarray(matrix)
    tolerance = clip_tolerance(matrix.dtype)
    if floor is None and shrinkage is None:
        matrix = _checked(matrix)
        if not _surely_full_rank(matrix, tolerance):
            regularise(linalg.eigvalsh(matrix, check_finite=False), tolerance=tolerance)  # for its refusal
        return matrix
    eigenvalues, eigenvectors = eigendecompose(matrix)
    return spectral_map(eigenvalues, eigenvectors, regularise(eigenvalues, floor, shrinkage, tolerance))


def _surely_full_rank(matrix: FloatArray, tolerance: float) -> bool:
    """Whether a Cholesky factorisation, a fifth of the work of the eigenvalues, already shows full rank.

    It exists for Sigma - t ||Sigma|| I if and only if the smallest eigenvalue is above t ||Sigma||, and the norm taken
    here is no less than the largest eigenvalue. If it does not exist, nothing is decided.
    """
    lowered = matrix.copy()
    lowered.flat[:: len(matrix) + 1] -= tolerance * np.abs(matrix).sum(axis=0).max()
    _, failed = linalg.lapack.dpotrf(lowered.T, lower=1, clean=0, overwrite_a=1)
    return not failed


def inverse(matrix: ArrayLike) -> FloatArray:
    """Inverse, shape (P, P), of a symmetric positive definite matrix (P, P), exactly symmetric.

    Raises ValueError: rank-deficient, so that the inverse would be noise (see `regularise`), or not a symmetric matrix.
    """
    factor, _ = linalg.lapack.dpotrf(full_rank(matrix).T, lower=1, clean=1)  # full rank: it does not fail
    lower, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    return np.asarray(lower + np.tril(lower, -1).T)


def decompose_series(series: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Spectrum of the Pearson FC of a series, without forming FC: from the singular values of Z / sqrt(T - 1).

    Exact, and cheaper than `eigendecompose` when there are fewer volumes than parcels. `series` (T, P): any unit; every
    parcel covered. Returns `eigenvalues` (min(T, P),): in descending order; the remaining P - T eigenvalues are zero;
    `eigenvectors` (P, min(T, P)). Raises ParcelError: an uncovered, constant or partly missing parcel.
    """
    standardised = standardise(series)
    uncovered = np.isnan(standardised[0])
    if uncovered.any():
        raise ParcelError("The spectrum needs a series for every parcel", np.flatnonzero(uncovered))
    scaled = standardised / np.sqrt(len(standardised) - 1)
    _, singular_values, rows = linalg.svd(scaled, full_matrices=False, check_finite=False)
    return singular_values**2, rows.T


def power_from_series(series: ArrayLike, alpha: float = ALPHA_STAR, tolerance: float = CLIP_TOLERANCE) -> FloatArray:
    """FC^alpha, shape (P, P), straight from a series (T, P) by `decompose_series`."""
    eigenvalues, eigenvectors = decompose_series(series)
    return spectral_map(eigenvalues, eigenvectors, power_weights(eigenvalues, alpha, tolerance))


def connectome_summary(matrix: ArrayLike, networks: Sequence[str] = ()) -> dict[str, float]:
    """Return the mean correlation of all edges, of the edges within each network, and the participation ratio.

    `matrix` (P, P): Pearson FC. `networks` (of length P): network of each parcel; networks of a single parcel have no
    edges and are left out, as are parcels of none ("n/a"); none is named where all parcels are of one. Returns
    ``mean_fc``, ``within NETWORK`` in the order of their first parcels, ``participation_ratio``.
    """
    fc = np.asarray(matrix, dtype=float)
    upper = np.triu(np.ones(fc.shape, dtype=bool), 1)
    found = {"mean_fc": float(fc[upper].mean())}
    labels = np.asarray(networks, dtype=str)
    names = list(dict.fromkeys(labels.tolist()))
    for name in names if len(names) > 1 else []:
        own = upper & np.outer(labels == name, labels == name)
        if own.any() and name != "n/a":
            found[f"within {name}"] = float(fc[own].mean())
    found["participation_ratio"] = float(spectrum_summary(eigendecompose(fc)[0])["participation_ratio"])
    return found
