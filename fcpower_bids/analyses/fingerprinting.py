"""Identification of people across sessions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.features import build_representations, expand_names, scans_without_features
from fcpower_bids.analyses.study import ScanBlocks, plan_scan_blocks
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.differences import adjust_p_values, permutation_p_value
from fcpower_bids.core.identification import (
    Identification,
    compare_identification,
    identify,
    permutation_null,
)
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort, Looked, tabulate
from fcpower_bids.settings import Settings

Rows = list[dict[str, Any]]
PERMUTATIONS = 999
"""Shuffles of the labels where the user does not say how many; a fifth for more than `MANY` scans."""
MANY = 3000
SHARED_FACTS: dict[str, Any] = {
    "Rule": (
        "Every scan looks for the most similar scan (Pearson correlation of the features) of the other session, among "
        "the people who have both. With more than two sessions every ordered pair of sessions is searched, and every "
        "search counts the same."
    ),
    "Sites": (
        "Shuffles stay within the sites (--site-column, else columns that are called so), and people are searched "
        "among those of their own site too: a scan that shows the scanner alone finds one of the people of a site."
    ),
    "Ties": (
        "k equally similar candidates earn 1/k if the own person is among them, so a constant similarity scores chance."
    ),
}


def can_identify(cohort: Cohort) -> bool:
    """Whether two people or more have two sessions each."""
    sessions = cohort.scans.astype({"participant_id": str}).groupby("participant_id")["session"].nunique()
    return bool((sessions > 1).sum() > 1)


def analyse_fingerprinting(cohort: Cohort, settings: Settings) -> Looked:
    """Identify people between sessions (Finn et al. 2015, doi:10.1038/nn.4135). Raises NotInCohort."""
    names = expand_names(cohort, settings)
    rows = repeated_scans(cohort, ~scans_without_features(cohort, names))
    yield {}
    persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
    people, groups = set(persons.tolist()), [np.array([row]) for row in rows]
    blocks = plan_scan_blocks(cohort, persons, settings)
    by_name: dict[str, Identification] = {}
    summary: Rows = []
    representations = build_representations(cohort, groups, names, settings)
    for representation in track(representations, "identification", settings, len(names)):
        name, similarity = representation.name, representation.similarity()
        by_name[name] = identify(similarity, persons, sessions)
        for row in describe_sessions(similarity, persons, sessions, blocks, settings):
            summary.append({**row, "representation": name})
    facts = SHARED_FACTS | blocks.facts() | {"NumberOfScans": len(rows), "NumberOfPeople": len(people)}
    facts["Alpha"] = settings.method.alpha
    frames = [
        pd.DataFrame({"representation": name, **vars(identification)}) for name, identification in by_name.items()
    ]
    searches = pd.concat(frames, ignore_index=True).rename(columns={"person": "participant_id"})
    pairs = compare_pairs(by_name, settings, blocks.families)
    for row, adjusted in zip(pairs, adjust_p_values([row["p_people"] for row in pairs]), strict=True):
        row["p_holm"] = float(adjusted)
    yield tabulate(facts, identification=summary, identification_scans=searches, identification_comparisons=pairs)


def repeated_scans(cohort: Cohort, usable: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Rows of the usable scans of people who have two sessions or more, by session and person. Raises NotInCohort."""
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
    return several.sort_values(["session", "participant_id"], kind="stable").index.to_numpy(dtype=np.intp)


def describe_sessions(
    similarity: FloatArray, persons: NDArray[Any], sessions: NDArray[Any], blocks: ScanBlocks, settings: Settings
) -> Rows:
    """One row per pair of sessions of scans (n,), and one for all pairs where there are several."""
    labels = sorted(set(sessions.tolist()))
    n_permutations = settings.group.permutations or (PERMUTATIONS if len(persons) <= MANY else PERMUTATIONS // 5)
    people = {label: set(persons[sessions == label].tolist()) for label in labels}
    pairs = [(first, other) for first, other in combinations(labels, 2) if len(people[first] & people[other]) > 1]
    rows = []
    for pair in [*pairs, ("all", "all")] if len(pairs) > 1 else pairs:
        kept = np.isin(sessions, labels if pair[0] == "all" else pair)
        scans = similarity[np.ix_(kept, kept)], persons[kept], sessions[kept]
        identification, sites = identify(*scans), None if blocks.sites is None else blocks.sites[kept]
        directions = identification.by_direction()
        null = permutation_null(*scans, n_permutations, settings.method.random_seed, sites)
        # Among the people of the site too.
        within: dict[str, Any] = {"n_sites": 1 if sites is None else len(set(sites.tolist()))}
        within |= dict.fromkeys(("accuracy_within", "chance_within"), np.nan)
        if sites is not None:
            with suppress(Unfit):  # no site has two people with both sessions
                found = identify(*scans, sites)
                within |= {"accuracy_within": found.accuracy, "chance_within": found.chance}
        row = {"first_session": pair[0], "second_session": pair[1], **within}
        row |= {"n_people": len(set(identification.person.tolist())), "n_searches": len(identification.credit)}
        row |= {"accuracy_first_to_second": directions.get(pair, np.nan)}
        row |= {"accuracy_second_to_first": directions.get((pair[1], pair[0]), np.nan)}
        row |= dict(zip(("sd", "ci_low", "ci_high"), identification.interval(blocks.families), strict=True))
        row |= {"accuracy": identification.accuracy, "chance": identification.chance}
        row["p_permutation"] = permutation_p_value(identification.accuracy, null)
        rows.append(row | {"n_permutations": len(null)})
    return rows


def compare_pairs(
    identifications: Mapping[str, Identification], settings: Settings, families: Mapping[str, str] | None = None
) -> Rows:
    """Compare every representation with those before it, search by search."""
    rows = []
    for earlier, later in combinations(identifications, 2):
        cells = compare_identification(
            identifications[later], identifications[earlier], seed=settings.method.random_seed, families=families
        )
        rows.append({"representation": later, "reference": earlier} | cells)
    return rows
