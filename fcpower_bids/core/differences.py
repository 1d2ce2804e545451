"""Tests of differences between scores, and of permutations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fcpower_bids.core.arrays import FloatArray

SIGNIFICANT = 0.05
"""P below which a test finds something."""


def corrected_resampled_t(
    differences: ArrayLike,
    n_train: ArrayLike,
    n_test: ArrayLike,
    test_sets: Sequence[Iterable[int]] | None = None,
    level: float = 0.95,
) -> dict[str, Any]:
    """Paired t-test over folds that share training people (Nadeau & Bengio 2003, Machine Learning 52:239).

    t = mean(d) / sqrt((1/J + n_test/n_train) var(d)) with J - 1 degrees of freedom. `differences` (J,): NaN is left
    out, those of one test set are averaged. Equal ones give p of 1 or 0, fewer than two NaN. Returns cells as
    ``columns.tsv`` explains them. Raises ValueError.
    """
    differences = np.asarray(differences, dtype=np.float64)
    sizes = np.stack([np.broadcast_to(np.asarray(n, dtype=np.float64), differences.shape) for n in (n_test, n_train)])
    if (sizes <= 0).any():
        raise ValueError("The corrected t-test needs subjects to train and to test.")
    numbers: dict[object, int] = {}
    sets = range(len(differences)) if test_sets is None else [frozenset(map(int, people)) for people in test_sets]
    groups = np.array([numbers.setdefault(test_set, len(numbers)) for test_set in sets], dtype=np.intp)
    used = np.isfinite(differences)
    distinct, first = np.unique(groups[used], return_index=True)
    folds = np.array([differences[used][groups[used] == group].mean() for group in distinct])
    ratio = np.divide(*sizes[:, used][:, first].sum(axis=1)) if len(folds) else np.nan
    mean, t, standard_error = _t_statistic(folds, float(ratio))
    df = float(len(folds) - 1)
    half = -special.stdtrit(df, (1 - level) / 2) * standard_error if df > 0 else np.nan
    greater, less = (float(special.stdtr(df, -sign * t)) if df > 0 else np.nan for sign in (1, -1))
    return {
        "mean_difference": mean,
        "ci_low": float(mean - half),
        "ci_high": float(mean + half),
        "t": t,
        "df": df,
        "p_two_sided": 2 * min(greater, less),
        "p_greater": greater,
        "p_less": less,
        "n_folds": len(differences),
        "n_distinct": len(folds),
        "n_skipped": int((~used).sum()),
    }


def _t_statistic(folds: FloatArray, ratio: float) -> tuple[float, float, float]:
    """Mean, t and standard error; without spread t is 0 or infinite instead of NaN."""
    if len(folds) < 2:
        return (float(folds.mean()) if len(folds) else np.nan), np.nan, np.nan
    mean = float(folds.mean())
    error = float(np.sqrt((1 / len(folds) + ratio) * folds.var(ddof=1)))
    if error <= 1e-14 * np.abs(folds).max():
        return mean, (float(np.sign(mean)) * np.inf if mean else 0.0), 0.0
    return mean, mean / error, error


POWER = 0.84
"""So many standard errors above a critical value a true effect is found in 80 of 100 samples."""


def adjust_p_values(p_values: ArrayLike) -> FloatArray:
    """Adjust p-values (m,) for the number of tests by their family-wise error (Holm 1979). Raises ValueError."""
    adjusted = np.array(p_values, dtype=np.float64)
    tests = np.isfinite(adjusted)
    if ((adjusted[tests] < 0) | (adjusted[tests] > 1)).any():
        raise ValueError("A p-value lies outside [0, 1].")
    order = np.argsort(adjusted)[: np.count_nonzero(tests)]  # NaN comes last
    adjusted[order] = np.minimum(np.maximum.accumulate(adjusted[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted


def subject_bootstrap(
    values: ArrayLike, subjects: ArrayLike | None = None, n_draws: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Resample people, each with all their rows of values (N, ...), and take the mean over rows.

    Returns the percentile limits (...) of the mean, and all draws of it (B, ...).
    """
    values = np.asarray(values, dtype=np.float64)
    subjects = np.arange(len(values)) if subjects is None else np.asarray(subjects)
    labels, numbers, counts = np.unique(subjects.astype(str), return_inverse=True, return_counts=True)
    sums = np.zeros((len(labels), *values.shape[1:]))
    np.add.at(sums, numbers, values)
    weights = np.random.default_rng(seed).multinomial(len(labels), np.full(len(labels), 1 / len(labels)), size=n_draws)
    rows = (weights @ counts).reshape(-1, *[1] * (values.ndim - 1))
    draws = np.tensordot(weights, sums, axes=1) / rows
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high, draws


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


LARGEST_DENOMINATOR = 60
LARGEST_GRID = 200_000
"""Up to so many possible sums the distribution over all 2^n flips is computed exactly."""
FLIPS = 9999


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
    fractions = [Fraction(size).limit_denominator(LARGEST_DENOMINATOR) for size in np.abs(values).tolist()]
    unit = lcm(*{fraction.denominator for fraction in fractions})
    steps = [int(fraction * unit) for fraction in fractions]  # sizes as multiples of their common unit
    are_small = np.allclose([float(fraction) for fraction in fractions], np.abs(values), rtol=0, atol=1e-9)
    if are_small and (total := sum(steps)) <= LARGEST_GRID:
        observed = abs(int(np.sign(values).astype(np.int64) @ np.array(steps)))
        chances = np.zeros(2 * total + 1)  # of each sum, by convolution of one coin after the other
        chances[total] = 1.0
        for step in steps:
            chances = (np.roll(chances, step) + np.roll(chances, -step)) / 2  # never wraps: sums stay within total
        return float(min(chances[np.abs(np.arange(-total, total + 1)) >= observed].sum(), 1.0))
    n, rng, signs = len(values), np.random.default_rng(seed), np.array([-1.0, 1.0])
    values = values[np.argsort(np.arange(n).astype(str))]  # blocks are drawn in the order of their names
    sums = [signs[rng.integers(0, 2, n)] @ values for _ in range(n_flips)]
    return permutation_p_value(abs(float(values.sum())), np.abs(sums))


def largest_of_permutations(observed: ArrayLike, null: ArrayLike) -> tuple[FloatArray, float]:
    """Correct statistics (m,) by the largest of each permutation (B, m) (Westfall & Young 1993)."""
    largest = np.nan_to_num(np.asarray(null, dtype=np.float64), nan=-np.inf).max(axis=1)
    values = np.asarray(observed, dtype=np.float64)
    p_values = [np.nan if np.isnan(value) else permutation_p_value(float(value), largest) for value in values]
    allowed = int(np.ceil(0.05 * (1 + len(largest)))) - 2  # permutations that may still be as good
    return np.array(p_values), float(np.sort(largest)[::-1][allowed]) if allowed >= 0 else float("inf")


def largest_standardised(scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """`largest_of_permutations` of statistics (1 + B, m), each in SD of its own permutations; observed ones first."""
    table = np.asarray(scores, dtype=np.float64)
    centre, spread = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    spread[spread == 0] = 1.0
    standard = (table - centre) / spread
    p_values, needed = largest_of_permutations(standard[0], standard[1:])
    return p_values, centre + needed * spread
