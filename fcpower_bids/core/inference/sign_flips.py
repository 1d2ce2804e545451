"""Paired tests whose unit is the person: under the null the sign of a person's difference is a coin."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.inference.permutation import permutation_p_value, sign_flips

LARGEST_DENOMINATOR = 60
LARGEST_GRID = 200_000
"""Up to so many possible sums the distribution over all 2^n flips is computed exactly."""
FLIPS = 9999
CHUNK = 500


def sum_by_block(values: ArrayLike, blocks: ArrayLike) -> FloatArray:
    """Sum values that belong together, in the order of the blocks' names; shape (number of blocks,)."""
    _, numbers = np.unique(np.asarray(blocks).astype(str), return_inverse=True)
    return np.asarray(np.bincount(numbers, np.asarray(values, dtype=np.float64)), dtype=np.float64)


def sign_flip_p_value(differences: ArrayLike, n_flips: int = FLIPS, seed: int = 0) -> float:
    """Two-sided p of a sum of paired differences, one per exchangeable block (a person, a family, a held-out site).

    Exact over all 2^n flips where the differences are small fractions, as searches won and lost are; elsewhere by drawn
    flips, the observed one among them (Phipson & Smyth 2010). `differences` (n,). `n_flips`: flips to draw where the
    exact distribution is out of reach. Returns: 1 where all differences are zero; NaN without any. Raises ValueError: a
    difference is missing.
    """
    values = np.asarray(differences, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("A paired difference is not a number; leave out people without both first.")
    if not len(values):
        return float("nan")
    values = values[values != 0]
    if not len(values):
        return 1.0
    steps = _whole(np.abs(values))
    if steps is not None and steps.sum() <= LARGEST_GRID:
        sign = np.sign(values).astype(np.int64)
        return _exact(steps, int(abs((sign * steps).sum())))
    flips = sign_flips(len(values), n_flips, seed)
    return permutation_p_value(float(values.sum()), np.array([signs @ values for signs in flips]), "two-sided")


def _whole(sizes: FloatArray) -> NDArray[np.int64] | None:
    """Sizes as multiples of their common unit; None where there is no simple one."""
    fractions = [Fraction(float(size)).limit_denominator(LARGEST_DENOMINATOR) for size in sizes]
    if not np.allclose([float(each) for each in fractions], sizes, rtol=0, atol=1e-9):
        return None
    unit = lcm(*{each.denominator for each in fractions})
    return np.array([int(each * unit) for each in fractions], dtype=np.int64)


def _exact(steps: NDArray[np.int64], observed: int) -> float:
    """P(|sum of +-steps| >= observed), by convolution of one coin after the other."""
    total = int(steps.sum())
    chances = np.zeros(2 * total + 1)
    chances[total] = 1.0
    for step in steps.tolist():
        chances = (np.roll(chances, step) + np.roll(chances, -step)) / 2  # never wraps: the sums stay within total
    sums = np.abs(np.arange(-total, total + 1))
    return float(min(chances[sums >= observed].sum(), 1.0))


def smallest_p(n_permutations: int) -> float:
    """The smallest p that so many permutations can give; 1 without any."""
    return 1 / (1 + n_permutations)


def largest_of_permutations(observed: ArrayLike, null: ArrayLike) -> tuple[FloatArray, float]:
    """Correct several statistics for their number by the largest of each permutation (Westfall & Young 1993).

    `observed` (m,): undefined ones are NaN. `null` (B, m): the same permutations for all; undefined ones count as no
    better. Returns `p_values` (m,); `needed`: the statistic that would have had p below 0.05; infinite where no
    permutation test could give that.
    """
    largest = np.nan_to_num(np.asarray(null, dtype=np.float64), nan=-np.inf).max(axis=1)
    values = np.asarray(observed, dtype=np.float64)
    p_values = [np.nan if np.isnan(value) else permutation_p_value(float(value), largest) for value in values]
    return np.array(p_values), _needed(largest)


def largest_standardised(scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """`largest_of_permutations` of statistics of different scale, each in standard deviations of its own permutations.

    `scores` (1 + B, m): the observed ones first. Returns `p_values, needed` (m,).
    """
    table = np.asarray(scores, dtype=np.float64)
    centre, spread = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    spread[spread == 0] = 1.0
    standard = (table - centre) / spread
    p_values, needed = largest_of_permutations(standard[0], standard[1:])
    return p_values, centre + needed * spread


def _needed(largest: FloatArray, level: float = 0.05) -> float:
    allowed = int(np.ceil(level * (1 + len(largest)))) - 2  # permutations that may still be as good
    return float(np.sort(largest)[::-1][allowed]) if allowed >= 0 else float("inf")
