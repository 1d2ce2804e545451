"""Whether a scan finds the same person in another session, by representation, exponent and length of scan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.columns import IDENTIFIES
from fcpower_bids.analyses.engine.connectomes import ALPHA_GRID, PowerFamily, combine_scans
from fcpower_bids.analyses.engine.protocol import ScanBlocks, plan_scan_blocks
from fcpower_bids.analyses.engine.representations import build_representations, expand_names, scans_without_features
from fcpower_bids.analyses.identification.scan_lengths import length_rows
from fcpower_bids.analyses.pretraining_overlap import MARK, N_TRAINED, count_trained, enough_unseen, mark_rows
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.inference.differences import adjust_p_values
from fcpower_bids.core.inference.identification import (
    Identification,
    compare_identification,
    edge_reliability,
    identifiability,
    identify,
    identify_within,
    permutation_null,
)
from fcpower_bids.core.inference.permutation import permutation_p_value
from fcpower_bids.core.inference.reliability import ICC_FORMS
from fcpower_bids.core.regression.kernels import PANEL
from fcpower_bids.errors import NotInCohort
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.settings import Analysis

Rows = list[dict[str, Any]]

PERMUTATIONS = 999
"""Shuffles of the labels where the user does not say how many; a fifth for more than `MANY` scans."""

MANY = 3000


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse a cohort without repeated sessions."""
    repeated_scans(cohort, ~scans_without_features(cohort, expand_names(cohort, settings)))


