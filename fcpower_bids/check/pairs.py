"""Pairs of scans that look like one, and sessions that look exchanged, among the scans of a cohort."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.features import FC_POWER, build_representations
from fcpower_bids.check.findings import ALARM, LOOK, Finding, find, name_some
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.duplicates import (
    COPIED,
    EXPONENT,
    FAR_FROM_MANY,
    MISNAMED_GAIN,
    NEITHER,
    SAME_SCORE,
    SAME_SIMILARITY,
    STRANGE_SCORE,
    SWAP_SCORE,
    Pair,
    PairScores,
    Swap,
    aligned_correlation,
    misnamed_scans,
    strange_pairs,
    swapped_scans,
)
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Analysis

SAME, STRANGE, SWAPPED = "same scan", "place to look", "swapped sessions"
MISNAMED = "another name"
MOST_SERIES = 50
"""Pairs, the most alike first, whose series are read."""
ONE_SERIES = 0.4
"""Series that agree better than this are of one scan; independent ones stay below 0.2."""

CHECK_PAIRS = TABLES["check_pairs"]
FACTS = {
    "Rule": (
        f"same scan: similarity above {SAME_SIMILARITY:g} and score above {SAME_SCORE:g} (with few parcels, above 0.7 "
        f"of what a copy would score), or series that agree above {ONE_SERIES:g}. place to look: score above "
        f"{STRANGE_SCORE:g}. For both, where the scores of either scan with everyone spread wider than "
        f"{FAR_FROM_MANY:g} times those of the cohort, the score divided by what exceeds must be above "
        f"{STRANGE_SCORE:g}, or the series agree. swapped sessions: two people whose scans are each "
        "other's nearest crosswise, and far from their own; each such person has one row per scan that belongs to "
        "the other. another name: a scan whose score "
        f"with another person is above {SWAP_SCORE:g} and by {MISNAMED_GAIN:g} higher than with its own person."
    )
}


def check_pairs(cohort: Cohort, similarity: FloatArray) -> tuple[Table, list[Finding], tuple[tuple[str, str], ...]]:
    """Look for scans of different people that are one, and for exchanged and moved labels. Similarity (N, N)."""
    persons = cohort.scans["participant_id"].astype(str).to_numpy()
    sessions = cohort.scans["session"].astype(str).to_numpy()
    scores = PairScores(similarity, persons)
    same, strange, doubtful = strange_pairs(scores)
    agreement = _agreements(cohort, [*same, *strange]) | _agreements(cohort, doubtful)
    same = same + [pair for pair in [*strange, *doubtful] if agreement.get(pair, 0.0) > ONE_SERIES]
    strange = [pair for pair in strange if pair not in same]
    swaps = swapped_scans(scores, sessions)
    crossed = [scores.pair(i, j) for swap in swaps for i, j in swap.pairs]
    known = {row for pair in (*same, *crossed) for row in (pair.first, pair.second)}
    moved = [scores.pair(row, other) for row, other in misnamed_scans(scores) if row not in known]
    settled = [{pair.first, pair.second} for pair in (*crossed, *moved)]
    strange = [pair for pair in strange if {pair.first, pair.second} not in settled]
    rows = [
        (verdict, persons[i], sessions[i], persons[j], sessions[j], *numbers, agreement.get(pair, np.nan))
        for verdict, pairs in ((SAME, same), (SWAPPED, crossed), (MISNAMED, moved), (STRANGE, strange))
        for pair in pairs
        for i, j, numbers in [(pair.first, pair.second, (pair.similarity, pair.score))]
    ]
    frame = pd.DataFrame(rows, columns=list(CHECK_PAIRS.columns))
    alike = dict.fromkeys((str(persons[pair.first]), str(persons[pair.second])) for pair in same)
    swapped = [*_describe_swaps(swaps, persons, sessions)]
    findings = [*_describe_pairs(frame, len(set(persons)), swapped)]
    return Table(frame, CHECK_PAIRS, FACTS), findings, tuple(alike)


def check_copies(cohort: Cohort) -> Iterator[Finding]:
    """Scans that are one to the bit under the names of two people: neither takes part."""
    excluded = cohort.excluded
    copied = excluded[[COPIED in str(one) and NEITHER in str(one) for one in excluded["reason"]]]
    if len(copied):
        people = list(dict.fromkeys(copied["participant_id"].astype(str)))
        yield find("copied scans", ALARM, len(copied), 1.0, named=name_some(people))


def build_similarity(cohort: Cohort, settings: Analysis) -> FloatArray:
    """Kernel of FC^0.35 of all scans, (n, n)."""
    chosen = dataclasses.replace(settings, alpha=EXPONENT, kernel="correlation")
    groups = [np.array([row]) for row in range(len(cohort.scans))]
    (representation,) = build_representations(cohort, groups, (FC_POWER,), chosen)
    return representation.similarity()


def _agreements(cohort: Cohort, pairs: list[Pair]) -> dict[Pair, float]:
    """How well the series of the most suspicious pairs agree, where they are stored."""
    if not cohort.series:
        return {}
    found = {}
    for pair in pairs[:MOST_SERIES]:
        times = {round(cohort.repetition_times[row], 3) for row in (pair.first, pair.second)}
        runs = [cohort.series[row]() for row in (pair.first, pair.second)]
        if len(times) == 1:
            found[pair] = max(aligned_correlation(one, other) for one in runs[0] for other in runs[1])
    return found


def _describe_pairs(frame: pd.DataFrame, n_people: int, swaps: list[Finding]) -> Iterator[Finding]:
    """Say what was found, copies first."""

    def words(part: pd.DataFrame) -> dict[str, str]:
        pairs = dict.fromkeys(zip(part["participant_id"], part["other"], strict=True))
        counted = f"{len(part)} pair{'s' if len(part) > 1 else ''}"
        return {"named": name_some([f"{one} and {other}" for one, other in pairs]), "pairs": counted}

    same, moved, strange = (frame[frame["verdict"] == verdict] for verdict in (SAME, MISNAMED, STRANGE))
    if len(same):
        people = len(set(same["participant_id"]) | set(same["other"]))
        yield find("same scan", ALARM, len(same), same["similarity"].max(), **words(same), people=people, of=n_people)
    yield from swaps
    if len(moved):
        said = [
            f"{one}{'' if session == 'n/a' else ' ' + session} as {other}"
            for one, session, other in moved[["participant_id", "session", "other"]].to_numpy().tolist()
        ]
        scans = f"{len(moved)} scan{'s are' if len(moved) > 1 else ' is'}"
        yield find("another name", ALARM, len(moved), moved["score"].max(), scans=scans, named=name_some(said))
    if len(strange):
        yield find("unusually alike", LOOK, len(strange), strange["score"].max(), **words(strange))


def _describe_swaps(swaps: list[Swap], persons: NDArray[Any], sessions: NDArray[Any]) -> Iterator[Finding]:
    places = [(swap.pairs[0], swap.pairs[1][0]) for swap in swaps]
    people = dict.fromkeys(
        f"{persons[one]} and {persons[other]} ({sessions[session]} or the other session)"
        for (one, session), other in places
    )
    if people:
        crossed, own = swaps[0].crossed, swaps[0].named
        about = {"named": name_some(list(people)), "crossed": crossed, "own": own}
        yield find("swapped sessions", ALARM, len(people), crossed - own, **about)
