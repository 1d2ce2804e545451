"""Connectomes: correlations of parcel series, and functions of them by one eigendecomposition: FC^alpha, logarithm.

A parcel without coverage is NaN in its series and in every connectome, never zero.

Rank. A band-passed or short scan has fewer independent samples than parcels; its zero eigenvalues come out as +/-1e-14
and a plain power turns the negative half into NaN. Eigenvalues up to ``tolerance`` times the largest are therefore
outside the range of the matrix and get weight 0, never an absolute value or a floor. A logarithm or an inverse needs
full rank: there the caller has to choose a floor or a shrinkage by name.

In every signature ``tolerance`` is the fraction of the largest eigenvalue that counts as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import scipy  # its `linalg` is loaded by the first use: to check a choice needs none
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit

MINIMUM_VOLUMES = 3


class ParcelError(Unfit):
    """Some parcels cannot be used; `parcels` holds their positions, counted from 0, for callers that know the names."""

    def __init__(self, message: str, parcels: Iterable[int]) -> None:
        self.reason = message
        self.parcels = tuple(int(parcel) for parcel in parcels)
        listed = ", ".join(str(parcel) for parcel in self.parcels[:10])
        more = f" and {len(self.parcels) - 10} more" if len(self.parcels) > 10 else ""
        super().__init__(f"{message} (parcels counted from 0: {listed}{more}).")


def covered_series(series: ArrayLike) -> NDArray[np.bool_]:
    """Which parcels of a series (T, P) carry data: (P,). One that is NaN throughout does not. Raises ParcelError."""
    series = np.asarray(series)
    if series.ndim != 2 or len(series) < MINIMUM_VOLUMES:
        raise ValueError(f"A series must be volumes by parcels with at least 3 volumes, not of shape {series.shape}.")
    covered = ~np.isnan(series).all(axis=0)
    broken = covered & ~np.isfinite(series).all(axis=0)
    if broken.any():
        raise ParcelError("A parcel is missing or infinite in some volumes only", np.flatnonzero(broken))
    return covered


def standardise(series: ArrayLike) -> FloatArray:
    """Centre each parcel of a series (T, P) and divide by its SD (T - 1); NaN columns stay. Raises ParcelError."""
    series = np.asarray(series)
    covered_series(series)
    precision = np.finfo(series.dtype if series.dtype.kind == "f" else np.float64).eps
    series = series.astype(np.float64, copy=False)
    low, high, mean = series.min(axis=0), series.max(axis=0), series.mean(axis=0)
    constant = high - low <= 8 * precision * np.maximum(np.abs(low), np.abs(high))
    if constant.any():
        raise ParcelError("A parcel is constant, so its correlations are undefined", np.flatnonzero(constant))
    centred = series - mean
    # Dividing by the largest value first keeps the sum of squares of very small or very large units in range.
    centred /= np.maximum(high - mean, mean - low)
    centred /= centred.std(axis=0, ddof=1)
    return centred


def pearson_connectivity(series: ArrayLike) -> FloatArray:
    """Plain Pearson correlation (P, P) of a series (T, P), NaN for uncovered parcels. Raises ParcelError."""
    standardised = standardise(series)
    uncovered = np.isnan(standardised[0])
    if uncovered.all():
        raise Unfit("No parcel is covered, so there is no connectivity to compute.")
    correlations = standardised.T @ standardised / (len(standardised) - 1)
    correlations = np.clip((correlations + correlations.T) / 2, -1.0, 1.0)
    np.fill_diagonal(correlations, np.where(uncovered, np.nan, 1.0))
    return correlations


def covered_parcels(matrix: ArrayLike) -> NDArray[np.bool_]:
    """Which parcels of a connectome (P, P) carry data: (P,). One whose row is NaN does not. Raises ParcelError."""
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"A connectome must be a square matrix, not an array of shape {matrix.shape}.")
    if matrix.size and np.isfinite(matrix).all():
        return np.ones(len(matrix), dtype=bool)
    missing = np.isnan(matrix)
    covered = ~(missing.all(axis=0) & missing.all(axis=1))
    if not covered.any():
        raise Unfit("No parcel is covered, so there is no connectivity to transform.")
    broken = ~np.isfinite(matrix[np.ix_(covered, covered)]).all(axis=0)
    if broken.any():
        raise ParcelError("A parcel has missing or infinite connectivity with others", np.flatnonzero(covered)[broken])
    return covered


def spread(block: ArrayLike, covered: NDArray[np.bool_]) -> FloatArray:
    """Put the matrix of the covered parcels, shape (C, C), into shape (P, P); every other entry is NaN."""
    if covered.all():
        return np.array(block, dtype=np.float64)
    matrix = np.full((len(covered), len(covered)), np.nan)
    matrix[np.ix_(covered, covered)] = block
    return matrix


@contextmanager
def counted_among_all(covered: NDArray[np.bool_]) -> Iterator[None]:
    """Make a `ParcelError` from work on the covered parcels alone count its parcels among all P."""
    try:
        yield
    except ParcelError as error:
        raise ParcelError(error.reason, np.flatnonzero(covered)[list(error.parcels)]) from error


def fisher_z(matrix: ArrayLike) -> FloatArray:
    """Fisher z of correlations (P, P), arctanh r, with a diagonal of 0; NaN stays NaN. Raises ParcelError."""
    correlations = np.array(matrix, dtype=np.float64)
    diagonal = np.diag(correlations).copy()
    np.fill_diagonal(correlations, 0.0)
    extreme = (np.abs(correlations) >= 1).any(axis=0)
    if extreme.any():
        raise ParcelError("Fisher z is infinite: parcels correlate perfectly with another", np.flatnonzero(extreme))
    transformed = np.arctanh(correlations)
    np.fill_diagonal(transformed, np.where(np.isnan(diagonal), np.nan, 0.0))
    return transformed


# --- Eigenvalues ------------------------------------------------------------------------------------------------------

CLIP_TOLERANCE = 1e-10
"""Eigenvalues up to this fraction of the largest count as zero, for matrices computed in double precision."""
CLIP_TOLERANCE_SINGLE = 1e-5
"""The same for matrices that were computed or stored in single precision."""


def clip_tolerance(dtype: np.typing.DTypeLike) -> float:
    """Return the fraction of the largest eigenvalue below which rounding decides, for data of this type."""
    return CLIP_TOLERANCE_SINGLE if np.dtype(dtype) in (np.float16, np.float32) else CLIP_TOLERANCE


def in_range(eigenvalues: ArrayLike, tolerance: float = CLIP_TOLERANCE) -> NDArray[np.bool_]:
    """Which eigenvalues belong to the range of the matrix: lambda > tolerance * lambda_max."""
    eigenvalues = np.asarray(eigenvalues)
    return eigenvalues > tolerance * max(eigenvalues.max(), 0.0)


def rank(eigenvalues: ArrayLike, tolerance: float = CLIP_TOLERANCE) -> int:
    """Count the eigenvalues in the range of the matrix."""
    return int(in_range(eigenvalues, tolerance).sum())


def n_clipped(eigenvalues: ArrayLike, tolerance: float = CLIP_TOLERANCE) -> int:
    """Count the eigenvalues outside the range of the matrix, which get weight 0."""
    return int((~in_range(eigenvalues, tolerance)).sum())


def power_weights(eigenvalues: ArrayLike, alpha: float, tolerance: float = CLIP_TOLERANCE) -> FloatArray:
    """lambda^alpha of eigenvalues (P,) inside the range of the matrix, 0 outside."""
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    inside = in_range(eigenvalues, tolerance)
    return np.where(inside, np.where(inside, eigenvalues, 1.0) ** alpha, 0.0)


def regularise(
    eigenvalues: ArrayLike,
    floor: float | None = None,
    shrinkage: float | None = None,
    tolerance: float = CLIP_TOLERANCE,
) -> FloatArray:
    """Make eigenvalues (P,) full rank: shrinkage s to their mean, then a floor in their unit. Raises ValueError."""
    regular = np.array(eigenvalues, dtype=np.float64)
    if shrinkage is not None:
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"The shrinkage must lie between 0 and 1, and it is {shrinkage}.")
        regular = (1 - shrinkage) * regular + shrinkage * regular.mean()
    if floor is not None:
        if not floor > 0:
            raise ValueError(f"The floor of the eigenvalues must be positive, and it is {floor}.")
        regular = np.maximum(regular, floor)
    clipped = n_clipped(regular, tolerance)
    if clipped:
        raise Unfit(
            f"The connectome is rank-deficient ({clipped} of {len(regular)} eigenvalues are zero to rounding), so its "
            "logarithm and its inverse do not exist. Give a shrinkage or a floor for the eigenvalues, or use the power "
            "transform, which needs neither."
        )
    return regular


def participation_ratio(eigenvalues: ArrayLike) -> float:
    """(sum lambda)^2 / sum lambda^2: the effective number of eigenvectors (the paper, Section 3.2)."""
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    return float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


def heat_trace(eigenvalues: ArrayLike, time: float, tolerance: float = CLIP_TOLERANCE) -> float:
    """Z(t) = sum (lambda_i / lambda_1)^t; the participation ratio of FC^t is Z(t)^2 / Z(2t) (Appendix D.2)."""
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    return float(power_weights(eigenvalues / eigenvalues.max(), time, tolerance).sum())


def spectrum_summary(
    eigenvalues: ArrayLike, alpha: float = ALPHA_STAR, tolerance: float = CLIP_TOLERANCE
) -> dict[str, float]:
    """Rank, evenness, arclength (NaN without full rank) of eigenvalues (P,), before and (``_power``) after alpha."""
    ordered = np.sort(np.asarray(eigenvalues, dtype=np.float64))[::-1]
    clipped = n_clipped(ordered, tolerance)
    summary: dict[str, float] = {"rank": len(ordered) - clipped, "n_clipped": clipped}
    for ending, exponent in (("", 1.0), ("_power", alpha)):
        weights = power_weights(ordered, exponent, tolerance)
        summary[f"participation_ratio{ending}"] = participation_ratio(weights)
        summary[f"first_to_twentieth{ending}"] = _first_to(weights, 20)
        summary[f"first_to_last{ending}"] = _first_to(weights, len(weights))
    summary["heat_trace"] = heat_trace(ordered, alpha, tolerance)
    summary["arclength"] = float("nan") if clipped else alpha * float(np.linalg.norm(np.log(ordered)))
    return summary


def _first_to(weights: FloatArray, position: int) -> float:
    if len(weights) < position or weights[position - 1] == 0:
        return float("nan")
    return float(weights[0] / weights[position - 1])


# --- Matrices ---------------------------------------------------------------------------------------------------------


def eigendecompose(matrix: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """V diag(lambda) V' of (P, P), the paper's Section 3.2: lambda (P,) descending, V (P, P). Raises ParcelError."""
    return _descending(_checked(matrix))


def eigenvalues(matrix: ArrayLike) -> FloatArray:
    """Eigenvalues (P,) of (P, P), descending, at half the cost of the vectors and less. Raises ParcelError."""
    return scipy.linalg.eigvalsh(_checked(matrix), driver="evd", check_finite=False)[::-1]


def _descending(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    eigenvalues, eigenvectors = scipy.linalg.eigh(matrix, driver="evd", check_finite=False)
    return eigenvalues[::-1], eigenvectors[:, ::-1]


LOW_RANK = 0.6
"""Share of the parcels, up to which the rank makes `decompose_range` cheaper than all eigenvectors."""


def decompose_range(matrix: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (k,) and vectors (P, k) of the range of a matrix (P, P), by pivoted Cholesky if the rank is low."""
    matrix = _checked(matrix)
    most = int(LOW_RANK * len(matrix))
    # Where one more parcel than the rank are independent, as a small factor shows, there is nothing to gain.
    block, failed = scipy.linalg.lapack.dpotrf(matrix[: most + 1, : most + 1].T, lower=1)
    if not failed and np.diag(block).min() ** 2 > CLIP_TOLERANCE:
        return _descending(matrix)
    factor, pivots, number, _ = scipy.linalg.lapack.dpstrf(matrix.T, lower=1)
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
    # The exact test is five times as fast, and nearly all pass it.
    if not scipy.linalg.issymmetric(matrix) and np.abs(matrix - matrix.T).max() > 1e-6 * np.abs(matrix).max():
        raise ValueError("A connectome must be symmetric, and this matrix is not.")
    return matrix


