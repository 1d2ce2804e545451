"""Identification of people from repeated scans, and how repeatable features and predictions are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import permutations as ordered_pairs

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fcpower_bids.core.arrays import FloatArray, Labels
from fcpower_bids.core.differences import Bootstrap, exact_mcnemar, sign_flip_p_value, subject_bootstrap, sum_by_block
from fcpower_bids.errors import Unfit

Rows = NDArray[np.int64]
FEWEST_MISSES = 5
"""People with a miss, and with a hit, from which on their searches say how alike those of a person are."""


@dataclass(frozen=True)
class Identification:
    """One row per search, every array of shape (Q,)."""

    person: Labels  # whose scan
    session: Labels  # of which session
    searched: Labels  # looked in which other session
    matched: Labels  # the most similar person there; among equals the own person if possible, else the first
    similarity: FloatArray  # to the match
    own_similarity: FloatArray  # to the own scan
    rank: Rows  # 1 + number of other people who are more similar than the person's own scan
    credit: FloatArray  # 1 if the own scan alone is the most similar, 1/k if it ties with k - 1 others, else 0
    candidates: Rows  # people searched

    @property
    def accuracy(self) -> float:
        """Mean credit over all searches."""
        return float(self.credit.mean())

    @property
    def chance(self) -> float:
        """Expected accuracy of guessing: 1 / n, averaged over the searches."""
        return float((1 / self.candidates).mean())

    def by_direction(self) -> dict[tuple[str, str], float]:
        """Accuracy of each ordered pair of sessions (session, searched)."""
        pairs = sorted(set(zip(self.session.tolist(), self.searched.tolist(), strict=True)))
        return {(a, b): float(self.credit[(self.session == a) & (self.searched == b)].mean()) for a, b in pairs}

    def interval(self, families: Mapping[str, str] | None = None, level: float = 0.95) -> tuple[float, float, float]:
        """SE of the accuracy, and Wilson's interval with as many searches as have this SE (Korn and Graubard 1998)."""
        _, units, sizes = np.unique(units_of(self.person, families), return_inverse=True, return_counts=True)
        hits, n_units, share = np.bincount(units, self.credit), len(sizes), self.accuracy
        if n_units < 2:
            return np.nan, np.nan, np.nan
        variance = ((hits - share * sizes) ** 2).sum() / len(units) ** 2 * n_units / (n_units - 1)
        n, rare = float(n_units), min((hits > 0).sum(), (hits < sizes).sum())
        if rare >= FEWEST_MISSES and variance > 0:
            n = float(np.clip(share * (1 - share) / variance, n_units, len(units)))
        z = float(-special.ndtri((1 - level) / 2))
        n *= (z / float(-special.stdtrit(n_units - 1, (1 - level) / 2))) ** 2
        half = z * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        low, high = np.clip((share + z**2 / (2 * n) + np.array([-half, half])) / (1 + z**2 / n), 0, 1)
        return float(np.sqrt(variance)), float(min(low, share)), float(max(high, share))


def units_of(persons: Labels, families: Mapping[str, str] | None) -> Labels:
    """Family of each person, or the persons themselves where there are none; shape (Q,)."""
    return persons if families is None else np.array([families[person] for person in persons.tolist()], dtype=str)


def scan_labels(persons: ArrayLike, sessions: ArrayLike, n: int) -> tuple[Labels, Labels]:
    """Return the labels as strings; refuse what would make a scan ambiguous."""
    persons, sessions = np.asarray(persons).astype(str), np.asarray(sessions).astype(str)
    if persons.shape != (n,) or sessions.shape != (n,):
        raise ValueError(f"Identification needs one person and one session label for each of the {n} scans.")
    scans = Counter(zip(persons.tolist(), sessions.tolist(), strict=True))
    for (person, session), number in scans.items() if len(scans) < n else ():
        if number > 1:
            raise Unfit(f"Person '{person}' has several scans in session '{session}': combine or rename them.")
    return persons, sessions


def _session_pairs(persons: Labels, sessions: Labels) -> Iterator[tuple[str, str, Rows, Rows]]:
    """Yield ordered pairs of sessions with the rows of the people who have both, in the same order of people."""
    rows = {
        session: dict(zip(persons[sessions == session].tolist(), np.flatnonzero(sessions == session), strict=True))
        for session in np.unique(sessions).tolist()
    }
    for first, second in ordered_pairs(rows, 2):
        both = [person for person in rows[first] if person in rows[second]]
        if len(both) > 1:
            yield first, second, np.array([rows[first][p] for p in both]), np.array([rows[second][p] for p in both])


