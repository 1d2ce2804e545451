"""Scans that are too alike, and groups of people that can be recognised from their connectomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.differences import permutation_p_value
from fcpower_bids.core.regression.kernels import FeatureSource

FOLDS = 5
FEWEST_OF_A_GROUP = FOLDS
"""Smaller groups are left out: each fold should have one of every group."""
PENALTY = 0.1
"""In units of the mean diagonal of the centred kernel; the answer hardly depends on it."""
PERMUTATIONS = 399


@dataclass(frozen=True)
class Recognition:
    """How many members of a group are recognised as such."""

    # share of the members of a group who are assigned to it, mean over groups; NaN where there are not two groups
    share: float
    p: float  # (1 + permutations at least as good) / (1 + permutations); NaN likewise
    # n, n_groups: people and groups
    n: int
    n_groups: int


def recognise_groups(
    kernel: ArrayLike, groups: ArrayLike, n_permutations: int = PERMUTATIONS, seed: int = 0
) -> Recognition:
    """Assign people to groups (n,) of five or more by ridge on a kernel (n, n) of the others; permuted labels."""
    _, numbers, sizes = np.unique(np.asarray(groups).astype(str), return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes[numbers] >= FEWEST_OF_A_GROUP)
    _, labels = np.unique(numbers[kept], return_inverse=True)
    n_groups = int(labels.max(initial=-1)) + 1
    if n_groups < 2:
        return Recognition(float("nan"), float("nan"), len(kept), n_groups)
    rng = np.random.default_rng(seed)
    smoother = _smoother(np.asarray(kernel, dtype=np.float64)[np.ix_(kept, kept)], rng)
    share = _recognised(smoother, labels)
    null = [_recognised(smoother, rng.permutation(labels)) for _ in range(n_permutations)]
    return Recognition(share, permutation_p_value(share, null), len(kept), n_groups)


def compare_spread(kernel: ArrayLike, groups: ArrayLike, n_permutations: int = 999, seed: int = 0) -> Recognition:
    """Compare distances from the mean of the others between two groups (Anderson 2006); kernel (n, n), groups (n,)."""
    values = np.asarray(kernel, dtype=np.float64)
    labels = np.unique(np.asarray(groups).astype(str), return_inverse=True)[1]
    sizes = np.bincount(labels)
    if len(sizes) != 2 or sizes.min() < FEWEST_OF_A_GROUP:
        return Recognition(float("nan"), float("nan"), len(labels), len(sizes))
    distances = np.zeros(len(labels))
    for group, size in enumerate(sizes.tolist()):
        rows = np.flatnonzero(labels == group)
        own = values[np.ix_(rows, rows)]
        others = own.sum(axis=1) - np.diag(own)
        within = (own.sum() - 2 * others - np.diag(own)) / (size - 1) ** 2
        squares = np.diag(own) - 2 * others / (size - 1) + within
        distances[rows] = np.sqrt(np.maximum(squares, 0) * (size - 1) / size)
    rng, first = np.random.default_rng(seed), labels == 0
    null = [abs(_log_ratio(distances, rng.permutation(first))) for _ in range(n_permutations)]
    p = permutation_p_value(abs(_log_ratio(distances, first)), null)
    return Recognition(float(np.exp(_log_ratio(distances, first))), p, len(labels), 2)


def compare_sources(
    kernel: ArrayLike, first: ArrayLike, second: ArrayLike, n_flips: int = 999, seed: int = 0
) -> Recognition:
    """Whether the same people change in one direction between two sources, by sign flips; kernel (n, n), rows (m,)."""
    values, one, other = np.asarray(kernel, dtype=np.float64), np.asarray(first), np.asarray(second)
    changes = values[np.ix_(one, one)] - values[np.ix_(one, other)]
    changes += values[np.ix_(other, other)] - values[np.ix_(other, one)]
    own, m = float(np.trace(changes)), len(changes)
    if m < 2 or own <= 0:
        return Recognition(float("nan"), float("nan"), m, 2)
    flips = np.random.default_rng(seed).choice([-1.0, 1.0], (n_flips, m))
    null = np.einsum("fm,fm->f", flips @ changes, flips)
    p = permutation_p_value(float(changes.sum()), null)
    return Recognition((float(changes.sum()) - own) / ((m - 1) * own), p, m, 2)


def _log_ratio(distances: FloatArray, first: NDArray[np.bool_]) -> float:
    return float(np.log(distances[~first].mean() / distances[first].mean()))


def _smoother(kernel: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Linear map (n, n) from centred labels to out-of-fold predictions."""
    centred = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    penalty = PENALTY * np.trace(centred) / len(centred)
    folds = rng.permutation(np.arange(len(centred)) % FOLDS)
    smoother = np.zeros_like(centred)
    for fold in range(FOLDS):
        test, train = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        block = centred[np.ix_(train, train)] + penalty * np.eye(len(train))
        smoother[np.ix_(test, train)] = linalg.solve(block, centred[np.ix_(train, test)], assume_a="pos").T
    return smoother


