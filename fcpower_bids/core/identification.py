"""Identification of people from repeated scans, and how repeatable features and predictions are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations as ordered_pairs
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fcpower_bids.core.arrays import FloatArray, Labels, Rows
from fcpower_bids.core.differences import sign_flip_p_value, subject_bootstrap
from fcpower_bids.errors import Unfit

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


def scan_labels(persons: ArrayLike, sessions: ArrayLike) -> tuple[Labels, Labels]:
    """Return the labels as strings; refuse what would make a scan ambiguous."""
    persons, sessions = np.asarray(persons).astype(str), np.asarray(sessions).astype(str)
    scans = Counter(zip(persons.tolist(), sessions.tolist(), strict=True))
    for (person, session), number in scans.items() if len(scans) < len(persons) else ():
        if number > 1:
            raise Unfit(f"Person '{person}' has several scans in session '{session}': combine or rename them.")
    return persons, sessions


def _session_pairs(persons: Labels, sessions: Labels, sites: Labels) -> Iterator[tuple[str, str, Rows, Rows]]:
    """Yield ordered pairs of sessions with the rows of the people of a site who have both, in the same order."""
    for site in np.unique(sites):
        here = np.flatnonzero(sites == site)
        of_session = {session: here[sessions[here] == session] for session in np.unique(sessions[here]).tolist()}
        rows = {session: dict(zip(persons[at].tolist(), at, strict=True)) for session, at in of_session.items()}
        for first, second in ordered_pairs(rows, 2):
            both = [person for person in rows[first] if person in rows[second]]
            if len(both) > 1:
                yield first, second, np.array([rows[first][p] for p in both]), np.array([rows[second][p] for p in both])


def identify(
    similarity: ArrayLike, persons: ArrayLike, sessions: ArrayLike, sites: ArrayLike | None = None
) -> Identification:
    """Most similar scan of every other session, similarity (N, N), persons and sessions (N,). Raises ValueError.

    Larger is more alike; row i holds what scan i sees. A person without another session takes no part. With sites (N,)
    everyone is searched among the people of the own site alone.
    """
    similarity, columns = np.asarray(similarity, dtype=np.float64), []
    if not np.isfinite(similarity).all():
        scan = int(np.flatnonzero(~np.isfinite(similarity).all(axis=1))[0])
        raise ValueError(f"Scan {scan} (counted from 0) has a missing similarity; leave out scans without features.")
    persons, sessions = scan_labels(persons, sessions)
    sites = np.zeros(len(persons), dtype=str) if sites is None else np.asarray(sites).astype(str)
    for session, searched, rows, others in _session_pairs(persons, sessions, sites):
        block = similarity[np.ix_(rows, others)]  # the own scan is on the diagonal
        people, self_similarity, best = persons[rows], np.diag(block), block.max(axis=1)
        ties = (block == best[:, None]).sum(axis=1)
        identified = self_similarity == best
        match = np.where(identified, np.arange(len(block)), block.argmax(axis=1))
        rank = 1 + (block > self_similarity[:, None]).sum(axis=1)
        labels = people, np.full(len(rows), session), np.full(len(rows), searched), people[match]
        credit = np.where(identified, 1 / ties, 0)
        columns.append((*labels, best, self_similarity, rank, credit, np.full(len(rows), len(rows))))
    if not columns:
        raise Unfit("Identification needs at least two people with scans in the same two sessions.")
    return Identification(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def permutation_null(
    similarity: ArrayLike,
    persons: ArrayLike,
    sessions: ArrayLike,
    n_permutations: int = 1000,
    seed: int = 0,
    sites: ArrayLike | None = None,
) -> FloatArray:
    """Accuracy (n_permutations,) when person labels are shuffled within every session, and within sites (N,)."""
    similarity = np.asarray(similarity, dtype=np.float64)
    persons, sessions = scan_labels(persons, sessions)
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


def compare_identification(
    first: Identification, second: Identification, seed: int = 0, families: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Compare a representation with a reference on shared scans, by people or families. Raises ValueError.

    Returns cells of ``identification_comparisons``. Ties are no wins. McNemar's exact test takes searches as
    independent, as the paper does; those of a person are not, and are one in the flips of signs and in the bootstrap.
    """
    keys = [list(zip(result.person, result.session, result.searched, strict=True)) for result in (first, second)]
    positions = {key: position for position, key in enumerate(keys[1])}
    shared = np.array([(i, positions[key]) for i, key in enumerate(keys[0]) if key in positions]).reshape(-1, 2)
    rows, others = shared.T
    if not len(shared) or (first.candidates[rows] != second.candidates[others]).any():
        raise Unfit("Two identifications can be compared only on the same people and sessions.")
    ours, theirs = first.credit[rows], second.credit[others]
    alone = int(((ours == 1) & (theirs < 1)).sum()), int(((theirs == 1) & (ours < 1)).sum())
    units = units_of(first.person[rows], families)
    low, high, _ = subject_bootstrap(ours - theirs, units, seed=seed)
    of_units = np.bincount(np.unique(units, return_inverse=True)[1], ours - theirs)
    return {
        "difference": float((ours - theirs).mean()),
        "ci_low": float(low),
        "ci_high": float(high),
        "n_searches": len(shared),
        "only_representation": alone[0],
        "only_reference": alone[1],
        "p_people": sign_flip_p_value(of_units, seed=seed),
        "p_mcnemar": min(1.0, 2 * float(special.bdtr(min(alone), sum(alone), 0.5))),
    }


def split_half_reliability(first: ArrayLike, second: ArrayLike) -> tuple[float, float, float]:
    """Correlate out-of-fold predictions (n,) or (R, n) of the halves of each scan (the paper, Appendix F).

    Returns mean and SD over repeats of the correlation of the halves, NaN where a half is constant, and the reliability
    of both halves together.
    """
    first, second = (np.atleast_2d(np.asarray(half, dtype=np.float64)) for half in (first, second))
    correlations = np.full(len(first), np.nan)
    for row, (predicted, other) in enumerate(zip(first, second, strict=True)):
        both = np.isfinite(predicted) & np.isfinite(other)
        if both.sum() > 1 and np.ptp(predicted[both]) > 0 and np.ptp(other[both]) > 0:
            correlations[row] = np.corrcoef(predicted[both], other[both])[0, 1]
    known = correlations[np.isfinite(correlations)]
    mean = float(known.mean()) if len(known) else np.nan
    sd = float(known.std(ddof=1)) if len(known) > 1 else np.nan
    return mean, sd, spearman_brown(mean)


def spearman_brown(rho: float) -> float:
    """Reliability of a measurement twice as long: 2 rho / (1 + rho) (Spearman 1910, Brown 1910)."""
    return 2 * rho / (1 + rho) if rho != -1 else np.nan


def disattenuated_ceiling(r: float, rho: float) -> float:
    """Return r / sqrt(2 rho / (1 + rho)), what a reliable predictor would reach (Appendix F); NaN unless positive."""
    return float(r / np.sqrt(spearman_brown(rho))) if rho > 0 and r > 0 else np.nan
