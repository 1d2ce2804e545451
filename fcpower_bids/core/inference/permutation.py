"""P of permutation tests, and sign flips of paired differences."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray


def permutation_p_value(observed: float, null: ArrayLike) -> float:
    """(1 + number of null (B,) as large) / (1 + B), never zero (Phipson & Smyth 2010). Raises ValueError."""
    permuted = np.asarray(null, dtype=np.float64)
    if np.isnan(observed) or np.isnan(permuted).any():
        raise ValueError("A statistic of the permutation test is not a number; leave out folds without a score first.")
    # A permutation that only reorders a sum reproduces the observed value up to rounding and counts as extreme.
    return float((1 + np.count_nonzero(permuted >= observed - 1e-12 * abs(observed))) / (1 + len(permuted)))


class PooledNull:
    """Statistics of all edges in all permutations, as one reference for false discoveries (Tusher et al. 2001)."""

    STEPS = 1 << 16

    def __init__(self, largest: float) -> None:
        self._per_unit = self.STEPS / largest
        self._counts = np.zeros(self.STEPS + 1)

    def add(self, values: FloatArray) -> None:
        """Count statistics of any shape by their size."""
        self._counts += np.bincount(self._steps(values), minlength=self.STEPS + 1)

    def p(self, values: FloatArray) -> FloatArray:
        """P of each size, all of its own step counted as larger; NaN stays NaN, as does all without permutations."""
        known = np.isfinite(values)
        p, as_large = np.full(values.shape, np.nan), np.cumsum(self._counts[::-1])[::-1]
        if as_large[0]:
            p[known] = (1 + as_large[self._steps(values[known])]) / (1 + as_large[0])
        return p

    def _steps(self, values: FloatArray) -> NDArray[np.intp]:
        sizes = np.abs(values).ravel()
        sizes *= self._per_unit
        return np.minimum(sizes, self.STEPS, out=sizes).astype(np.intp)


def false_discovery_rates(p: FloatArray) -> FloatArray:
    """Benjamini and Hochberg 1995 over the p that are known, shape (E,); NaN stays NaN."""
    q, known = np.full(p.shape, np.nan), np.isfinite(p)
    order = np.flatnonzero(known)[np.argsort(p[known])]
    above = p[order] * (len(order) / np.arange(1, len(order) + 1))
    q[order] = np.minimum(np.minimum.accumulate(above[::-1])[::-1], 1.0)
    return q


def sign_flips(n: int, n_flips: int, seed: int) -> Iterator[FloatArray]:
    """Draw signs (n,), +1 or -1 each, for paired differences that are symmetric around zero under the null."""
    _, places = np.unique(np.arange(n).astype(str), return_inverse=True)
    rng = np.random.default_rng(seed)
    return (rng.choice([-1.0, 1.0], n)[places] for _ in range(n_flips))


LARGEST_DENOMINATOR = 60
LARGEST_GRID = 200_000
"""Up to so many possible sums the distribution over all 2^n flips is computed exactly."""
FLIPS = 9999


def sum_by_block(values: ArrayLike, blocks: ArrayLike) -> FloatArray:
    """Sum values that belong together, in the order of the blocks' names; shape (number of blocks,)."""
    _, numbers = np.unique(np.asarray(blocks).astype(str), return_inverse=True)
    return np.asarray(np.bincount(numbers, np.asarray(values, dtype=np.float64)), dtype=np.float64)


def sign_flip_p_value(differences: ArrayLike, n_flips: int = FLIPS, seed: int = 0) -> float:
    """Two-sided p of a sum of differences (n,), one per exchangeable block; exact if small fractions; NaN without."""
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
    return permutation_p_value(abs(float(values.sum())), np.abs([signs @ values for signs in flips]))


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


def largest_of_permutations(observed: ArrayLike, null: ArrayLike) -> tuple[FloatArray, float]:
    """Correct statistics (m,) by the largest of each permutation (B, m) (Westfall & Young 1993)."""
    largest = np.nan_to_num(np.asarray(null, dtype=np.float64), nan=-np.inf).max(axis=1)
    values = np.asarray(observed, dtype=np.float64)
    p_values = [np.nan if np.isnan(value) else permutation_p_value(float(value), largest) for value in values]
    return np.array(p_values), _needed(largest)


def largest_standardised(scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """`largest_of_permutations` of statistics (1 + B, m), each in SD of its own permutations; observed ones first."""
    table = np.asarray(scores, dtype=np.float64)
    centre, spread = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    spread[spread == 0] = 1.0
    standard = (table - centre) / spread
    p_values, needed = largest_of_permutations(standard[0], standard[1:])
    return p_values, centre + needed * spread


def _needed(largest: FloatArray, level: float = 0.05) -> float:
    allowed = int(np.ceil(level * (1 + len(largest)))) - 2  # permutations that may still be as good
    return float(np.sort(largest)[::-1][allowed]) if allowed >= 0 else float("inf")
