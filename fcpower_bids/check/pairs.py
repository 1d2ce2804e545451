"""Pairs of scans that look like one, and sessions that look exchanged, among the scans of a cohort."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.features import FC_POWER, build_representations
from fcpower_bids.check.findings import ALARM, LOOK, Finding, name_some
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
    rows = [_row(cohort, SAME, pair, agreement) for pair in same]
    crossed = [scores.pair(i, j) for swap in swaps for i, j in swap.pairs]
    rows += [_row(cohort, SWAPPED, pair, agreement) for pair in crossed]
    known = {row for pair in (*same, *crossed) for row in (pair.first, pair.second)}
    moved = [scores.pair(row, other) for row, other in misnamed_scans(scores) if row not in known]
    rows += [_row(cohort, MISNAMED, pair, agreement) for pair in moved]
    settled = [*crossed, *moved]
    rows += [
        _row(cohort, STRANGE, pair, agreement)
        for pair in strange
        if {pair.first, pair.second} not in [{other.first, other.second} for other in settled]
    ]
    frame = pd.DataFrame(rows, columns=list(CHECK_PAIRS.columns))
    findings = [
        *_describe_same(frame[frame["verdict"] == SAME], persons),
        *_describe_swaps(swaps, persons, sessions),
        *_describe_misnamed(frame[frame["verdict"] == MISNAMED]),
        *_describe_strange(frame[frame["verdict"] == STRANGE]),
    ]
    alike = dict.fromkeys((str(persons[pair.first]), str(persons[pair.second])) for pair in same)
    return Table(frame, CHECK_PAIRS, FACTS), findings, tuple(alike)


def check_copies(cohort: Cohort) -> Iterator[Finding]:
    """Scans that are one to the bit under the names of two people: neither takes part."""
    excluded = cohort.excluded
    copied = excluded[[COPIED in str(one) and NEITHER in str(one) for one in excluded["reason"]]]
    if len(copied):
        people = list(dict.fromkeys(copied["participant_id"].astype(str)))
        yield Finding(
            "copied scans",
            ALARM,
            len(copied),
            1.0,
            f"{len(copied)} recordings of different people are copies of one another, equal to the bit "
            f"({name_some(people)}).",
            "One of the names is wrong; neither takes part, since the wrong one would join a scan with the "
            "phenotypes of another person.",
            "Find out which name is right. Reject the other in exclude.tsv, or accept the right one there.",
        )


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


def _row(cohort: Cohort, verdict: str, pair: Pair, agreement: dict[Pair, float]) -> dict[str, Any]:
    (one, of_one), (other, of_other) = (
        cohort.scans[["participant_id", "session"]].astype(str).iloc[row] for row in (pair.first, pair.second)
    )
    return {
        "verdict": verdict,
        "participant_id": one,
        "session": of_one,
        "other": other,
        "other_session": of_other,
        "similarity": pair.similarity,
        "score": pair.score,
        "series_correlation": agreement.get(pair, np.nan),
    }


def _names(frame: pd.DataFrame) -> str:
    pairs = dict.fromkeys(zip(frame["participant_id"], frame["other"], strict=True))
    return name_some([f"{one} and {other}" for one, other in pairs])


def _describe_same(frame: pd.DataFrame, persons: NDArray[Any]) -> Iterator[Finding]:
    if frame.empty:
        return
    people = len(set(frame["participant_id"]) | set(frame["other"]))
    yield Finding(
        "same scan",
        ALARM,
        len(frame),
        float(frame["similarity"].max()),
        f"{len(frame)} pair{'s' if len(frame) > 1 else ''} of scans under different names look like one scan "
        f"({_names(frame)}; similarity up to {frame['similarity'].max():.2f}).",
        f"A model that was trained on one of the two knows the other. The {people} people of {len(set(persons))} share "
        "folds with their likes here, so that prediction does not profit; every other count takes them as different.",
        "Find out which name is right, and leave the other out with --exclude-file.",
    )


def _describe_swaps(swaps: list[Swap], persons: NDArray[Any], sessions: NDArray[Any]) -> Iterator[Finding]:
    people = dict.fromkeys(
        (str(persons[swap.pairs[0][0]]), str(persons[swap.pairs[1][0]]), str(sessions[swap.pairs[0][1]]))
        for swap in swaps
    )
    if people:
        first = swaps[0]
        yield Finding(
            "swapped sessions",
            ALARM,
            len(people),
            first.crossed - first.named,
            "The scans of "
            + name_some([f"{one} and {other} ({session} or the other session)" for one, other, session in people])
            + f" look exchanged: each is nearer to the other's (score {first.crossed:.1f}) than to their own "
            f"({first.named:.1f}).",
            "Both people are predicted from a mixture of two brains, and count as not identified.",
            "Look at the records of the session; correct the names, or leave both out with --exclude-file.",
        )


def _describe_misnamed(frame: pd.DataFrame) -> Iterator[Finding]:
    if not frame.empty:
        columns = (frame[name].astype(str) for name in ("participant_id", "session", "other"))
        said = [
            f"{one}{'' if session == 'n/a' else ' ' + session} as {other}"
            for one, session, other in zip(*columns, strict=True)
        ]
        yield Finding(
            "another name",
            ALARM,
            len(frame),
            float(frame["score"].max()),
            f"{len(frame)} scan{'s are' if len(frame) > 1 else ' is'} far from the other scans of the same person and "
            f"near another person's ({name_some(said)}).",
            "The person is predicted from a mixture of two brains, and counts as not identified; where labels have "
            "moved by one, so do all after it.",
            "Hold the names against the records of the scanner, from the first that is listed; correct them, or leave "
            "the scans out with --exclude-file.",
        )


def _describe_strange(frame: pd.DataFrame) -> Iterator[Finding]:
    if not frame.empty:
        yield Finding(
            "unusually alike",
            LOOK,
            len(frame),
            float(frame["score"].max()),
            f"{len(frame)} pair{'s' if len(frame) > 1 else ''} of scans of different people are unusually alike "
            f"({_names(frame)}; score up to {frame['score'].max():.1f}).",
            "The same person scanned again under another name, twins, or an artefact of a scanner: each makes "
            "predictions of one from the other too good.",
            "Look at both. If they are relatives, give --family-column; if one person, correct the name.",
        )
