"""Functions of a symmetric positive (semi)definite matrix through its eigenvalues: FC^alpha, logarithm, spectrum.

Every map is ``eigendecompose -> weights of the eigenvalues -> spectral_map``: one decomposition serves all exponents,
and the signs and the order of the eigenvectors do not matter.

Rank. A band-passed or short scan has fewer independent samples than parcels; its zero eigenvalues come out as +/-1e-14
and a plain power turns the negative half into NaN. Eigenvalues up to ``tolerance`` times the largest are therefore
outside the range of the matrix and get weight 0. They are never made positive by an absolute value or a floor: for a logarithm
or an inverse, which need full rank, the caller has to choose a floor or a shrinkage by name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, special

from fcpower_bids.core.connectivity import Array, ParcelError, standardise

ALPHA_STAR = 0.35
"""The exponent alpha* that the paper selects (Section 3.3)."""

CLIP_TOLERANCE = 1e-10
"""Eigenvalues up to this fraction of the largest count as zero, for matrices computed in double precision."""

CLIP_TOLERANCE_SINGLE = 1e-5
"""The same for matrices that were computed or stored in single precision."""

Mask = NDArray[np.bool_]


def clip_tolerance(dtype: np.typing.DTypeLike) -> float:
    """Return the fraction of the largest eigenvalue below which rounding decides, for data of this type."""
    return CLIP_TOLERANCE_SINGLE if np.dtype(dtype) in (np.float16, np.float32) else CLIP_TOLERANCE


def eigendecompose(matrix: ArrayLike) -> tuple[Array, Array]:
    """Sigma = V diag(lambda) V' (the paper, Section 3.2).

    Parameters
    ----------
    matrix : array_like, shape (P, P)
        Symmetric.

    Returns
    -------
    eigenvalues : ndarray of float64, shape (P,)
        In descending order.
    eigenvectors : ndarray of float64, shape (P, P)
        One per column, in the same order; signs are arbitrary.

    Raises
    ------
    ParcelError
        The matrix has NaN or infinite entries, which would silently spoil the whole decomposition.
    ValueError
        Not square or not symmetric.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"A connectome must be a square matrix, not an array of shape {matrix.shape}.")
    _check_finite(matrix)
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-6 * np.abs(matrix).max()):
        raise ValueError("A connectome must be symmetric, and this matrix is not.")
    eigenvalues, eigenvectors = linalg.eigh(matrix, driver="evd", check_finite=False)
    return eigenvalues[::-1], eigenvectors[:, ::-1]


def _check_finite(matrix: Array) -> None:
    broken = ~np.isfinite(matrix)
    if not broken.any():
        return
    # A missing parcel spoils its row in every column; its diagonal tells it from the parcels it merely touches.
    parcels = np.diag(broken) if np.diag(broken).any() else broken.any(axis=0)
    raise ParcelError("A connectome has missing or infinite values", np.flatnonzero(parcels))


def in_range(eigenvalues: ArrayLike, tolerance: float = CLIP_TOLERANCE) -> Mask:
    """Which eigenvalues belong to the range of the matrix: lambda > tolerance * lambda_max."""
    eigenvalues = np.asarray(eigenvalues)
    return eigenvalues > tolerance * max(eigenvalues.max(), 0.0)


def rank(eigenvalues: ArrayLike, tolerance: float = CLIP_TOLERANCE) -> int:
    """Count the eigenvalues in the range of the matrix."""
    return int(in_range(eigenvalues, tolerance).sum())


def n_clipped(eigenvalues: ArrayLike, tolerance: float = CLIP_TOLERANCE) -> int:
    """Count the eigenvalues outside the range of the matrix, which get weight 0."""
    return int((~in_range(eigenvalues, tolerance)).sum())


def power_weights(eigenvalues: ArrayLike, alpha: float, tolerance: float = CLIP_TOLERANCE) -> Array:
    """lambda^alpha inside the range of the matrix, 0 outside.

    Parameters
    ----------
    eigenvalues : array_like, shape (P,)
    alpha : float
        Any finite exponent; 0 gives the projector on the range, -1 the pseudo-inverse.
    tolerance : float
        Fraction of the largest eigenvalue that counts as zero.

    Returns
    -------
    ndarray of float64, shape (P,)
    """
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    inside = in_range(eigenvalues, tolerance)
    return np.where(inside, np.where(inside, eigenvalues, 1.0) ** alpha, 0.0)


def log_weights(eigenvalues: ArrayLike, tolerance: float = CLIP_TOLERANCE) -> Array:
    """ln(lambda) of a matrix of full rank.

    Raises
    ------
    ValueError
        The matrix is rank-deficient: its logarithm is minus infinity.
    """
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    _require_full_rank(eigenvalues, tolerance)
    return np.log(eigenvalues)


