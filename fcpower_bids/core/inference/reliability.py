"""How repeatable a number is: intraclass correlations, split halves, and the ceiling they set on a prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit

ICC_FORMS = ("ICC(1,1)", "ICC(2,1)", "ICC(3,1)", "ICC(1,k)", "ICC(2,k)", "ICC(3,k)")


def intraclass_correlation(ratings: ArrayLike, form: str = "ICC(2,1)") -> FloatArray:
    """ICC of ratings (n, k, ...) by its name in Shrout & Fleiss 1979; NaN without variance. Raises ValueError."""
    ratings = np.asarray(ratings, dtype=np.float64)
    if form not in ICC_FORMS:
        raise ValueError(f"There is no intraclass correlation called '{form}'. Choose from: {', '.join(ICC_FORMS)}.")
    if ratings.ndim < 2 or min(ratings.shape[:2]) < 2:
        raise Unfit("An intraclass correlation needs at least two people with at least two sessions each.")
    if not np.isfinite(ratings).all():
        raise ValueError("An intraclass correlation needs every person in every session; some values are missing.")
    n, k = ratings.shape[:2]
    people, sessions, within, residual = _mean_squares(ratings)
    numerator, single, averaged = {
        "1": (people - within, people + (k - 1) * within, people),
        "2": (
            people - residual,
            people + (k - 1) * residual + k * (sessions - residual) / n,
            people + (sessions - residual) / n,
        ),
        "3": (people - residual, people + (k - 1) * residual, people),
    }[form[4]]
    return _quotient(numerator, averaged if form[6] == "k" else single)


def _mean_squares(ratings: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Between people, between sessions, within people, and residual mean squares."""
    n, k = ratings.shape[:2]
    deviations = ratings - ratings.mean(axis=(0, 1))
    # Rounding of a constant quantity would otherwise pass for variance.
    deviations = np.where(np.abs(deviations) <= 1e-13 * np.abs(ratings).max(axis=(0, 1)), 0, deviations)
    total = (deviations**2).sum(axis=(0, 1))
    people = k * (deviations.mean(axis=1) ** 2).sum(axis=0)
    sessions = n * (deviations.mean(axis=0) ** 2).sum(axis=0)
    residual = np.maximum(total - people - sessions, 0) / ((n - 1) * (k - 1))
    return people / (n - 1), sessions / (k - 1), (total - people) / (n * (k - 1)), residual


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    defined = denominator != 0
    return np.where(defined, numerator / np.where(defined, denominator, 1), np.nan)


@dataclass(frozen=True)
class SplitHalf:
    """Reliability between halves."""

    # mean, sd: mean and standard deviation over repeats of the correlation rho between the halves; sd is NaN for one
    # repeat
    mean: float
    sd: float
    full: float  # Spearman-Brown 2 rho / (1 + rho) of the mean: the reliability of both halves together
    correlations: FloatArray  # (R,): rho of each repeat; NaN where a half is constant


def split_half_reliability(first: ArrayLike, second: ArrayLike) -> SplitHalf:
    """Correlate out-of-fold predictions (n,) or (R, n) of the halves of each scan (the paper, Appendix F)."""
    first, second = (np.atleast_2d(np.asarray(half, dtype=np.float64)) for half in (first, second))
    if first.shape != second.shape:
        raise ValueError(f"The halves have different shapes, {first.shape} and {second.shape}.")
    correlations = np.full(len(first), np.nan)
    for row, (one, other) in enumerate(zip(first, second, strict=True)):
        both = np.isfinite(one) & np.isfinite(other)
        if both.sum() > 1 and np.ptp(one[both]) > 0 and np.ptp(other[both]) > 0:
            correlations[row] = np.corrcoef(one[both], other[both])[0, 1]
    known = correlations[np.isfinite(correlations)]
    mean = float(known.mean()) if len(known) else np.nan
    sd = float(known.std(ddof=1)) if len(known) > 1 else np.nan
    return SplitHalf(mean, sd, spearman_brown(mean), correlations)


def repeat_reliability(predictions: ArrayLike, n_splits: int = 100, seed: int = 0) -> SplitHalf:
    """Correlate averages of two random halves of the repeats (R, n): how far the folds matter. Raises ValueError."""
    predictions = np.asarray(predictions, dtype=np.float64)
    if predictions.ndim != 2 or len(predictions) < 2:
        raise Unfit("The reliability over repeats needs predictions of at least two repeats.")
    half = len(predictions) // 2
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(predictions)) for _ in range(n_splits)]
    first = np.stack([predictions[order[:half]].mean(axis=0) for order in orders])
    second = np.stack([predictions[order[half : 2 * half]].mean(axis=0) for order in orders])
    return split_half_reliability(first, second)


def spearman_brown(rho: float, factor: float = 2.0) -> float:
    """Reliability of a measurement `factor` times as long: f rho / (1 + (f - 1) rho) (Spearman 1910, Brown 1910)."""
    denominator = 1 + (factor - 1) * rho
    return factor * rho / denominator if denominator else np.nan


def disattenuated_ceiling(r: float, rho: float) -> float:
    """Return r / sqrt(2 rho / (1 + rho)), what a reliable predictor would reach (Appendix F); NaN unless positive."""
    return float(r / np.sqrt(spearman_brown(rho))) if rho > 0 and r > 0 else np.nan
