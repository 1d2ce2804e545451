"""Whether a scan finds the same person in another session, by representation, exponent and length of scan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.connectomes import AveragedEdges, PowerFamily
from fcpower_bids.analyses.edge_icc import ICC_COLUMNS, icc_rows
from fcpower_bids.analyses.exponent_grid import ALPHA_GRID
from fcpower_bids.analyses.identification_columns import (
    ALPHA_COLUMNS,
    COMPARISON_COLUMNS,
    IDENTIFICATION_COLUMNS,
    LENGTH_COLUMNS,
    SCAN_COLUMNS,
    SHARED_FACTS,
)
from fcpower_bids.analyses.progress import track
from fcpower_bids.analyses.representations import build_representations, expand_names, scans_without_features
from fcpower_bids.analyses.scan_lengths import length_rows
from fcpower_bids.core.identifiability import identifiability
from fcpower_bids.core.identification import Identification, compare_identification, identify, permutation_null
from fcpower_bids.core.inference import adjust_p_values
from fcpower_bids.core.permutation import permutation_p_value
from fcpower_bids.errors import NotInCohort
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Settings

FloatArray = NDArray[np.float64]
Rows = list[dict[str, Any]]

PERMUTATIONS = 999
"""Shuffles of the labels where the user does not say how many; a fifth for more than `MANY` scans."""

MANY = 3000


def analyse_fingerprinting(cohort: Cohort, settings: Settings) -> dict[str, Table]:
    """Identify people between sessions.

    Source: Finn et al. 2015 (doi:10.1038/nn.4135); the paper, Section 4.2.

    Parameters
    ----------
    cohort : Cohort
        Scans of two sessions or more; people with one session take no part.
    settings : Settings
        Representations, exponent, permutations, seed.

    Returns
    -------
    dict of str to Table
        ``identification``, ``identification_scans``, ``identification_comparisons``, ``identification_alpha``,
        ``identification_icc``, and ``identification_length`` where the series are there.

    Raises
    ------
    NotInCohort
        Fewer than two sessions, or fewer than two people who have the same two.
    """
    names = expand_names(cohort, settings)
    rows = repeated_scans(cohort, ~scans_without_features(cohort, names))
    persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
    groups = [np.array([row]) for row in rows]
    found: dict[str, Identification] = {}
    summary: Rows = []
    each = build_representations(cohort, groups, names, settings)
    for representation in track(each, "identification", settings, len(names)):
        similarity = representation.similarity()
        found[representation.name] = identify(similarity, persons, sessions)
        summary += _summarise(representation.name, similarity, persons, sessions, settings)
    facts = SHARED_FACTS | {"NumberOfScans": len(rows), "NumberOfPeople": len(set(persons.tolist()))}
    facts["Alpha"] = settings.exponent
    by_length, length_facts = length_rows(cohort, rows, settings)
    tables: dict[str, tuple[Sequence[dict[str, Any]], dict[str, str]]] = {
        "identification": (summary, IDENTIFICATION_COLUMNS),
        "identification_scans": ([row for name in found for row in _scans(name, found[name])], SCAN_COLUMNS),
        "identification_comparisons": (_compare(found, settings), COMPARISON_COLUMNS),
        "identification_alpha": (_by_alpha(cohort, groups, persons, sessions, settings), ALPHA_COLUMNS),
        "identification_icc": (icc_rows(cohort, groups, names, settings), ICC_COLUMNS),
        "identification_length": (by_length, LENGTH_COLUMNS),
    }
    return {
        name: Table(
            pd.DataFrame(list(content), columns=list(columns)),
            columns,
            facts | (length_facts if name == "identification_length" else {}),
        )
        for name, (content, columns) in tables.items()
    }


def repeated_scans(cohort: Cohort, usable: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Rows of the usable scans of people who have two sessions or more, by session and person.

    Raises
    ------
    NotInCohort
        There are not two sessions, or not two people in two of them.
    """
    scans = cohort.scans.reset_index(drop=True)[["participant_id", "session"]].astype(str)[usable]
    sessions = sorted(scans["session"].unique())
    if len(sessions) < 2:
        there = f"there is only '{sessions[0]}'" if sessions else "there are no scans"
        raise NotInCohort(
            f"Fingerprinting needs two sessions of the same people, and {there}; leave it out of --analyses."
        )
    several = scans[scans.groupby("participant_id")["session"].transform("nunique") > 1]
    if several["participant_id"].nunique() < 2:
        raise NotInCohort("Fingerprinting needs two people or more with two sessions each; leave it out of --analyses.")
    return several.sort_values(["session", "participant_id"]).index.to_numpy(dtype=np.intp)


