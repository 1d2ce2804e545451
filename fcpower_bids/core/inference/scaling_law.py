"""How prediction grows with people and with scan time: the scaling law of Ooi et al. 2025, fitted by least squares."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeWarning, curve_fit

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit

LARGEST = 1e9
"""Upper limit of w1 and w2: at it the law describes a score of zero at any sample that can be scanned."""


@dataclass(frozen=True)
class ScalingLaw:
    """Result of `fit_scaling_law`.

    Attributes
    ----------
    w0 : float
        Score at infinitely many people and minutes.
    w1 : float
        People that halve the squared score even with endless scans.
    w2 : float
        The same in people times minutes.
    se_w0, se_w1, se_w2 : float
        Standard errors of the least-squares fit, as if the cells were independent; NaN where a parameter is at a limit.
    rmse : float
        Root mean squared difference between law and scores.
    at_bound : bool
        Whether a parameter lies at the limit of its range, so that the data do not determine it.
    n_cells : int
        Cells that entered.
    """

    w0: float
    w1: float
    w2: float
    se_w0: float
    se_w1: float
    se_w2: float
    rmse: float
    at_bound: bool
    n_cells: int


def scaling_law(n_people: ArrayLike, minutes: ArrayLike, w0: float, w1: float, w2: float) -> FloatArray:
    """Score expected from N people with T minutes each: ``w0 / sqrt(1 + w1 / N + w2 / (N T))``.

    Source: Ooi et al. 2025, Nature 644:731 (doi:10.1038/s41586-025-09250-1).
    """
    n, t = np.asarray(n_people, dtype=float), np.asarray(minutes, dtype=float)
    return np.asarray(w0 / np.sqrt(1 + w1 / n + w2 / (n * t)))


def fit_scaling_law(scores: ArrayLike, n_people: ArrayLike, minutes: ArrayLike) -> ScalingLaw:
    """Fit the law to the scores of a grid of people and minutes.

    Parameters
    ----------
    scores : array_like, shape (C,)
        Mean correlation of each cell; cells that are NaN are left out.
    n_people, minutes : array_like, shape (C,)
        Training people and minutes per person of each cell, both above 0.

    Returns
    -------
    ScalingLaw
        0 <= w0 <= 1 and 0 <= w1, w2 <= `LARGEST`.

    Raises
    ------
    ValueError
        Fewer than four cells, or people or minutes do not differ, so that the parameters are not identified.
    """
    y, n, t = (np.asarray(values, dtype=float) for values in (scores, n_people, minutes))
    known = np.isfinite(y)
    y, n, t = y[known], n[known], t[known]
    if y.size < 4 or np.unique(n).size < 2 or np.unique(t).size < 2:
        raise Unfit("The scaling law needs four cells or more, of two numbers of people and two scan lengths at least.")
    if (n <= 0).any() or (t <= 0).any():
        raise Unfit("The scaling law needs people and minutes above zero.")
    lower, upper = np.zeros(3), np.array([1.0, LARGEST, LARGEST])
    guess = np.clip([float(y.max()), float(np.median(n)), float(np.median(n * t))], 1e-3, upper)
    found, covariance = _fit(y, n, t, guess, (lower, upper))
    # 1e-6 relative: the solver keeps a hair's breadth from the limits.
    scale = np.array([1.0, max(float(n.max()), 1.0), max(float((n * t).max()), 1.0)])
    at_bound = bool(((found - lower) < 1e-6 * scale).any() or ((upper - found) < 1e-6 * upper).any())
    errors = np.full(3, np.nan) if at_bound else np.sqrt(np.diag(covariance))
    rmse = float(np.sqrt(np.mean((scaling_law(n, t, *found) - y) ** 2)))
    w0, w1, w2, se_w0, se_w1, se_w2 = (float(value) for value in (*found, *errors))
    return ScalingLaw(w0, w1, w2, se_w0, se_w1, se_w2, rmse, at_bound, int(y.size))


def _fit(
    y: FloatArray, n: FloatArray, t: FloatArray, guess: FloatArray, bounds: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)  # An undetermined parameter has an infinite standard error.
        found, covariance = curve_fit(
            lambda cells, w0, w1, w2: scaling_law(cells[0], cells[1], w0, w1, w2),
            np.stack([n, t]),
            y,
            p0=guess,
            bounds=bounds,
            x_scale=guess,
            max_nfev=20000,
        )
    return found, covariance
