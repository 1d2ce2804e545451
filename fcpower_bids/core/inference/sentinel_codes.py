"""Values of a phenotype that look like codes, and its association with site, scan length and motion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fcpower_bids.core.arrays import FloatArray

FEWEST_DISTINCT = 8
"""With fewer other values an extreme answer is one of a scale."""
FEWEST_REPEATS, FEWEST_NEGATIVE = 3, 2
GAPS = ((0.1, 3.0), (0.25, 2.0))
"""A code lies apart from the next value by this share of the others' range and this often their wider gaps; either."""


def repeated_extremes(values: ArrayLike) -> list[tuple[float, int]]:
    """Find values that repeat and stand apart, or are the only negative ones, such as -1, 99, 0 and -818.

    Parameters
    ----------
    values : array_like, shape (n,)
        NaN is missing.

    Returns
    -------
    list of (float, int)
        Value and how often it is there; empty for a variable that looks as it should.
    """
    known = np.asarray(values, dtype=np.float64)
    distinct, counts = np.unique(known[np.isfinite(known)], return_counts=True)
    found = []
    for end in (0, -1):
        if len(distinct) < 3:
            continue
        others = distinct[1:] if end == 0 else distinct[:-1]
        negative = counts[end] >= FEWEST_NEGATIVE and _only_negative(distinct, end)
        if negative or (counts[end] >= FEWEST_REPEATS and _apart(distinct[end], others)):
            found.append((float(distinct[end]), int(counts[end])))
    return found


def _only_negative(distinct: FloatArray, end: int) -> bool:
    return bool(end == 0 and distinct[0] < 0 <= distinct[1] and float(distinct[0]).is_integer())


def _apart(value: float, others: FloatArray) -> bool:
    if len(others) < FEWEST_DISTINCT:
        return False
    gap = float(np.abs(others - value).min())
    usual = float(np.quantile(np.diff(others), 0.9))
    return any(gap > share * float(np.ptp(others)) and gap > times * usual for share, times in GAPS)


@dataclass(frozen=True)
class Association:
    """How much of a variable goes with another.

    Attributes
    ----------
    size : float
        Share of the variance between groups (eta squared), or Spearman's rho.
    p : float
        Of the F test, or of rho; NaN where it is not defined.
    n : int
        People with both.
    """

    size: float
    p: float
    n: int


def group_share(values: ArrayLike, groups: ArrayLike) -> Association:
    """Share of the variance of a variable that lies between groups, and the F test of one-way analysis of variance.

    Parameters
    ----------
    values : array_like, shape (n,)
        NaN is missing.
    groups : array_like of str, shape (n,)
    """
    known = np.asarray(values, dtype=np.float64)
    labels = np.asarray(groups).astype(str)[np.isfinite(known)]
    known = known[np.isfinite(known)]
    _, numbers = np.unique(labels, return_inverse=True)
    n, n_groups = len(known), int(numbers.max()) + 1 if len(known) else 0
    total = float(((known - known.mean()) ** 2).sum()) if n else 0.0
    if n_groups < 2 or n <= n_groups or total <= 0:
        return Association(float("nan"), float("nan"), n)
    means = np.bincount(numbers, known) / np.bincount(numbers)
    within = float(((known - means[numbers]) ** 2).sum())
    share = 1 - within / total
    if within <= 1e-12 * total:
        return Association(1.0, 0.0, n)
    f = (total - within) / (n_groups - 1) / (within / (n - n_groups))
    return Association(share, float(stats.f.sf(f, n_groups - 1, n - n_groups)), n)


def one_class_groups(values: ArrayLike, groups: ArrayLike, level: float) -> list[str]:
    """Groups with only one of two classes that chance would hardly make so.

    The chance is that of drawing a group of that size from all people without the other class (hypergeometric), and is
    compared with ``level`` over the number of groups.

    Parameters
    ----------
    values : array_like, shape (n,)
        Two numbers; NaN is missing.
    groups : array_like of str, shape (n,)
    level : float
    """
    known = np.asarray(values, dtype=np.float64)
    labels = np.asarray(groups).astype(str)[np.isfinite(known)]
    positive = known[np.isfinite(known)] == np.nanmax(known)
    n, total = len(positive), int(positive.sum())
    found = []
    for name in np.unique(labels).tolist():
        own = positive[labels == name]
        size = len(own)
        chance = sum(stats.hypergeom.pmf(size, n, k, size) for k in (total, n - total))
        if own.all() != own.any():
            continue
        if chance < level / len(np.unique(labels)):
            found.append(name)
    return found


def rank_association(values: ArrayLike, others: ArrayLike) -> Association:
    """Spearman's correlation of two variables of shape (n,), over the people who have both."""
    first, second = (np.asarray(each, dtype=np.float64) for each in (values, others))
    both = np.isfinite(first) & np.isfinite(second)
    first, second = first[both], second[both]
    if len(first) < 4 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Association(float("nan"), float("nan"), len(first))
    found = stats.spearmanr(first, second)
    return Association(float(found.statistic), float(found.pvalue), len(first))