def _recognised(smoother: FloatArray, labels: NDArray[np.intp]) -> float:
    """Share of the members of a group who score highest for it, mean over groups; small groups weigh as large ones."""
    members = np.eye(labels.max() + 1)[labels]
    sizes = members.sum(axis=0)
    scores = smoother @ ((members - sizes / len(labels)) / np.sqrt(sizes))
    return float(np.mean(np.bincount(labels, scores.argmax(axis=1) == labels) / sizes))


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

STRIP_NUMBERS = 2**22
"""Scores that are looked at together: 34 MB."""
REACH, BINS = 8.0, 2**18
"""Where values are counted: no double-centred correlation is beyond 4, so no two are further apart than 8."""


@dataclass(frozen=True)
class Pair:
    """Two scans, by their rows."""

    first: int
    second: int
    similarity: float  # Pearson correlation of their features
    # the double-centred similarity in robust standard deviations from the median of pairs of different people
    score: float


@dataclass(frozen=True)
class Swap:
    """Two people whose scans fit each other's better than their own."""

    pairs: tuple[tuple[int, int], tuple[int, int]]  # the rows that belong together by their similarity
    # crossed, named: mean score of these pairs, and of the pairs as they are named
    crossed: float
    named: float


class PairScores:
    """(c - median) / (1.4826 MAD) of all pairs, c the double-centred similarity (n, n), a few rows at a time."""

    def __init__(self, similarity: FeatureSource, persons: ArrayLike) -> None:
        self.similarity = similarity
        names, self.persons = np.unique(np.asarray(persons).astype(str), return_inverse=True)
        self._means = np.concatenate([self._kernel(rows).mean(axis=1) for rows in self.strips()])
        self._mean, self._middle, self._spread = float(self._means.mean()), 0.0, float("nan")
        if len(names) >= 4:
            self._middle = median_of_parts(self._apart, REACH)
            self._spread = 1.4826 * median_of_parts(
                lambda: (np.abs(each - self._middle) for each in self._apart()), REACH
            )
        self.known = self._spread > 1e-12

    def strips(self) -> Iterator[slice]:
        """All rows, a few at a time."""
        n = self.similarity.shape[0]
        height = max(1, STRIP_NUMBERS // n)
        return (slice(start, min(start + height, n)) for start in range(0, n, height))

    def rows(self, rows: slice | Rows) -> FloatArray:
        """Scores of some scans with all, shape (rows, n)."""
        if not self.known:
            return np.full((len(self._means[rows]), len(self._means)), np.nan)
        scores = self._centred(rows)
        scores -= self._middle
        scores /= self._spread
        return scores

    def pair(self, first: int, second: int) -> Pair:
        """Two scans with their similarity and score, which is that of `rows` to the bit."""
        similarity = float(self.similarity[first : first + 1, second : second + 1][0, 0])
        centred = similarity - (self._means[first] + self._means[second]) + self._mean
        return Pair(first, second, similarity, float((centred - self._middle) / self._spread))

    def different(self, rows: slice | Rows) -> NDArray[np.bool_]:
        """Whether the scans of each pair are of different people, shape (rows, n)."""
        return np.asarray(self.persons[rows][:, None] != self.persons)

    @property
    def own(self) -> FloatArray:
        """Score of each scan with itself, shape (n,): that of its copy."""
        return np.concatenate([np.diagonal(self.rows(rows)[:, rows]).copy() for rows in self.strips()])

    def _kernel(self, rows: slice | Rows) -> FloatArray:
        return np.array(self.similarity[rows, :], dtype=np.float64)

    def _centred(self, rows: slice | Rows) -> FloatArray:
        centred = self._kernel(rows)
        centred -= self._means[rows][:, None] + self._means
        centred += self._mean
        return centred

    def _apart(self) -> Iterator[FloatArray]:
        """Yield the double-centred similarities of pairs of different people, each once."""
        numbers = np.arange(len(self._means))
        for rows in self.strips():
            yield self._centred(rows)[self.different(rows) & (numbers > numbers[rows][:, None])]


def median_of_parts(parts: Callable[[], Iterable[FloatArray]], reach: float) -> float:
    """Median, to the bit, of values that come in parts and do not fit into memory: bins are counted, then sorted."""
    counts = np.zeros(BINS, dtype=np.int64)
    for part in parts():
        places = ((part + reach) * (BINS / (2 * reach))).astype(np.intp)
        counts += np.bincount(places.clip(0, BINS - 1), minlength=BINS)
    up_to = counts.cumsum()
    middle = np.array([(up_to[-1] - 1) // 2, up_to[-1] // 2])
    first, last = np.searchsorted(up_to, middle, side="right").tolist()
    low, high = ((edge * 2 * reach / BINS) - reach for edge in (first - 1, last + 2))  # a bin more, for rounding
    below, held = 0, []
    for part in parts():
        below += int((part < low).sum())
        held.append(part[(part >= low) & (part <= high)])
    return float(np.partition(np.concatenate(held), middle - below)[middle - below].mean())


def strange_pairs(scores: PairScores) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Pairs of scans of different people that look like one scan, and doubtful ones; the highest score first."""
    pairs = [
        scores.pair(rows.start + row, other)
        for rows in (scores.strips() if scores.known else ())
        for row, other in np.argwhere(scores.different(rows) & (scores.rows(rows) >= STRANGE_SCORE)).tolist()
        if rows.start + row < other
    ]
    pairs.sort(key=lambda pair: -pair.score)
    odd = sorted({row for pair in pairs for row in (pair.first, pair.second)})
    spread = {row: _spread(scores, row) for row in odd}
    own = scores.own if pairs else np.empty(0)
    same: list[Pair] = []
    strange: list[Pair] = []
    doubtful: list[Pair] = []
    for pair in pairs:
        i, j = pair.first, pair.second
        as_one = pair.similarity > SAME_SIMILARITY and pair.score > min(SAME_SCORE, COPY_SHARE * min(own[i], own[j]))
        stands_out = pair.score >= STRANGE_SCORE * max(1.0, spread[i] / FAR_FROM_MANY, spread[j] / FAR_FROM_MANY)
        if as_one or stands_out:
            (doubtful if not stands_out else same if as_one else strange).append(pair)
    return same, strange, doubtful


def _spread(scores: PairScores, row: int) -> float:
    """1.4826 MAD of the scores of one scan with those of other people; 1 for a scan like most."""
    one = slice(row, row + 1)
    others = scores.rows(one)[scores.different(one)]
    return float(1.4826 * np.median(np.abs(others - np.median(others))))


def swapped_scans(scores: PairScores, sessions: ArrayLike) -> list[Swap]:
    """People whose scans of two sessions are each other's nearest, crosswise, the clearest first; sessions (n,)."""
    times = np.asarray(sessions).astype(str)
    if not scores.known:
        return []
    found = []
    for first, second in combinations(np.unique(times).tolist(), 2):
        one, other = ({int(scores.persons[row]): row for row in np.flatnonzero(times == at)} for at in (first, second))
        both = [person for person in one if person in other]
        rows = (np.array([of_person[person] for person in both], dtype=np.intp) for of_person in (one, other))
        found += list(_crossed(scores, *rows))
    return sorted(found, key=lambda swap: swap.named - swap.crossed)


def misnamed_scans(scores: PairScores) -> list[tuple[int, int]]:
    """Scans far from the others of their person and near one of another person: labels that moved one way."""
    found = []
    for rows in scores.strips() if scores.known else ():
        block, different = scores.rows(rows), scores.different(rows)
        others = np.where(different, block, -np.inf)
        np.einsum("ii->i", block[:, rows])[:] = -np.inf  # a scan is not its own likeness
        own = np.where(different, -np.inf, block).max(axis=1)
        nearest, theirs = others.argmax(axis=1), others.max(axis=1)
        gain = np.where(np.isfinite(own), theirs - own, -np.inf)
        for row in np.flatnonzero((gain > MISNAMED_GAIN) & (theirs > SWAP_SCORE)).tolist():
            found.append((float(gain[row]), rows.start + row, int(nearest[row])))
    return [(row, other) for _, row, other in sorted(found, key=lambda each: -each[0])]


def _crossed(scores: PairScores, first: Rows, second: Rows) -> Iterator[Swap]:
    if len(first) < 2:
        return
    nearest, seen_from = _nearest(scores, first, second), _nearest(scores, second, first)
    for a, b in enumerate(nearest.tolist()):
        mutual = nearest[b] == a and seen_from[b] == a and seen_from[a] == b
        if a >= b or not mutual:
            continue
        pairs = ((int(first[a]), int(second[b])), (int(first[b]), int(second[a])))
        crossed = np.array([scores.pair(*pair).score for pair in pairs])
        named = np.array([scores.pair(int(first[each]), int(second[each])).score for each in (a, b)])
        if crossed.min() > SWAP_SCORE and crossed.sum() - named.sum() > SWAP_GAIN:
            yield Swap(pairs, float(crossed.mean()), float(named.mean()))


def _nearest(scores: PairScores, scans: Rows, among: Rows) -> Rows:
    """Place, among some scans, of the one that each scan is most alike to."""
    height = max(1, STRIP_NUMBERS // len(scores.persons))
    parts = (scans[start : start + height] for start in range(0, len(scans), height))
    return np.concatenate([scores.rows(part)[:, among].argmax(axis=1) for part in parts])


def aligned_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Mean correlation of parcels of two series (T, P), (U, P), at the shift where it is highest; NaN without any."""
    series = [np.asarray(each, dtype=np.float64) for each in (first, second)]
    usable = np.all([np.isfinite(each).all(axis=0) & (np.ptp(each, axis=0) > 0) for each in series], axis=0)
    if not usable.any():
        return float("nan")
    one, two = ((each[:, usable] - each[:, usable].mean(axis=0)) / each[:, usable].std(axis=0) for each in series)
    length = len(one) + len(two) - 1
    spectrum = (np.fft.rfft(one, length, axis=0) * np.conj(np.fft.rfft(two, length, axis=0))).sum(axis=1)
    shifts = np.arange(-(len(two) - 1), len(one))
    overlap = np.minimum(len(one), shifts + len(two)) - np.maximum(0, shifts)
    enough = overlap >= min(len(one), len(two)) / 2
    products = np.fft.irfft(spectrum, length)[shifts] / (overlap * usable.sum())
    return float(products[enough].max())
