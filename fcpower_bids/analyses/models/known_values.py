"""How a model does where it is used, from new people whose value is known already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

RARE = 0.01
"""Probability below which so few values inside their intervals are no chance."""


@dataclass(frozen=True)
class KnownValues:
    """Predictions of people whose value is known, none of whom the model has seen.

    Attributes
    ----------
    people, inside : int
        How many, and of how many the value lies in the interval.
    mean_error, mean_absolute_error : float
        Predicted minus known.
    fails : bool
        Whether so few inside would come of the claimed coverage in less than 1 of 100 cases, were people independent.
    """

    people: int
    inside: int
    mean_error: float
    mean_absolute_error: float
    fails: bool


def check_known_values(predicted: ArrayLike, known: ArrayLike, radius: float, level: float) -> KnownValues | None:
    """Compare predictions with known values.

    Parameters
    ----------
    predicted, known : array_like, shape (n,)
        One per person; pairs in which one is NaN are left out.
    radius, level : float
        Half the width of the intervals, and the coverage that they claim.

    Returns
    -------
    KnownValues or None
        None where no value is known.
    """
    error = np.asarray(predicted, dtype=float) - np.asarray(known, dtype=float)
    error = error[np.isfinite(error)]
    if not error.size:
        return None
    inside = int((np.abs(error) <= radius).sum())
    fails = bool(stats.binom.cdf(inside, error.size, level) < RARE)
    return KnownValues(error.size, inside, float(error.mean()), float(np.abs(error).mean()), fails)
