"""Functions of the eigenvalues of a connectome: the weights that FC^alpha gives them, and their summary.

Rank. A band-passed or short scan has fewer independent samples than parcels; its zero eigenvalues come out as +/-1e-14
and a plain power turns the negative half into NaN. Eigenvalues up to ``tolerance`` times the largest are therefore
outside the range of the matrix and get weight 0, never an absolute value or a floor. A logarithm or an inverse needs
full rank: there the caller has to choose a floor or a shrinkage by name.

In every signature ``tolerance`` is the fraction of the largest eigenvalue that counts as zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit

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