def _check_similarity(similarity: ArrayLike) -> FloatArray:
    similarity = np.asarray(similarity, dtype=np.float64)
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"A similarity matrix must be square, not of shape {similarity.shape}.")
    if not np.isfinite(similarity).all():
        scan = int(np.flatnonzero(~np.isfinite(similarity).all(axis=1))[0])
        raise ValueError(f"Scan {scan} (counted from 0) has a missing similarity; leave out scans without features.")
    return similarity


def session_blocks(
    similarity: ArrayLike, persons: ArrayLike, sessions: ArrayLike
) -> tuple[Labels, list[tuple[str, str, Rows, FloatArray]]]:
    """Return the labels and, per pair of sessions, the seekers and their similarities, own scan on the diagonal."""
    similarity = _check_similarity(similarity)
    persons, sessions = scan_labels(persons, sessions, len(similarity))
    blocks = [
        (a, b, rows, similarity[np.ix_(rows, columns)]) for a, b, rows, columns in _session_pairs(persons, sessions)
    ]
    if not blocks:
        raise Unfit("Identification needs at least two people with scans in the same two sessions.")
    return persons, blocks


def identify(similarity: ArrayLike, persons: ArrayLike, sessions: ArrayLike) -> Identification:
    """Most similar scan of every other session, similarity (N, N), persons and sessions (N,). Raises ValueError.

    Larger is more alike; row i holds what scan i sees. A person without another session takes no part.
    """
    persons, blocks = session_blocks(similarity, persons, sessions)
    columns = []
    for session, searched, rows, block in blocks:  # the own scan is on the diagonal
        people, self_similarity, best = persons[rows], np.diag(block), block.max(axis=1)
        ties = (block == best[:, None]).sum(axis=1)
        identified = self_similarity == best
        match = np.where(identified, np.arange(len(block)), block.argmax(axis=1))
        rank = 1 + (block > self_similarity[:, None]).sum(axis=1)
        labels = people, np.full(len(rows), session), np.full(len(rows), searched), people[match]
        credit = np.where(identified, 1 / ties, 0)
        columns.append((*labels, best, self_similarity, rank, credit, np.full(len(rows), len(rows))))
    return Identification(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def identify_within(
    similarity: ArrayLike, persons: ArrayLike, sessions: ArrayLike, sites: ArrayLike
) -> Identification | None:
    """`identify` among the people of the own site alone; sites (N,). None where no site has two people."""
    values, labels = _check_similarity(similarity), np.asarray(sites).astype(str)
    names, days = scan_labels(persons, sessions, len(values))
    parts = []
    for site in np.unique(labels):
        rows = np.flatnonzero(labels == site)
        if any(_session_pairs(names[rows], days[rows])):
            parts.append(identify(values[np.ix_(rows, rows)], names[rows], days[rows]))
    if not parts:
        return None
    return Identification(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Identification)
        }
    )


def permutation_null(
    similarity: ArrayLike,
    persons: ArrayLike,
    sessions: ArrayLike,
    n_permutations: int = 1000,
    seed: int = 0,
    sites: ArrayLike | None = None,
) -> FloatArray:
    """Accuracy (n_permutations,) when person labels are shuffled within every session, and within sites (N,)."""
    similarity = _check_similarity(similarity)
    persons, sessions = scan_labels(persons, sessions, len(similarity))
    rng = np.random.default_rng(seed)
    cells = sessions if sites is None else np.char.add(np.char.add(sessions, "/"), np.asarray(sites).astype(str))
    blocks = [np.flatnonzero(cells == cell) for cell in np.unique(cells)]
    labels, people = np.unique(persons, return_inverse=True)
    rows = [np.flatnonzero(sessions == session) for session in np.unique(sessions)]
    # where everyone has every session, a label changes neither whom a scan is compared with nor its best match
    same = len(rows) > 1 and len(labels) > 1 and all(len(members) == len(labels) for members in rows)
    searches = []
    for seekers, searched in ordered_pairs(rows, 2) if same else ():
        block = similarity[np.ix_(seekers, searched)]
        best = block.max(axis=1)
        searches.append((seekers, searched, block, best, 1 / (block == best[:, None]).sum(axis=1)))
    null, place, order = np.empty(n_permutations), np.empty(len(labels), dtype=np.intp), np.arange(len(labels))
    for position in range(n_permutations):
        shuffled = people.copy()
        for members in blocks:
            shuffled[members] = rng.permutation(people[members])
        if not same:
            null[position] = identify(similarity, labels[shuffled], sessions).accuracy
            continue
        credits = []
        for seekers, searched, block, best, credit in searches:
            place[shuffled[searched]] = order
            credits.append(np.where(block[order, place[shuffled[seekers]]] == best, credit, 0))
        null[position] = np.concatenate(credits).mean()
    return null


