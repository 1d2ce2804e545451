"""Values of a phenotype that look like codes, and its association with site, scan length and motion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fcpower_bids.core.arrays import FloatArray

FEWEST_DISTINCT = 8
"""With fewer other values an extreme answer is one of a scale."""
FEWEST_REPEATS, FEWEST_NEGATIVE = 3, 2
GAPS = ((0.1, 3.0), (0.25, 2.0))
"""A code lies apart from the next value by this share of the others' range and this often their wider gaps; either."""


def repeated_extremes(values: ArrayLike) -> list[tuple[float, int]]:
    """Values (n,) that repeat and stand apart, or are the only negative ones (-1, 99, -818), and how often."""
    known = np.asarray(values, dtype=np.float64)
    distinct, counts = np.unique(known[np.isfinite(known)], return_counts=True)
    codes = []
    for end in (0, -1):
        if len(distinct) < 3:
            continue
        others = distinct[1:] if end == 0 else distinct[:-1]
        text = f"{abs(distinct[end]):g}"  # all 7, 8 or 9, of three digits or more at the upper end; a negative -1 too
        code = len(text) >= (3 if end else 1) and set(text) in ({"7"}, {"8"}, {"9"})
        if distinct[end] < 0:
            code = text == "1" or set(text) in ({"8"}, {"9"})
        only_negative = end == 0 and distinct[0] < 0 <= distinct[1] and float(distinct[0]).is_integer()
        negative = (counts[end] >= FEWEST_NEGATIVE or code) and only_negative
        if negative or ((counts[end] >= FEWEST_REPEATS or code) and _apart(distinct[end], others)):
            codes.append((float(distinct[end]), int(counts[end])))
    return codes


def _apart(value: float, others: FloatArray) -> bool:
    if len(others) < FEWEST_DISTINCT:
        return False
    gap = float(np.abs(others - value).min())
    usual = float(np.quantile(np.diff(others), 0.9))
    return any(gap > share * float(np.ptp(others)) and gap > times * usual for share, times in GAPS)


@dataclass(frozen=True)
class Association:
    """How much of a variable goes with another."""

    size: float  # share of the variance between groups (eta squared), or Spearman's rho
    p: float  # of the F test, or of rho; NaN where it is not defined
    n: int  # people with both


def group_share(values: ArrayLike, groups: ArrayLike) -> Association:
    """Share of the variance of values (n,) that lies between groups (n,), and the F test of one-way ANOVA."""
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
    return Association(share, float(special.fdtrc(n_groups - 1, n - n_groups, f)), n)


def rank_correlation(values: FloatArray, others: FloatArray) -> float:
    """Spearman's correlation of two variables of shape (n,), ties at their mean rank; scipy.stats loads for .5 s."""
    ranks = []
    for variable in (values, others):
        _, places, counts = np.unique(variable, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[places])
    return float(np.asarray(np.corrcoef(np.column_stack(ranks), rowvar=False))[1, 0])


def rank_association(values: ArrayLike, others: ArrayLike) -> Association:
    """Spearman's correlation of two variables of shape (n,), over the people who have both."""
    first, second = (np.asarray(variable, dtype=np.float64) for variable in (values, others))
    both = np.isfinite(first) & np.isfinite(second)
    first, second = first[both], second[both]
    if len(first) < 4 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Association(float("nan"), float("nan"), len(first))
    r, df = rank_correlation(first, second), len(first) - 2
    p = 2 * special.stdtr(df, -abs(r) * np.sqrt(df / ((1 + r) * (1 - r)))) if abs(r) < 1 else 0.0
    return Association(r, float(p), len(first))