def box_cox_weights(eigenvalues: ArrayLike, alpha: float, tolerance: float = CLIP_TOLERANCE) -> Array:
    """(lambda^alpha - 1) / alpha = expm1(alpha ln lambda) / alpha, and ln(lambda) at alpha = 0: one family for both.

    Against `power_weights` the off-diagonal entries of the matrix are divided by alpha and nothing else changes, so the
    correlation kernel is the same for every alpha > 0; alpha -> 0 is the log-Euclidean map without a jump (the paper,
    Appendix B.1). Outside the range the weight is -1 / alpha, the image of the weight 0.

    Parameters
    ----------
    eigenvalues : array_like, shape (P,)
    alpha : float
        Not negative.
    tolerance : float
        Fraction of the largest eigenvalue that counts as zero.

    Returns
    -------
    ndarray of float64, shape (P,)

    Raises
    ------
    ValueError
        alpha is negative, or alpha is 0 and the matrix is rank-deficient.
    """
    if alpha < 0:
        raise ValueError(f"The exponent alpha must not be negative, and it is {alpha}.")
    if alpha == 0:
        return log_weights(eigenvalues, tolerance)
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    return special.boxcox(np.where(in_range(eigenvalues, tolerance), eigenvalues, 0.0), alpha)


def regularise(
    eigenvalues: ArrayLike,
    floor: float | None = None,
    shrinkage: float | None = None,
    tolerance: float = CLIP_TOLERANCE,
) -> Array:
    """Make a spectrum full rank in the way the caller chose by name, or refuse.

    Parameters
    ----------
    eigenvalues : array_like, shape (P,)
    floor : float, optional
        Lift smaller eigenvalues to this value, in units of the eigenvalues (mean 1 for a correlation matrix).
    shrinkage : float, optional
        Between 0 and 1: (1 - s) Sigma + s mean(lambda) I, applied before the floor.
    tolerance : float
        Fraction of the largest eigenvalue that counts as zero.

    Returns
    -------
    ndarray of float64, shape (P,)

    Raises
    ------
    ValueError
        Still rank-deficient, or a floor or shrinkage out of its range.
    """
    regular = np.array(eigenvalues, dtype=np.float64)
    if shrinkage is not None:
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"The shrinkage must lie between 0 and 1, and it is {shrinkage}.")
        regular = (1 - shrinkage) * regular + shrinkage * regular.mean()
    if floor is not None:
        if not floor > 0:
            raise ValueError(f"The floor of the eigenvalues must be positive, and it is {floor}.")
        regular = np.maximum(regular, floor)
    _require_full_rank(regular, tolerance)
    return regular


def _require_full_rank(eigenvalues: Array, tolerance: float) -> None:
    clipped = n_clipped(eigenvalues, tolerance)
    if clipped:
        raise ValueError(
            f"The connectome is rank-deficient ({clipped} of {len(eigenvalues)} eigenvalues are zero to rounding), so "
            "its logarithm and its inverse do not exist. Give a shrinkage or a floor for the eigenvalues, or use the "
            "power transform, which needs neither."
        )


def spectral_map(eigenvalues: ArrayLike, eigenvectors: ArrayLike, weights: ArrayLike) -> Array:
    """V diag(weights) V', exactly symmetric.

    Parameters
    ----------
    eigenvalues : array_like, shape (k,)
        Unused by the arithmetic; checked against the weights so that spectra of two recordings cannot be mixed up.
    eigenvectors : array_like, shape (P, k)
    weights : array_like, shape (k,)

    Returns
    -------
    ndarray of float64, shape (P, P)

    Raises
    ------
    ValueError
        The numbers of eigenvalues, eigenvectors and weights differ.
    """
    eigenvectors, weights = np.asarray(eigenvectors), np.asarray(weights)
    if not np.shape(eigenvalues) == weights.shape == eigenvectors.shape[1:]:
        raise ValueError("Eigenvalues, eigenvectors and weights must belong to the same decomposition.")
    if (weights >= 0).all():
        # numpy computes W @ W.T with one triangle (syrk): half the work, and symmetric to the last bit.
        half = eigenvectors * np.sqrt(weights)
        return half @ half.T
    product = (eigenvectors * weights) @ eigenvectors.T
    return (product + product.T) / 2


def spectral_power(matrix: ArrayLike, alpha: float = ALPHA_STAR, tolerance: float | None = None) -> Array:
    """FC^alpha = V diag(lambda^alpha) V' (the paper, Equation 1).

    Parameters
    ----------
    matrix : array_like, shape (P, P)
        Symmetric positive semidefinite.
    alpha : float
        The exponent; alpha = 1 returns the matrix.
    tolerance : float, optional
        Fraction of the largest eigenvalue that counts as zero; by default from the type of `matrix`.

    Returns
    -------
    ndarray of float64, shape (P, P)

    Raises
    ------
    ParcelError
        NaN or infinite entries.
    ValueError
        Not a symmetric matrix.
    """
    matrix = np.asarray(matrix)
    tolerance = clip_tolerance(matrix.dtype) if tolerance is None else tolerance
    eigenvalues, eigenvectors = eigendecompose(matrix)
    return spectral_map(eigenvalues, eigenvectors, power_weights(eigenvalues, alpha, tolerance))