def analyse_fingerprinting(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Identify people between sessions (Finn et al. 2015, doi:10.1038/nn.4135). Raises NotInCohort."""
    names = expand_names(cohort, settings)
    rows = repeated_scans(cohort, ~scans_without_features(cohort, names))
    persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
    groups = [np.array([row]) for row in rows]
    found: dict[str, Identification] = {}
    summary: Rows = []
    apart: Rows = []
    unseen = enough_unseen(cohort, names, persons)
    blocks = plan_scan_blocks(cohort, persons.tolist(), settings)
    each = build_representations(cohort, groups, names, settings)
    for representation in track(each, "identification", settings, len(names)):
        similarity = representation.similarity()
        found[representation.name] = identify(similarity, persons, sessions)
        n_trained = count_trained(cohort, representation.name, set(persons.tolist()))
        own = _summarise(representation.name, similarity, persons, sessions, blocks, settings)
        summary += [{**row, "n_trained": n_trained} for row in own]
        if unseen.any():
            block = similarity[np.ix_(unseen, unseen)]
            apart += _summarise(representation.name, block, persons[unseen], sessions[unseen], blocks, settings)
    facts = SHARED_FACTS | blocks.facts() | {"NumberOfScans": len(rows), "NumberOfPeople": len(set(persons.tolist()))}
    facts["Alpha"] = settings.alpha
    by_length, length_facts = length_rows(cohort, rows, settings)
    tables: tuple[tuple[TableSpec, Sequence[dict[str, Any]]], ...] = (
        (IDENTIFICATION, summary),
        (IDENTIFICATION_UNSEEN, apart),
        (IDENTIFICATION_SCANS, _mark(cohort, [row for name in found for row in _scans(name, found[name])])),
        (IDENTIFICATION_COMPARISONS, _compare(found, blocks, settings)),
        (IDENTIFICATION_ALPHA, _by_alpha(cohort, groups, persons, sessions, blocks, settings)),
        (IDENTIFICATION_ICC, icc_rows(cohort, groups, names, settings)),
        (IDENTIFICATION_LENGTH, by_length),
    )
    return {
        spec.name: Table(
            pd.DataFrame(list(rows), columns=list(spec.columns)),
            spec,
            facts | (length_facts if spec is IDENTIFICATION_LENGTH else {}),
        )
        for spec, rows in tables
    }


def _mark(cohort: Cohort, rows: Rows) -> Rows:
    marks = mark_rows(cohort, pd.DataFrame(rows, columns=["representation", "participant_id"]))
    return [{**row, MARK.key: mark} for row, mark in zip(rows, marks, strict=True)]


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


def _summarise(
    name: str,
    similarity: FloatArray,
    persons: NDArray[Any],
    sessions: NDArray[Any],
    blocks: ScanBlocks,
    settings: Analysis,
) -> Rows:
    """One row per pair of sessions, and one for all pairs where there are several."""
    labels = sorted(set(sessions.tolist()))
    people = {label: set(persons[sessions == label].tolist()) for label in labels}
    pairs = [(one, other) for one, other in combinations(labels, 2) if len(people[one] & people[other]) > 1]
    rows = []
    for pair in [*pairs, ("all", "all")] if len(pairs) > 1 else pairs:
        kept = np.isin(sessions, labels if pair[0] == "all" else pair)
        block = similarity[np.ix_(kept, kept)]
        row = _describe(block, persons[kept], sessions[kept], pair, blocks, settings)
        rows.append({"representation": name, "first_session": pair[0], "second_session": pair[1], **row})
    return rows


def _describe(
    similarity: FloatArray,
    persons: NDArray[Any],
    sessions: NDArray[Any],
    pair: tuple[str, str],
    blocks: ScanBlocks,
    settings: Analysis,
) -> dict[str, Any]:
    found, sites = identify(similarity, persons, sessions), blocks.sites_of(persons)
    error, low, high = found.interval(blocks.families)
    directions = found.by_direction()
    n_permutations = settings.permutations or (PERMUTATIONS if len(persons) <= MANY else PERMUTATIONS // 5)
    null = permutation_null(similarity, persons, sessions, n_permutations, settings.random_seed, sites)
    stands_out = identifiability(similarity, persons, sessions)
    return {
        "n_people": len(set(found.person.tolist())),
        "n_searches": len(found.credit),
        "accuracy": found.accuracy,
        "accuracy_first_to_second": directions.get(pair, np.nan),
        "accuracy_second_to_first": directions.get((pair[1], pair[0]), np.nan),
        "chance": found.chance,
        "sd": error,
        "ci_low": low,
        "ci_high": high,
        "d_prime": stands_out.d_prime,
        "i_self": stands_out.i_self,
        "i_others": stands_out.i_others,
        "i_diff": stands_out.i_diff,
        **_within(similarity, persons, sessions, sites),
        "p_permutation": permutation_p_value(found.accuracy, null),
        "n_permutations": len(null),
    }


def _within(
    similarity: FloatArray, persons: NDArray[Any], sessions: NDArray[Any], sites: NDArray[Any] | None
) -> dict[str, float]:
    """The same among the people of the own site; nothing without sites."""
    own = None if sites is None else identify_within(similarity, persons, sessions, sites)
    return {
        "n_sites": 1 if sites is None else len(set(sites.tolist())),
        "accuracy_within": np.nan if own is None else own.accuracy,
        "chance_within": np.nan if own is None else own.chance,
        "i_diff_within": np.nan if own is None else identifiability(similarity, persons, sessions, sites).i_diff,
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


def _compare(found: dict[str, Identification], blocks: ScanBlocks, settings: Analysis) -> Rows:
    rows: Rows = []
    for earlier, later in combinations(found, 2):
        one, other = found[later], found[earlier]
        test = compare_identification(one, other, seed=settings.random_seed, families=blocks.families)
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
                "p_people": test.p_people,
                "p_mcnemar": test.p_mcnemar,
            }
        )
    for row, adjusted in zip(rows, adjust_p_values([row["p_people"] for row in rows]), strict=True):
        row["p_holm"] = float(adjusted)
    return rows


def _by_alpha(
    cohort: Cohort,
    groups: Sequence[NDArray[np.intp]],
    persons: NDArray[Any],
    sessions: NDArray[Any],
    blocks: ScanBlocks,
    settings: Analysis,
) -> Rows:
    sites = blocks.sites_of(persons)
    family = PowerFamily(combine_scans(cohort, groups, settings), settings, keep=True)
    rows = []
    for alpha in track(ALPHA_GRID, "identification by exponent", settings):
        similarity = family.kernel(alpha)
        found, stands_out = identify(similarity, persons, sessions), identifiability(similarity, persons, sessions)
        rows.append(
            {
                "alpha": alpha,
                "accuracy": found.accuracy,
                "accuracy_within": _within(similarity, persons, sessions, sites)["accuracy_within"],
                "i_self": stands_out.i_self,
                "i_others": stands_out.i_others,
                "i_diff": stands_out.i_diff,
                "d_prime": stands_out.d_prime,
            }
        )
    return rows


ACCURACY_WITHIN = Column.number(
    "accuracy_within", "Accuracy of searches among the people of the own site; n/a without sites", "Within sites"
)
D_PRIME = Column.number("d_prime", "(i_self - i_others) in pooled standard deviations", "d′", 2)
I_DIFF = Column.number("i_diff", "100 (i_self - i_others); see IdiffCaveat", "Idiff", 1)
OVER_PEOPLE = join_columns(
    Column.number("ci_low", "Lower 95 % limit over resampled people, or families", "95 % from"),
    Column.number("ci_high", "Upper 95 % limit over resampled people, or families", "to"),
)
IDENTIFICATION = TableSpec(
    "identification",
    "Accuracy and its companions for each pair of sessions.",
    join_columns(
        IDENTIFIES,
        Column.text("first_session", "A session, or all", "Session"),
        Column.text("second_session", "Another session, or all", "Other session"),
        Column.number("n_people", "People who have both sessions", "People", 0),
        Column.number("n_searches", "Searches: every such scan of one session looks in the other", "Searches", 0),
        Column.number(
            "accuracy", "Share of the searches that find the own person, mean of both directions", "Accuracy"
        ),
        Column.number(
            "accuracy_first_to_second", "Scans of the first session that look in the second", "First to second"
        ),
        Column.number(
            "accuracy_second_to_first", "Scans of the second session that look in the first", "Second to first"
        ),
        Column.number("chance", "Expected accuracy of guessing", "Chance"),
        Column.number("sd", "Standard error of the accuracy over people, or families", "SD"),
        Column.number(
            "ci_low",
            "Lower limit of its 95 % interval (Wilson, for searches that people or families share)",
            "95 % from",
        ),
        Column.number("ci_high", "Upper limit of that interval", "to"),
        D_PRIME,
        Column.number("i_self", "Mean similarity (Pearson) to the own scan", "Iself"),
        Column.number("i_others", "Mean similarity to the scans of others", "Iothers"),
        I_DIFF,
        Column.number("n_sites", "Sites of these people; 1 without sites", "Sites", 0),
        ACCURACY_WITHIN,
        Column.number("chance_within", "Expected accuracy of guessing among these", "Chance there"),
        Column.number("i_diff_within", "100 (i_self - mean similarity to others of the own site)", "Idiff there", 1),
        Column.p(
            "p_permutation",
            "p of the accuracy with people shuffled in every session, within their sites where there are any",
            "p (permutation)",
        ),
        Column.number("n_permutations", "Shuffles", "Shuffles", 0),
        N_TRAINED,
    ),
    ("representation", "first_session", "second_session"),
)
IDENTIFICATION_UNSEEN = TableSpec(
    "identification_unseen",
    "The same over the people that no encoder was trained on, where an encoder was trained on others of them.",
    {key: column for key, column in IDENTIFICATION.columns.items() if key != N_TRAINED.key},
    IDENTIFICATION.keys,
)
IDENTIFICATION_SCANS = TableSpec(
    "identification_scans",
    "Every search: who was looked for, who was found.",
    join_columns(
        IDENTIFIES,
        Column.text("participant_id", "Whose scan", "Person"),
        Column.text("session", "Of which session", "Session"),
        Column.text("searched", "In which session the most similar scan was looked for"),
        Column.text("matched", "Person of the most similar scan"),
        Column.number("similarity", "Similarity (Pearson) to that scan"),
        Column.number("own_similarity", "Similarity to the own scan"),
        Column.number("rank", "1 + number of other people who are more similar than the own scan", digits=0),
        Column.number("credit", "1 for a hit, 1/k for a tie of k, 0 for a miss"),
        Column.number("candidates", "People searched", digits=0),
        MARK,
    ),
    ("representation", "participant_id", "session", "searched"),
)
IDENTIFICATION_COMPARISONS = TableSpec(
    "identification_comparisons",
    "Two representations on the same searches, compared over people.",
    join_columns(
        Column.text("representation", "The one whose accuracy comes first in the difference", "Representation"),
        Column.text("reference", "The one whose accuracy is subtracted", "Against"),
        Column.number("difference", "Difference in accuracy", "Difference"),
        OVER_PEOPLE,
        Column.number("n_searches", "Searches that both made", digits=0),
        Column.number("only_representation", "Searches that the representation alone got right", digits=0),
        Column.number("only_reference", "Searches that the reference alone got right", digits=0),
        Column.p("p_people", "Exact sign flips of the net difference of each person, or family, two-sided", "p"),
        Column.p(
            "p_mcnemar",
            "Exact McNemar test on the searches, as in the paper: too small, for it counts people twice",
        ),
        Column.p("p_holm", "p_people after Holm's correction over the pairs", "p (Holm)"),
    ),
    ("representation", "reference"),
)
IDENTIFICATION_ALPHA = TableSpec(
    "identification_alpha",
    "Accuracy against the exponent.",
    join_columns(
        Column.number("alpha", "Exponent of FC^alpha; 1 is FC", "α", 2),
        Column.number("accuracy", "Share of the searches that find the own person", "Accuracy"),
        ACCURACY_WITHIN,
        Column.number("i_self", "Mean similarity to the own scan", "Iself"),
        Column.number("i_others", "Mean similarity to the scans of others", "Iothers"),
        I_DIFF,
        D_PRIME,
    ),
    ("alpha",),
)
IDENTIFICATION_LENGTH = TableSpec(
    "identification_length",
    "Accuracy against the length of the scan.",
    join_columns(
        IDENTIFIES,
        Column.number("minutes", "Cleaned minutes from the start of each scan that are used", "Minutes", 1),
        Column.number("n_people", "People", "People", 0),
        Column.number("accuracy", "Share of the searches that find the own person", "Accuracy"),
        D_PRIME,
        I_DIFF,
    ),
    ("representation", "minutes"),
)
IDENTIFICATION_ICC = TableSpec(
    "identification_icc",
    "Intraclass correlation of the edges over sessions.",
    join_columns(
        Column.text("representation", "Whose features", "Representation"),
        Column.text("form", "Name of the coefficient after Shrout and Fleiss 1979", "Coefficient"),
        Column.number("mean", "Mean over the features", "Mean"),
        Column.number("sd", "Standard deviation over the features", "SD"),
        Column.number("median", "Median over the features", "Median"),
        Column.number("n_people", "People who have every session", "People", 0),
        Column.number("n_features", "Features with variance", "Features", 0),
    ),
    ("representation", "form"),
)
TABLES = (
    *(IDENTIFICATION, IDENTIFICATION_UNSEEN, IDENTIFICATION_SCANS, IDENTIFICATION_COMPARISONS),
    *(IDENTIFICATION_ALPHA, IDENTIFICATION_LENGTH, IDENTIFICATION_ICC),
)
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
    "IdiffCaveat": (
        "Idiff has the unit of the similarity. It falls while accuracy rises with flattening, so it does not measure "
        "the gain; d' and the accuracy do."
    ),
    "Privacy": (
        "FC^alpha is a strong fingerprint: it can link the scans of a person across datasets. Share connectomes as you "
        "would share other identifying data."
    ),
}


FORMS = tuple(form for form in ICC_FORMS if form.endswith(",1)"))


def icc_rows(
    cohort: Cohort, groups: Sequence[NDArray[np.intp]], names: Sequence[str], settings: Analysis
) -> list[dict[str, Any]]:
    """One row per representation and form; none where fewer than two people have every session."""
    rows = np.concatenate(groups)
    persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
    labels, counts = np.unique(persons, return_counts=True)
    complete = np.isin(persons, labels[counts == len(set(sessions.tolist()))])
    if len(set(persons[complete].tolist())) < 2:
        return []
    chosen = [group for group, keep in zip(groups, complete, strict=True) if keep]
    result = []
    for representation in build_representations(cohort, chosen, names, settings):
        features = representation.features()
        starts = range(0, features.shape[1], PANEL)
        for form in FORMS:
            values = np.concatenate(
                [
                    edge_reliability(features[:, at : at + PANEL], persons[complete], sessions[complete], form)
                    for at in starts
                ]
            )
            values = values[np.isfinite(values)]
            result.append(
                {
                    "representation": representation.name,
                    "form": form,
                    "mean": float(values.mean()) if values.size else np.nan,
                    "sd": float(values.std()) if values.size else np.nan,
                    "median": float(np.median(values)) if values.size else np.nan,
                    "n_people": len(set(persons[complete].tolist())),
                    "n_features": int(values.size),
                }
            )
    return result
