"""Scans that are too alike for their names, values that look like codes, and what goes with site and motion."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fcpower_bids.core.arrays import FloatArray

SAME_SIMILARITY, SAME_SCORE = 0.7, 20.0
"""Above both, two scans are one: measured on two cohorts of several sites, 529 scans and 1,068 people."""
EXPONENT = 0.35
"""Of FC^alpha here, whatever the analyses use: the limits were measured there."""
COPY_SHARE = 0.7
"""Few parcels leave a scan and its own copy a score below `SAME_SCORE`; then this share of that score is asked for."""
STRANGE_SCORE = 8.0
"""From here on two people are a place to look: the same person again, or an artefact that a scanner left in both."""
FAR_FROM_MANY = 1.5
"""A scan whose scores with everyone spread wider than this, in units of the cohort's, is odd and not alike to a person:
its scores are divided by what exceeds. Without it people at both ends of a common axis are named, and ever more of them
the larger a cohort is; of 37 people of a real cohort whose second scan gets another name all are still found."""
SWAP_SCORE, SWAP_GAIN = 3.5, 6.0
"""Least score of each of two crossed pairs, and least excess of both together over the pairs as named."""
MISNAMED_GAIN = 4.0
"""By how much a scan must score higher with another person than with its own; 3.0 at most in thirty sound cohorts."""
COPIED = "its connectome is identical to that of"
NEITHER = "neither takes part"
"""In the reason why a scan was left out: equal to the bit, as two scans never are; and of two people."""


Pair = tuple[int, int]
"""Two scans, by their rows."""


class PairScores:
    """(c - median) / (1.4826 MAD) of all pairs, c the double-centred similarity (n, n)."""

    def __init__(self, similarity: ArrayLike, persons: ArrayLike) -> None:
        self.similarity = np.asarray(similarity, dtype=np.float64)
        names, self.persons = np.unique(np.asarray(persons).astype(str), return_inverse=True)
        means = self.similarity.mean(axis=1)
        centred = self.similarity - (means[:, None] + means) + means.mean()
        self.different = self.persons[:, None] != self.persons  # (n, n): whether scans are of different people
        middle, spread = 0.0, float("nan")
        if len(names) >= 4:
            apart = centred[np.triu(self.different, 1)]
            middle = float(np.median(apart))
            spread = 1.4826 * float(np.median(np.abs(apart - middle)))
        self.known = spread > 1e-12
        self.values = (centred - middle) / spread if self.known else np.full(centred.shape, np.nan)  # (n, n)

    def spread(self, row: int) -> float:
        """1.4826 MAD of the scores of one scan with those of other people; 1 for a scan like most."""
        others = self.values[row, self.different[row]]
        return float(1.4826 * np.median(np.abs(others - np.median(others))))


def strange_pairs(scores: PairScores) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Pairs of scans of different people that look like one scan, that stand out, that may; highest scores first."""
    places = np.argwhere(np.triu(scores.different & (scores.values >= STRANGE_SCORE), 1)).tolist()
    pairs = sorted(((i, j) for i, j in places), key=lambda pair: -scores.values[pair])
    wide = {row: max(1.0, scores.spread(row) / FAR_FROM_MANY) for pair in pairs for row in pair}
    same, strange, doubtful = list[Pair](), list[Pair](), list[Pair]()
    for i, j in pairs:
        copy = COPY_SHARE * min(scores.values[i, i], scores.values[j, j])  # a scan and itself are as its copy
        as_one = scores.similarity[i, j] > SAME_SIMILARITY and scores.values[i, j] > min(SAME_SCORE, copy)
        stands_out = scores.values[i, j] >= STRANGE_SCORE * max(wide[i], wide[j])
        if as_one or stands_out:
            (doubtful if not stands_out else same if as_one else strange).append((i, j))
    return same, strange, doubtful


def swapped_scans(scores: PairScores, sessions: ArrayLike) -> list[tuple[Pair, Pair]]:
    """Of people whose scans of two sessions are each other's nearest, crosswise, the pairs that belong together.

    The clearest first; sessions (n,).
    """
    times = np.asarray(sessions).astype(str)
    swaps: list[tuple[float, tuple[Pair, Pair]]] = []
    for earlier, later in combinations(np.unique(times).tolist(), 2) if scores.known else ():
        rows = [{int(scores.persons[row]): int(row) for row in np.flatnonzero(times == at)} for at in (earlier, later)]
        both = sorted(rows[0].keys() & rows[1].keys(), key=list(rows[0]).index)
        if len(both) < 2:
            continue
        first, second = ([of_time[person] for person in both] for of_time in rows)
        between = scores.values[np.ix_(first, second)]
        nearest, seen_from = between.argmax(axis=1), between.argmax(axis=0)
        for a, b in enumerate(nearest.tolist()):
            crossed, named = between[[a, b], [b, a]], between[[a, b], [a, b]]
            mutual = a < b and nearest[b] == a and seen_from[b] == a and seen_from[a] == b
            if mutual and crossed.min() > SWAP_SCORE and crossed.sum() - named.sum() > SWAP_GAIN:
                pairs = (first[a], second[b]), (first[b], second[a])
                swaps.append((float(named.sum() - crossed.sum()), pairs))
    return [pairs for _, pairs in sorted(swaps)]


def misnamed_scans(scores: PairScores) -> list[Pair]:
    """Scans far from the others of their person and near one of another person: labels that moved one way."""
    if not scores.known:
        return []
    likeness = np.where(scores.different, -np.inf, scores.values)
    np.fill_diagonal(likeness, -np.inf)  # a scan is not its own likeness
    others = np.where(scores.different, scores.values, -np.inf)
    nearest, theirs, likeness = others.argmax(axis=1), others.max(axis=1), likeness.max(axis=1)
    gain = theirs - np.where(np.isfinite(likeness), likeness, np.inf)  # who has one scan gains nothing
    rows = np.flatnonzero((gain > MISNAMED_GAIN) & (theirs > SWAP_SCORE))
    return [(int(row), int(nearest[row])) for row in rows[np.argsort(-gain[rows], kind="stable")]]


def aligned_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Mean correlation of parcels of two series (T, P), (U, P), at the shift where it is highest; NaN without any."""
    series = [np.asarray(values, dtype=np.float64) for values in (first, second)]
    usable = np.all([np.isfinite(values).all(axis=0) & (np.ptp(values, axis=0) > 0) for values in series], axis=0)
    if not usable.any():
        return float("nan")
    left, right = (
        (values[:, usable] - values[:, usable].mean(axis=0)) / values[:, usable].std(axis=0) for values in series
    )
    length = len(left) + len(right) - 1
    spectrum = (np.fft.rfft(left, length, axis=0) * np.conj(np.fft.rfft(right, length, axis=0))).sum(axis=1)
    shifts = np.arange(-(len(right) - 1), len(left))
    overlap = np.minimum(len(left), shifts + len(right)) - np.maximum(0, shifts)
    enough = overlap >= min(len(left), len(right)) / 2
    products = np.fft.irfft(spectrum, length)[shifts] / (overlap * usable.sum())
    return float(products[enough].max())


# --- Values of phenotypes ---------------------------------------------------------------------------------------------

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
        gap, usual = np.abs(others - distinct[end]).min(), np.quantile(np.diff(others), 0.9)
        apart = any(gap > share * np.ptp(others) and gap > times * usual for share, times in GAPS)
        repeated = len(others) >= FEWEST_DISTINCT and (counts[end] >= FEWEST_REPEATS or code)
        if negative or (repeated and apart):
            codes.append((float(distinct[end]), int(counts[end])))
    return codes


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