def matrix_log(matrix: ArrayLike, floor: float | None = None, shrinkage: float | None = None) -> Array:
    """Log Sigma = V diag(ln lambda) V', the log-Euclidean map: the limit of (Sigma^alpha - I) / alpha at alpha -> 0.

    Parameters
    ----------
    matrix : array_like, shape (P, P)
        Symmetric positive definite, or made so by `floor` or `shrinkage` (see `regularise`).
    floor, shrinkage : float, optional
        See `regularise`.

    Returns
    -------
    ndarray of float64, shape (P, P)

    Raises
    ------
    ValueError
        Rank-deficient without a remedy, or not a symmetric matrix.
    """
    matrix = np.asarray(matrix)
    eigenvalues, eigenvectors = eigendecompose(matrix)
    regular = regularise(eigenvalues, floor, shrinkage, clip_tolerance(matrix.dtype))
    return spectral_map(eigenvalues, eigenvectors, np.log(regular))


def decompose_series(series: ArrayLike) -> tuple[Array, Array]:
    """Spectrum of the Pearson FC of a series, without forming FC: from the singular values of Z / sqrt(T - 1).

    Exact, and cheaper than `eigendecompose` when there are fewer volumes than parcels.

    Parameters
    ----------
    series : array_like, shape (T, P)
        Any unit; every parcel covered.

    Returns
    -------
    eigenvalues : ndarray of float64, shape (min(T, P),)
        In descending order; the remaining P - T eigenvalues are zero.
    eigenvectors : ndarray of float64, shape (P, min(T, P))

    Raises
    ------
    ParcelError
        An uncovered, constant or partly missing parcel.
    """
    standardised = standardise(series)
    uncovered = np.isnan(standardised[0])
    if uncovered.any():
        raise ParcelError("The spectrum needs a series for every parcel", np.flatnonzero(uncovered))
    scaled = standardised / np.sqrt(len(standardised) - 1)
    _, singular_values, rows = linalg.svd(scaled, full_matrices=False, check_finite=False)
    return singular_values**2, rows.T


def power_from_series(series: ArrayLike, alpha: float = ALPHA_STAR, tolerance: float = CLIP_TOLERANCE) -> Array:
    """FC^alpha straight from a series by the singular value decomposition: see `decompose_series`.

    Parameters
    ----------
    series : array_like, shape (T, P)
    alpha : float
    tolerance : float

    Returns
    -------
    ndarray of float64, shape (P, P)
    """
    eigenvalues, eigenvectors = decompose_series(series)
    return spectral_map(eigenvalues, eigenvectors, power_weights(eigenvalues, alpha, tolerance))


def participation_ratio(eigenvalues: ArrayLike) -> float:
    """(sum lambda)^2 / sum lambda^2: the effective number of eigenvectors (the paper, Section 3.2)."""
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    return float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


def heat_trace(eigenvalues: ArrayLike, time: float, tolerance: float = CLIP_TOLERANCE) -> float:
    """Z(t) = sum (lambda_i / lambda_1)^t; the participation ratio of FC^t is Z(t)^2 / Z(2t) (Appendix B.2)."""
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    return float(power_weights(eigenvalues / eigenvalues.max(), time, tolerance).sum())


def spectrum_summary(
    eigenvalues: ArrayLike, alpha: float = ALPHA_STAR, tolerance: float = CLIP_TOLERANCE
) -> dict[str, float]:
    """Describe how uneven a spectrum is before and after raising it to alpha.

    Parameters
    ----------
    eigenvalues : array_like, shape (P,)
    alpha : float
    tolerance : float
        Fraction of the largest eigenvalue that counts as zero.

    Returns
    -------
    dict of str to float
        ``rank`` and ``n_clipped``; for FC and, ending in ``_power``, for FC^alpha: ``participation_ratio``,
        ``first_to_twentieth`` (lambda_1 / lambda_20) and ``first_to_last`` (lambda_1 / lambda_P), NaN where the
        denominator is outside the range or there are fewer parcels; ``heat_trace`` at t = alpha; ``arclength``, the
        log-Euclidean distance alpha ||log FC|| of FC^alpha from the identity, NaN if rank-deficient (Appendix B).
    """
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


def _first_to(weights: Array, position: int) -> float:
    if len(weights) < position or weights[position - 1] == 0:
        return float("nan")
    return float(weights[0] / weights[position - 1])
