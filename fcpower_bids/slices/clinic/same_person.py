"""Whether the scans that bear one name are of one person, and whether scans that bear two are not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.analyses.engine.columns import ALIKE
from fcpower_bids.core.inference.duplicate_scans import SWAP_SCORE, PairScores, misnamed_scans, swapped_scans
from fcpower_bids.errors import Unfit
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.slices.clinic.equations import error_rates, verify

SAME, OTHER, OPEN = "same person", "another person", "not decided"
RATIO, MATCHES = 100.0, 0.01
"""Likelihood ratio, and rate of false matches, that a verdict needs."""

PAIRS = TableSpec(
    "identify_pairs",
    "Scans that bear one name, and scans that fit another name better.",
    join_columns(
        Column.text(
            "verdict",
            "Verdict of the similarity",
            "Verdict",
            levels={
                SAME: f"at least {RATIO:g} times as likely of one person as of two, and fewer than {100 * MATCHES:g} % "
                "of the pairs of different people are as similar",
                OTHER: f"at least {RATIO:g} times as likely of two people as of one",
                OPEN: "neither",
            },
        ),
        Column.text("participant_id", "Person, as the scan is named", "Person"),
        Column.text("scan", "Name of the scan", "Scan"),
        Column.text("other_participant_id", "Person, as the other scan is named", "Other person"),
        Column.text("other_scan", "Name of the other scan", "Other scan"),
        ALIKE,
        Column.number("rank", "1 + people with a scan that is more similar than the scan of the own name", digits=0),
        Column.number("false_match", "Share of pairs of different people that are at least as similar"),
        Column.number("false_non_match", "Share of pairs of one person that are at most as similar"),
        Column.number("likelihood_ratio", "How much likelier of one person than of two", digits=1),
    ),
    ("scan", "other_scan"),
)
ERRORS = TableSpec(
    "identify_errors",
    "How often the score errs on this reference.",
    join_columns(
        Column.number("threshold", "Score from which two scans count as one person's", "Threshold", digits=1),
        Column.number("false_match", "Share of pairs of different people at or above it", "False matches"),
        Column.number("false_non_match", "Share of pairs of one person below it", "False non-matches"),
    ),
    ("threshold",),
)


def compare_scans(
    similarity: ArrayLike,
    names: Sequence[str],
    persons: Sequence[str],
    sessions: Sequence[str],
    asked: Collection[str] = (),
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """`PAIRS`, `ERRORS` and names without reference: each pair against all others without its person. Raises Unfit."""
    kernel, labels, times = np.asarray(similarity, dtype=float), np.asarray(persons), np.asarray(sessions)
    scored = PairScores(kernel, labels)
    if not scored.known:
        raise Unfit(f"The {len(set(persons))} people here are no reference for identity: at least four are needed.")
    scores = scored.rows(slice(None))
    first, second = np.triu_indices(len(labels), 1)
    own = labels[first] == labels[second]
    apart = times[first] != times[second]
    genuine, values = own & apart if (own & apart).any() else own, scores[first, second]
    doubtful = _doubtful(scored, times, values[genuine])
    sound = ~np.isin(first, doubtful) & ~np.isin(second, doubtful)
    genuine, different = genuine & sound, ~own & sound
    rows = []
    for i, j in _to_report(scores, labels, times, set(asked), bool((own & apart).any())):
        free = ~np.isin(labels[first], (labels[i], labels[j])) & ~np.isin(labels[second], (labels[i], labels[j]))
        found = verify(scores[i, j], values[genuine & free], values[different & free])
        rows.append(_row(i, j, kernel, scores, names, labels) | vars(found) | {"verdict": _verdict(found)})
    errors = [dict(zip(ERRORS.columns, row, strict=True)) for row in error_rates(values[genuine], values[different])]
    tables = (pd.DataFrame(found, columns=list(spec.columns)) for spec, found in ((PAIRS, rows), (ERRORS, errors)))
    return *tables, [names[row] for row in doubtful]


def _doubtful(scores: PairScores, sessions: NDArray[np.str_], own: NDArray[np.float64]) -> list[int]:
    """Rows of scans that are far from their own name and near another; none where pairs of one name are not alike."""
    if not len(own) or np.median(own) < SWAP_SCORE:
        return []
    swapped = {row for swap in swapped_scans(scores, sessions) for pair in swap.pairs for row in pair}
    return sorted(swapped | {row for row, _ in misnamed_scans(scores)})


def _to_report(
    scores: NDArray[np.float64], labels: NDArray[np.str_], times: NDArray[np.str_], asked: set[str], by_session: bool
) -> list[tuple[int, int]]:
    """Pairs of one name, and each scan with the scan of another name that fits better than any of its own."""
    found = []
    for i, j in combinations(range(len(labels)), 2):
        if labels[i] == labels[j] and (times[i] != times[j] or not by_session) and (not asked or labels[i] in asked):
            found.append((i, j))
    for i in range(len(labels)):
        if asked and labels[i] not in asked:
            continue
        own = (labels == labels[i]) & (np.arange(len(labels)) != i)
        others = labels != labels[i]
        best = int(np.flatnonzero(others)[np.argmax(scores[i, others])])
        if own.any() and scores[i, best] > scores[i, own].max():
            found.append((i, best))
    return found


def _row(
    i: int, j: int, kernel: NDArray[np.float64], scores: NDArray[np.float64], names: Sequence[str], labels: Any
) -> dict[str, Any]:
    better = {str(label) for label in labels[scores[i] > scores[i, j]]} - {str(labels[i]), str(labels[j])}
    return {
        "participant_id": labels[i],
        "scan": names[i],
        "other_participant_id": labels[j],
        "other_scan": names[j],
        "similarity": kernel[i, j],
        "score": scores[i, j],
        "rank": 1 + len(better),
    }


def _verdict(found: Any) -> str:
    if found.likelihood_ratio >= RATIO and found.false_match < MATCHES:
        return SAME
    return OTHER if found.likelihood_ratio <= 1 / RATIO else OPEN