def _summarise(
    name: str, similarity: FloatArray, persons: NDArray[Any], sessions: NDArray[Any], settings: Settings
) -> Rows:
    """One row per pair of sessions, and one for all pairs where there are several."""
    labels = sorted(set(sessions.tolist()))
    pairs = [pair for pair in combinations(labels, 2) if _people_in_both(persons, sessions, pair) > 1]
    rows = []
    for pair in [*pairs, ("all", "all")] if len(pairs) > 1 else pairs:
        kept = np.isin(sessions, labels if pair[0] == "all" else pair)
        block = similarity[np.ix_(kept, kept)]
        row = _describe(block, persons[kept], sessions[kept], pair, settings)
        rows.append({"representation": name, "first_session": pair[0], "second_session": pair[1], **row})
    return rows


def _people_in_both(persons: NDArray[Any], sessions: NDArray[Any], pair: tuple[str, str]) -> int:
    first, second = (set(persons[sessions == session].tolist()) for session in pair)
    return len(first & second)


def _describe(
    similarity: FloatArray, persons: NDArray[Any], sessions: NDArray[Any], pair: tuple[str, str], settings: Settings
) -> dict[str, Any]:
    found = identify(similarity, persons, sessions)
    spread = found.bootstrap(seed=settings.random_seed)
    directions = found.by_direction()
    n_permutations = settings.permutations or (PERMUTATIONS if len(persons) <= MANY else PERMUTATIONS // 5)
    null = permutation_null(similarity, persons, sessions, n_permutations, settings.random_seed)
    stands_out = identifiability(similarity, persons, sessions)
    return {
        "n_people": len(set(found.person.tolist())),
        "n_searches": len(found.credit),
        "accuracy": found.accuracy,
        "accuracy_first_to_second": directions.get(pair, np.nan),
        "accuracy_second_to_first": directions.get((pair[1], pair[0]), np.nan),
        "chance": found.chance,
        "sd": float(spread.sd),
        "ci_low": float(spread.low),
        "ci_high": float(spread.high),
        "d_prime": stands_out.d_prime,
        "i_self": stands_out.i_self,
        "i_others": stands_out.i_others,
        "i_diff": stands_out.i_diff,
        "p_permutation": permutation_p_value(found.accuracy, null),
        "n_permutations": len(null),
    }


def _scans(name: str, found: Identification) -> Rows:
    columns = {
        "participant_id": found.person,
        "session": found.session,
        "searched": found.searched,
        "matched": found.matched,
        "similarity": found.similarity,
        "own_similarity": found.own_similarity,
        "rank": found.rank,
        "credit": found.credit,
        "candidates": found.candidates,
    }
    frame = pd.DataFrame({"representation": name, **columns})
    return frame.to_dict("records")  # type: ignore[return-value]


def _compare(found: dict[str, Identification], settings: Settings) -> Rows:
    rows: Rows = []
    for earlier, later in combinations(found, 2):
        test = compare_identification(found[later], found[earlier], seed=settings.random_seed)
        rows.append(
            {
                "representation": later,
                "reference": earlier,
                "difference": test.difference,
                "ci_low": float(test.bootstrap.low),
                "ci_high": float(test.bootstrap.high),
                "n_searches": test.n_searches,
                "only_representation": test.only_first,
                "only_reference": test.only_second,
                "p_mcnemar": test.p_mcnemar,
            }
        )
    for row, adjusted in zip(rows, adjust_p_values([row["p_mcnemar"] for row in rows]), strict=True):
        row["p_holm"] = float(adjusted)
    return rows


def _by_alpha(
    cohort: Cohort,
    groups: Sequence[NDArray[np.intp]],
    persons: NDArray[Any],
    sessions: NDArray[Any],
    settings: Settings,
) -> Rows:
    family = PowerFamily(AveragedEdges(cohort.edges, groups), settings, keep=True)
    rows = []
    for alpha in track(ALPHA_GRID, "identification by exponent", settings):
        similarity = family.kernel(alpha)
        found, stands_out = identify(similarity, persons, sessions), identifiability(similarity, persons, sessions)
        rows.append(
            {
                "alpha": alpha,
                "accuracy": found.accuracy,
                "i_self": stands_out.i_self,
                "i_others": stands_out.i_others,
                "i_diff": stands_out.i_diff,
                "d_prime": stands_out.d_prime,
            }
        )
    return rows