def spectral_map(eigenvectors: ArrayLike, weights: ArrayLike) -> FloatArray:
    """V diag(weights) V', exactly symmetric. Shapes: eigenvectors (P, k), weights (k,)."""
    eigenvectors, weights = np.asarray(eigenvectors), np.asarray(weights)
    # numpy computes W @ W.T with one triangle (syrk): half the work, and symmetric to the last bit.
    negative = weights < 0
    half = (eigenvectors if not negative.any() else eigenvectors[:, ~negative]) * np.sqrt(weights[~negative])
    mapped: FloatArray = half @ half.T
    if negative.any():
        half = eigenvectors[:, negative] * np.sqrt(-weights[negative])
        mapped -= half @ half.T
    return mapped


def spectral_power(matrix: ArrayLike, alpha: float = ALPHA_STAR, tolerance: float | None = None) -> FloatArray:
    """FC^alpha = V diag(lambda^alpha) V' (the paper, Equation 1) of a symmetric matrix (P, P). Raises ValueError."""
    matrix = np.asarray(matrix)
    tolerance = clip_tolerance(matrix.dtype) if tolerance is None else tolerance
    eigenvalues, eigenvectors = eigendecompose(matrix)
    return spectral_map(eigenvectors, power_weights(eigenvalues, alpha, tolerance))


