"""Whether two scans are of one person: error rates and a likelihood ratio from pairs whose answer is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fcpower_bids.core.arrays import FloatArray

FEWEST = 10
"""Pairs of either kind below which no density is estimated."""


@dataclass(frozen=True)
class Verification:
    """What a score says.

    Attributes
    ----------
    false_match : float
        Share of pairs of different people with at least this score: how often two people pass for one here.
    false_non_match : float
        Share of pairs of one person with at most this score.
    likelihood_ratio : float
        Density of the score among pairs of one person over that among pairs of different people, never beyond what as
        many pairs can show; NaN with fewer than `FEWEST` pairs of either kind.
    """

    false_match: float
    false_non_match: float
    likelihood_ratio: float


def verify(score: float, same: ArrayLike, different: ArrayLike) -> Verification:
    """Compare a score with those of pairs of one person and of different people.

    Rates count the pair itself, (1 + k) / (1 + n), so none is ever 0. Densities are Gaussian kernel estimates (Scott's
    rule); the ratio is kept between 1 / (1 + n_same) and 1 + n_different.

    Parameters
    ----------
    score : float
    same, different : array_like, shape (n,), (m,)
        Scores of the reference.
    """
    own, others = np.asarray(same, dtype=float), np.asarray(different, dtype=float)
    ratio = float("nan")
    if min(len(own), len(others)) >= FEWEST and np.ptp(own) > 0 and np.ptp(others) > 0:
        one, other = (float(stats.gaussian_kde(each)(score)[0]) for each in (own, others))
        tiny = np.finfo(float).tiny
        ratio = float(np.clip((one + tiny) / (other + tiny), 1 / (1 + len(own)), 1 + len(others)))
    return Verification(
        (1 + int((others >= score).sum())) / (1 + len(others)), (1 + int((own <= score).sum())) / (1 + len(own)), ratio
    )


def error_rates(same: ArrayLike, different: ArrayLike, rates: ArrayLike = (0.001, 0.01, 0.05)) -> Iterator[FloatArray]:
    """Yield threshold, false match rate and false non-match rate: at the rates of false matches, then where both meet.

    A threshold for a rate that the pairs are too few for is left out.
    """
    own, others = np.sort(np.asarray(same, dtype=float)), np.sort(np.asarray(different, dtype=float))
    if not len(own) or not len(others):
        return
    thresholds = np.unique(np.concatenate([own, others]))
    matches = 1 - np.searchsorted(others, thresholds, side="left") / len(others)
    misses = np.searchsorted(own, thresholds, side="left") / len(own)
    for rate in np.asarray(rates, dtype=float):
        if rate * len(others) >= 1:
            place = int(np.argmax(matches <= rate)) if (matches <= rate).any() else -1
            yield np.array([thresholds[place], matches[place], misses[place]])
    place = int(np.argmin(np.abs(matches - misses)))
    yield np.array([thresholds[place], matches[place], misses[place]])
