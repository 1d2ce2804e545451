"""Tests and intervals that respect how the numbers came about: shared training data, paired scans, families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fcpower_bids.core.arrays import FloatArray


@dataclass(frozen=True)
class ResampledT:
    """Result of `corrected_resampled_t`."""

    mean: float  # mean difference over the distinct folds
    # low, high: confidence limits of the mean difference
    low: float
    high: float
    # t, df: statistic and J - 1 degrees of freedom
    t: float
    df: float
    # p_two_sided, p_greater, p_less: for a difference unlike, above and below zero
    p_two_sided: float
    p_greater: float
    p_less: float
    # n_folds, n_distinct, n_skipped: differences given, distinct test sets J that entered, and differences that were
    # NaN
    n_folds: int
    n_distinct: int
    n_skipped: int


def corrected_resampled_t(
    differences: ArrayLike,
    n_train: ArrayLike,
    n_test: ArrayLike,
    test_sets: Sequence[Iterable[int]] | None = None,
    level: float = 0.95,
) -> ResampledT:
    """Paired t-test over folds that share training people (Nadeau & Bengio 2003, Machine Learning 52:239).

    t = mean(d) / sqrt((1/J + n_test/n_train) var(d)) with J - 1 degrees of freedom. `differences` (J,): NaN is left
    out, those of one test set are averaged. Equal ones give p of 1 or 0, fewer than two NaN. Raises ValueError.
    """
    differences = np.asarray(differences, dtype=np.float64)
    sizes = np.stack([np.broadcast_to(np.asarray(n, dtype=np.float64), differences.shape) for n in (n_test, n_train)])
    if differences.ndim != 1 or (sizes <= 0).any():
        raise ValueError("The corrected t-test needs one difference per fold, and subjects to train and to test.")
    groups = _same_test_sets(test_sets, len(differences))
    used = np.isfinite(differences)
    distinct, first = np.unique(groups[used], return_index=True)
    folds = np.array([differences[used][groups[used] == group].mean() for group in distinct])
    ratio = np.divide(*sizes[:, used][:, first].sum(axis=1)) if len(folds) else np.nan
    mean, t, standard_error = _t_statistic(folds, float(ratio))
    df = float(len(folds) - 1)
    half = -special.stdtrit(df, (1 - level) / 2) * standard_error if df > 0 else np.nan
    greater, less = (float(special.stdtr(df, -sign * t)) if df > 0 else np.nan for sign in (1, -1))
    return ResampledT(
        mean=mean,
        low=float(mean - half),
        high=float(mean + half),
        t=t,
        df=df,
        p_two_sided=2 * min(greater, less),
        p_greater=greater,
        p_less=less,
        n_folds=len(differences),
        n_distinct=len(folds),
        n_skipped=int((~used).sum()),
    )


def _same_test_sets(test_sets: Sequence[Iterable[int]] | None, n_folds: int) -> NDArray[np.int64]:
    """Number the distinct test sets."""
    if test_sets is None:
        return np.arange(n_folds)
    if len(test_sets) != n_folds:
        raise ValueError(f"{len(test_sets)} test sets were given for {n_folds} folds.")
    numbers: dict[frozenset[int], int] = {}
    return np.array([numbers.setdefault(frozenset(map(int, each)), len(numbers)) for each in test_sets])


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


def exact_mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided exact p-value for two ways of classifying the same scans (McNemar 1947)."""
    from scipy import stats  # takes half a second, and few cohorts need it

    discordant = only_first + only_second
    return float(stats.binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


def adjust_p_values(p_values: ArrayLike) -> FloatArray:
    """Adjust p-values (m,) for the number of tests by their family-wise error (Holm 1979). Raises ValueError."""
    adjusted = np.array(p_values, dtype=np.float64)
    tests = np.isfinite(adjusted)
    if ((adjusted[tests] < 0) | (adjusted[tests] > 1)).any():
        raise ValueError("A p-value lies outside [0, 1].")
    order = np.argsort(adjusted)[: np.count_nonzero(tests)]  # NaN comes last
    adjusted[order] = np.minimum(np.maximum.accumulate(adjusted[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted


@dataclass(frozen=True)
class Bootstrap:
    """Result of `subject_bootstrap`."""

    # mean, sd: (...): the mean over all rows, and the standard deviation of the resampled means
    mean: FloatArray
    sd: FloatArray
    # low, high: (...): percentile limits
    low: FloatArray
    high: FloatArray
    draws: FloatArray  # (B, ...): the resampled means


def subject_bootstrap(
    values: ArrayLike, subjects: ArrayLike | None = None, n_draws: int = 2000, seed: int = 0, level: float = 0.95
) -> Bootstrap:
    """Resample people, each with all their rows of values (N, ...), and take the mean over rows. Raises ValueError."""
    values = np.asarray(values, dtype=np.float64)
    subjects = np.arange(len(values)) if subjects is None else np.asarray(subjects)
    if subjects.shape != values.shape[:1] or not len(values):
        raise ValueError(f"The bootstrap needs one subject for each of the {len(values)} values, and at least one.")
    if not np.isfinite(values).all():
        raise ValueError("The bootstrap was given missing values; leave out the subjects without a value first.")
    labels, numbers, counts = np.unique(subjects.astype(str), return_inverse=True, return_counts=True)
    sums = np.zeros((len(labels), *values.shape[1:]))
    np.add.at(sums, numbers, values)
    weights = np.random.default_rng(seed).multinomial(len(labels), np.full(len(labels), 1 / len(labels)), size=n_draws)
    rows = (weights @ counts).reshape(-1, *[1] * (values.ndim - 1))
    draws = np.tensordot(weights, sums, axes=1) / rows
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Bootstrap(values.mean(axis=0), draws.std(axis=0, ddof=1), low, high, draws)