def matrix_log(matrix: ArrayLike, floor: float | None = None, shrinkage: float | None = None) -> FloatArray:
    """V diag(ln lambda) V' of a matrix (P, P), of full rank or made so by `regularise`. Raises ValueError."""
    matrix = np.asarray(matrix)
    eigenvalues, eigenvectors = eigendecompose(matrix)
    regular = regularise(eigenvalues, floor, shrinkage, clip_tolerance(matrix.dtype))
    return spectral_map(eigenvectors, np.log(regular))


def full_rank(matrix: ArrayLike, floor: float | None = None, shrinkage: float | None = None) -> FloatArray:
    """Return a matrix (P, P), made full rank in the way the caller chose where it is not. Raises ValueError."""
    matrix = np.asarray(matrix)
    tolerance = clip_tolerance(matrix.dtype)
    if floor is None and shrinkage is None:
        matrix = _checked(matrix)
        if not surely_above(matrix, tolerance * np.abs(matrix).sum(axis=0).max()):
            regularise(scipy.linalg.eigvalsh(matrix, check_finite=False), tolerance=tolerance)  # for its refusal
        return matrix
    eigenvalues, eigenvectors = eigendecompose(matrix)
    return spectral_map(eigenvectors, regularise(eigenvalues, floor, shrinkage, tolerance))


