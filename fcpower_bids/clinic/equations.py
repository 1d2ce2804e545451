"""Intervals that hold (conformal prediction), and a normal law at covariates: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.arrays import FloatArray


@dataclass(frozen=True)
class Radius:
    """Half the width of an interval."""

    value: float  # in the unit of the target
    level: float  # the coverage that it claims: the nominal one, or less where the people are too few for that


def conformal_radius(residuals: ArrayLike, people: ArrayLike, level: float = 0.9) -> Radius:
    """Split-conformal radius of a scan of one more person, people weighing equally; (n,) each. Raises ValueError."""
    size = np.abs(np.asarray(residuals, dtype=float))
    if not size.size or not 0 < level < 1:
        raise ValueError("An interval needs a residual, and a level between 0 and 1.")
    _, labels, counts = np.unique(np.asarray(people), return_inverse=True, return_counts=True)
    claimed = min(level, len(counts) / (len(counts) + 1))
    order = np.argsort(size, kind="stable")
    mass = np.cumsum((1 / ((len(counts) + 1) * counts[labels]))[order])
    # rounding of the sum must not push the quantile to the next residual
    place = int(np.searchsorted(mass, claimed * (1 - 1e-12)))
    return Radius(float(size[order][min(place, len(size) - 1)]), claimed)


def measure_coverage(residuals: ArrayLike, people: ArrayLike, folds: ArrayLike, level: float = 0.9) -> float:
    """Share of the members of a fold in the interval of the other folds, mean over folds; NaN for one fold."""
    values, members, labels = np.asarray(residuals, dtype=float), np.asarray(people), np.asarray(folds)
    held = []
    for one in np.unique(labels):
        own = labels == one
        if not own.all():
            limit = conformal_radius(values[~own], members[~own], level).value
            held.append(float(np.mean(np.abs(values[own]) <= limit)))
    return float(np.mean(held)) if held else float("nan")


FEWEST_SLOPES = 20
"""Scans below which a reference has a mean and no slopes."""


def normal_at(values: ArrayLike, about: FloatArray) -> tuple[float, float, FloatArray]:
    """Mean at covariates (n, k) of 0, SD around the plane, and slopes (k,) of values (n,), by least squares."""
    y = np.asarray(values, dtype=float)
    x = about if len(y) >= FEWEST_SLOPES else np.zeros_like(about)
    centred = x - x.mean(axis=0)
    slopes, _, rank, _ = np.linalg.lstsq(centred, y - y.mean(), rcond=1e-9)
    rest = y - y.mean() - centred @ slopes
    spare = len(y) - 1 - int(rank)
    sd = float(np.sqrt(np.sum(rest**2) / spare)) if spare > 0 else np.nan
    return float(y.mean() - x.mean(axis=0) @ slopes), sd, slopes