@dataclass(frozen=True)
class IdentificationComparison:
    """Two representations on the searches that both made."""

    difference: float  # accuracy of the first minus that of the second
    n_searches: int  # shared searches
    only_first: int  # that one representation alone got right
    only_second: int  # that the other alone got right
    # exact McNemar test on the discordant searches, two-sided. It takes searches as independent, as the paper does.
    p_mcnemar: float
    # exact sign flips of the net difference of each person, two-sided: the searches of a person are not independent
    p_people: float
    bootstrap: Bootstrap  # the difference under resampling of people, which keeps a person's searches together


def compare_identification(
    first: Identification, second: Identification, seed: int = 0, families: Mapping[str, str] | None = None
) -> IdentificationComparison:
    """Compare two representations on shared scans; ties are no wins. Families may replace people. Raises ValueError."""
    keys = [list(zip(result.person, result.session, result.searched, strict=True)) for result in (first, second)]
    positions = {key: position for position, key in enumerate(keys[1])}
    shared = np.array([(i, positions[key]) for i, key in enumerate(keys[0]) if key in positions]).reshape(-1, 2)
    rows, others = shared.T
    if not len(shared) or (first.candidates[rows] != second.candidates[others]).any():
        raise Unfit("Two identifications can be compared only on the same people and sessions.")
    ours, theirs = first.credit[rows], second.credit[others]
    alone = int(((ours == 1) & (theirs < 1)).sum()), int(((theirs == 1) & (ours < 1)).sum())
    units = units_of(first.person[rows], families)
    spread = subject_bootstrap(ours - theirs, units, seed=seed)
    p_people = sign_flip_p_value(sum_by_block(ours - theirs, units), seed=seed)
    difference = float((ours - theirs).mean())
    return IdentificationComparison(difference, len(shared), *alone, exact_mcnemar(*alone), p_people, spread)


@dataclass(frozen=True)
class SplitHalf:
    """Reliability between halves."""

    mean: float  # over repeats of the correlation rho between the halves
    sd: float  # the same; NaN for one repeat
    full: float  # Spearman-Brown 2 rho / (1 + rho) of the mean: the reliability of both halves together
    correlations: FloatArray  # (R,): rho of each repeat; NaN where a half is constant


def split_half_reliability(first: ArrayLike, second: ArrayLike) -> SplitHalf:
    """Correlate out-of-fold predictions (n,) or (R, n) of the halves of each scan (the paper, Appendix F)."""
    first, second = (np.atleast_2d(np.asarray(half, dtype=np.float64)) for half in (first, second))
    if first.shape != second.shape:
        raise ValueError(f"The halves have different shapes, {first.shape} and {second.shape}.")
    correlations = np.full(len(first), np.nan)
    for row, (predicted, other) in enumerate(zip(first, second, strict=True)):
        both = np.isfinite(predicted) & np.isfinite(other)
        if both.sum() > 1 and np.ptp(predicted[both]) > 0 and np.ptp(other[both]) > 0:
            correlations[row] = np.corrcoef(predicted[both], other[both])[0, 1]
    known = correlations[np.isfinite(correlations)]
    mean = float(known.mean()) if len(known) else np.nan
    sd = float(known.std(ddof=1)) if len(known) > 1 else np.nan
    return SplitHalf(mean, sd, spearman_brown(mean), correlations)


def spearman_brown(rho: float) -> float:
    """Reliability of a measurement twice as long: 2 rho / (1 + rho) (Spearman 1910, Brown 1910)."""
    return 2 * rho / (1 + rho) if rho != -1 else np.nan


def disattenuated_ceiling(r: float, rho: float) -> float:
    """Return r / sqrt(2 rho / (1 + rho)), what a reliable predictor would reach (Appendix F); NaN unless positive."""
    return float(r / np.sqrt(spearman_brown(rho))) if rho > 0 and r > 0 else np.nan