def surely_above(matrix: FloatArray, level: float) -> bool:
    """Whether a Cholesky factor, a fifth of the work of the eigenvalues, shows all above a level; False: who knows."""
    lowered = matrix.copy()
    lowered.flat[:: len(matrix) + 1] -= level
    _, failed = scipy.linalg.lapack.dpotrf(lowered.T, lower=1, clean=0, overwrite_a=1)
    return not failed


def inverse(matrix: ArrayLike) -> FloatArray:
    """Inverse, shape (P, P), of a symmetric positive definite matrix (P, P), exactly symmetric. Raises ValueError."""
    factor, _ = scipy.linalg.lapack.dpotrf(full_rank(matrix).T, lower=1, clean=1)  # full rank: it does not fail
    lower, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    return np.asarray(lower + np.tril(lower, -1).T)


def decompose_series(series: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (k,) and vectors (P, k) of the FC of a series (T, P), k = min(T, P), from its singular values."""
    standardised = standardise(series)
    uncovered = np.isnan(standardised[0])
    if uncovered.any():
        raise ParcelError("The spectrum needs a series for every parcel", np.flatnonzero(uncovered))
    scaled = standardised / np.sqrt(len(standardised) - 1)
    _, singular_values, rows = scipy.linalg.svd(scaled, full_matrices=False, check_finite=False)
    return singular_values**2, rows.T


def power_from_series(series: ArrayLike, alpha: float = ALPHA_STAR) -> FloatArray:
    """FC^alpha, shape (P, P), straight from a series (T, P) by `decompose_series`."""
    eigenvalues, eigenvectors = decompose_series(series)
    return spectral_map(eigenvectors, power_weights(eigenvalues, alpha))
