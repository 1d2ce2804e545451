"""Scans that are too much alike for their names: one scan under two names, sessions that were exchanged.

The similarity of FC^alpha at 0.35 between people is bimodal: two scans of different people, the same person again, and
the same scan (even processed otherwise) lie far apart once what all share is taken off. Scores are in robust standard
deviations of the pairs of different people, so that they mean the same in every cohort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

SAME_SIMILARITY, SAME_SCORE = 0.7, 20.0
"""Above both, two scans are one: measured on two cohorts of several sites, 529 scans and 1,068 people."""
COPY_SHARE = 0.7
"""Few parcels leave a scan and its own copy a score below `SAME_SCORE`; then this share of that score is asked for."""
STRANGE_SCORE = 8.0
"""From here on two people are a place to look: the same person again, or an artefact that a scanner left in both."""
FAR_FROM_MANY = 1.5
"""A scan whose scores with everyone spread wider than this, in units of the cohort's, is odd and not alike to somebody:
its scores are divided by what exceeds. Without it people at both ends of a common axis are named, and ever more of them
the larger a cohort is; of 37 people of a real cohort whose second scan gets another name all are still found."""
SWAP_SCORE, SWAP_GAIN = 3.5, 6.0
"""What each of two crossed pairs must score, and by how much both together must exceed the pairs as they are named."""

MISNAMED_GAIN = 4.0
"""By how much a scan must score higher with another person than with its own; 3.0 at most in thirty sound cohorts."""


@dataclass(frozen=True)
class Pair:
    """Two scans, by their rows.

    Attributes
    ----------
    first, second : int
    similarity : float
        Pearson correlation of their features.
    score : float
        The double-centred similarity in robust standard deviations from the median of pairs of different people.
    """

    first: int
    second: int
    similarity: float
    score: float


@dataclass(frozen=True)
class Swap:
    """Two people whose scans fit each other's better than their own.

    Attributes
    ----------
    pairs : tuple of (int, int)
        The rows that belong together by their similarity.
    crossed, named : float
        Mean score of these pairs, and of the pairs as they are named.
    """

    pairs: tuple[tuple[int, int], tuple[int, int]]
    crossed: float
    named: float


def pair_scores(similarity: ArrayLike, persons: ArrayLike) -> Array:
    """Score every pair of scans: (c - median) / (1.4826 MAD), c the double-centred similarity.

    Parameters
    ----------
    similarity : array_like, shape (N, N)
        Correlation kernel of the scans.
    persons : array_like, shape (N,)
        Whose scans they are; median and MAD are those of the pairs of different people.

    Returns
    -------
    ndarray of float64, shape (N, N)
        NaN everywhere with fewer than four people, or where all pairs of different people are alike.
    """
    kernel = np.asarray(similarity, dtype=np.float64)
    labels = np.asarray(persons).astype(str)
    centred = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    apart = np.triu(labels[:, None] != labels, 1)
    if len(np.unique(labels)) < 4:
        return np.full(kernel.shape, np.nan)
    values = centred[apart]  # from here on in place: of a large cohort there is no room for many of these
    middle = np.median(values, overwrite_input=True)
    values -= middle
    spread = 1.4826 * np.median(np.abs(values, out=values), overwrite_input=True)
    if spread <= 1e-12:
        return np.full(kernel.shape, np.nan)
    centred -= middle
    centred /= spread
    return np.asarray(centred)


def strange_pairs(similarity: ArrayLike, scores: Array, persons: ArrayLike) -> tuple[list[Pair], list[Pair]]:
    """Find pairs of scans of different people that look like one scan, and those that are a place to look.

    Parameters
    ----------
    similarity : array_like, shape (N, N)
    scores : ndarray, shape (N, N)
        From `pair_scores`.
    persons : array_like, shape (N,)

    Returns
    -------
    same, strange : list of Pair
        The highest score first. A strange pair stands out among the scores of both of its scans too.
    """
    kernel, labels = np.asarray(similarity, dtype=np.float64), np.asarray(persons).astype(str)
    first, second = np.nonzero(np.triu((labels[:, None] != labels) & (scores >= STRANGE_SCORE), 1))
    own = np.diag(scores)
    spread = {row: _spread(scores[row, labels != labels[row]]) for row in {*first.tolist(), *second.tolist()}}
    same: list[Pair] = []
    strange: list[Pair] = []
    for i, j in sorted(zip(first.tolist(), second.tolist(), strict=True), key=lambda pair: -scores[pair]):
        pair = Pair(i, j, float(kernel[i, j]), float(scores[i, j]))
        wanted = min(SAME_SCORE, COPY_SHARE * min(own[i], own[j]))
        if pair.similarity > SAME_SIMILARITY and pair.score > wanted:
            same.append(pair)
        elif pair.score >= STRANGE_SCORE * max(1.0, spread[i] / FAR_FROM_MANY, spread[j] / FAR_FROM_MANY):
            strange.append(pair)
    return same, strange


def _spread(scores: Array) -> float:
    """1.4826 MAD of the scores of one scan with those of other people; 1 for a scan like most."""
    return float(1.4826 * np.median(np.abs(scores - np.median(scores))))


def swapped_scans(scores: Array, persons: ArrayLike, sessions: ArrayLike) -> list[Swap]:
    """Find people whose scans of two sessions are each other's nearest, crosswise.

    Parameters
    ----------
    scores : ndarray, shape (N, N)
        From `pair_scores`.
    persons, sessions : array_like, shape (N,)
        One scan per person and session.

    Returns
    -------
    list of Swap
        For every pair of sessions, the clearest first.
    """
    labels, times = np.asarray(persons).astype(str), np.asarray(sessions).astype(str)
    if not np.isfinite(scores).all():
        return []
    found = []
    for first, second in combinations(np.unique(times).tolist(), 2):
        found += list(_crossed(scores, *_rows_of_both(labels, times, first, second)))
    return sorted(found, key=lambda swap: swap.named - swap.crossed)


def misnamed_scans(scores: Array, persons: ArrayLike) -> list[tuple[int, int]]:
    """Find scans that are far from the other scans of their person and near a scan of somebody else.

    Labels that were exchanged between two people are `swapped_scans`; this finds those that moved in one direction.

    Parameters
    ----------
    scores : ndarray, shape (N, N)
        From `pair_scores`.
    persons : array_like, shape (N,)

    Returns
    -------
    list of (int, int)
        The scan, and the scan of somebody else that it is nearest to; the clearest first.
    """
    labels = np.asarray(persons).astype(str)
    if not np.isfinite(scores).all():
        return []
    same = labels[:, None] == labels
    others = np.where(same, -np.inf, scores)
    own = np.where(same & ~np.eye(len(labels), dtype=bool), scores, -np.inf).max(axis=1, initial=-np.inf)
    nearest = others.argmax(axis=1)
    theirs = others.max(axis=1)
    gain = np.where(np.isfinite(own), theirs - own, -np.inf)
    rows = np.flatnonzero((gain > MISNAMED_GAIN) & (theirs > SWAP_SCORE))
    return [(int(row), int(nearest[row])) for row in rows[np.argsort(-gain[rows], kind="stable")]]


def _rows_of_both(labels: NDArray[np.str_], times: NDArray[np.str_], first: str, second: str) -> tuple[Rows, Rows]:
    rows = [{labels[row]: row for row in np.flatnonzero(times == session)} for session in (first, second)]
    both = [person for person in rows[0] if person in rows[1]]
    return tuple(np.array([each[person] for person in both], dtype=np.intp) for each in rows)  # type: ignore[return-value]


def _crossed(scores: Array, first: Rows, second: Rows) -> Iterator[Swap]:
    if len(first) < 2:
        return
    block = scores[np.ix_(first, second)]
    nearest, seen_from = block.argmax(axis=1), block.argmax(axis=0)
    for a, b in enumerate(nearest.tolist()):
        mutual = nearest[b] == a and seen_from[b] == a and seen_from[a] == b
        if a >= b or not mutual:
            continue
        crossed, named = np.array([block[a, b], block[b, a]]), np.array([block[a, a], block[b, b]])
        if crossed.min() > SWAP_SCORE and crossed.sum() - named.sum() > SWAP_GAIN:
            pairs = ((int(first[a]), int(second[b])), (int(first[b]), int(second[a])))
            yield Swap(pairs, float(crossed.mean()), float(named.mean()))


def aligned_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Correlation of two recordings parcel by parcel, at the shift where it is highest.

    Independent recordings stay near zero whatever their connectomes; one recording that was cut or cleaned in two ways
    does not.

    Parameters
    ----------
    first, second : array_like, shape (T, P) and (U, P)
        Series with the same repetition time; parcels with missing values are left out.

    Returns
    -------
    float
        Highest mean over parcels among the shifts that leave an overlap of half the shorter recording or more; NaN
        without a parcel.
    """
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
