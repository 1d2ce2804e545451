"""How well phenotypes are predicted: every representation on the same folds, compared, with null and importance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.alpha import FC_NESTED, nested_exponent, tabulate_alpha
from fcpower_bids.analyses.baselines import (
    NO_NULL,
    NULL_FACTS,
    Baselines,
    choose_permutations,
    null_p_values,
    null_rows,
)
from fcpower_bids.analyses.evaluate import (
    COMPARED,
    FOLD_MEAN,
    POOLED_MEAN,
    SCORES,
    SMALL_FOLD,
    WITHIN_MEAN,
    Results,
    compare,
    comparison_facts,
    cross_validate,
    describe_scores,
    evaluate,
    fold_scores,
    notes_of,
    person_frames,
    pooled_scores,
    predictions_by_repeat,
)
from fcpower_bids.analyses.features import EMBEDDING, count_trained, has_series, mark_rows
from fcpower_bids.analyses.importance import IMPORTANCE_FACTS, EdgeImportance
from fcpower_bids.analyses.scan_parts import cut_scans, first_half, second_half
from fcpower_bids.analyses.sites import (
    harmonisation_facts,
    make_solvers,
    scores_within_sites,
    tabulate_sites,
)
from fcpower_bids.analyses.study import Study, changes_features, open_study
from fcpower_bids.core.identification import disattenuated_ceiling, split_half_reliability
from fcpower_bids.core.regression.folds import folds_table
from fcpower_bids.core.regression.krr import check_memory
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Blocks, Cohort, Table, tabulate
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings

MOST_ROWS = 2_000_000
"""With more rows `predictions` has its means over repeats in its place."""
SUMMARY = TABLES["prediction_summary"]

RELIABILITY_FACTS = {
    "Rule": (
        "Halves are those of each scan in time; the nested cross-validation is run on each half, on the same folds "
        "(the paper, Appendix F). Halves need the series of every scan; embeddings have none."
    )
}


def tabulate_people(study: Study, results: Results, facts: Mapping[str, Any]) -> dict[str, Table]:
    """Return ``predictions``, or ``prediction_means`` where it has too many rows."""
    tested = sum(fold.test.size for fold in study.folds)
    n_rows = tested * len(study.targets) * len(results)
    whole = n_rows <= MOST_ROWS
    name = "predictions" if whole else "prediction_means"

    def blocks() -> Iterator[pd.DataFrame]:
        for block in person_frames(study, results):
            if not whole:  # person by person, in the order of their names
                about = {name: block[name].iloc[0] for name in ("target", "representation")}
                block = block.groupby("participant_id", sort=True).agg(
                    n_repeats=("predicted", "size"),
                    observed=("observed", "mean"),
                    predicted=("predicted", "mean"),
                    predicted_sd=("predicted", "std"),
                )
                block = block.reset_index().assign(**about)
            yield block.assign(seen_in_pretraining=mark_rows(study.cohort, block))[list(TABLES[name].columns)]

    people = np.unique(np.concatenate([fold.test for fold in study.folds])).size
    made = Blocks(blocks, n_rows if whole else people * len(study.targets) * len(results))
    return {name: Table(made, TABLES[name], facts)}


def tabulate_folds(study: Study, facts: Mapping[str, Any]) -> Table:
    """Return ``folds``, made fold by fold."""
    names, labels, spec = np.array(study.people.names, dtype=object), study.protocol.labels, TABLES["folds"]
    named = any(tuple(map(str, numbers)) != label for numbers, label in labels.items())

    def frames() -> Iterator[pd.DataFrame]:
        for fold in study.folds:
            frame = pd.DataFrame(folds_table([fold], len(names)))
            frame["participant_id"] = names[frame.pop("row").to_numpy()]
            if named:
                frame["repeat_label"], frame["fold_label"] = labels[fold.repeat, fold.fold]
            yield frame[[key for key in spec.columns if key in frame]]

    return Table(Blocks(frames, len(names) * len(study.folds)), spec, facts)


def prepare(cohort: Cohort, settings: Settings) -> Study:
    """Open the study; refuses columns, targets and folds that allow no prediction, and too little memory."""
    if changes_features(settings.group.sites) and settings.group.site_column is None:
        raise Unfit("Harmonisation needs the column of sites; give --site-column.")
    study = open_study(cohort, settings, harmonises=True)
    check_memory(len(study.people.names))
    return study


def analyse_prediction(cohort: Cohort, settings: Settings) -> dict[str, Table]:
    """Predict phenotypes by nested cross-validation. Raises Unfit."""
    study = prepare(cohort, settings)
    results: dict[str, NestedResult] = {}
    importance, baselines, null = EdgeImportance(study), Baselines(study), []
    for representation, solver in make_solvers(study.representations(), study, settings.group.sites):
        entry = representation.name
        results[entry] = cross_validate(solver, study, entry)
        null += null_rows(solver, study, entry)
        baselines.add(entry, solver)
        del solver  # The inverses of a large cohort must not be in memory together with its features.
        if not changes_features(settings.group.sites):
            importance.add(representation, results[entry])
    grid = None
    if settings.group.alpha_selection == "nested":
        grid = nested_exponent(study)
        results[FC_NESTED] = grid.result
    facts = study.facts() | {"Notes": notes_of(results), "Permutations": choose_permutations(study)[1]}
    if changes_features(settings.group.sites):
        facts |= harmonisation_facts(study)
    folds = fold_scores(study, results)
    tables = tabulate(facts, prediction=folds, prediction_pooled=pooled_scores(study, results))
    tables |= tabulate_people(study, results, facts) | {"folds": tabulate_folds(study, facts)}
    comparisons = compare(folds, study)[list(COMPARED)]
    tables["comparisons"] = Table(comparisons, TABLES["comparisons"], facts | comparison_facts(study))
    tables |= tabulate_alpha(study, grid) if grid else {}
    tables |= tabulate_reliability(study, results)
    if null:
        tables |= tabulate(NULL_FACTS, null=null)
    tables |= tabulate_sites(study, person_frames(study, results)) | baselines.table()
    tables[SUMMARY.name] = _summarise(tables, null, study)
    return tables | importance.tables(IMPORTANCE_FACTS)


def _summarise(tables: dict[str, Table], null: list[dict[str, Any]], study: Study) -> Table:
    """One row per target and representation; everything in it follows from the other tables."""
    p_values, within = null_p_values(null), scores_within_sites(tables) if study.protocol.held_out else None
    pooled = dict(iter(tables["prediction_pooled"].frame.groupby(["target", "representation"], sort=False)))
    rows = []
    for (target, representation), part in tables["prediction"].frame.groupby(["target", "representation"], sort=False):
        key = str(target), str(representation)
        row: dict[str, Any] = {"target": key[0], "representation": key[1], "n_folds": len(part)}
        row["n_scored"] = int(part["r"].notna().sum())
        row["share_at_grid_edge"] = float(part["at_grid_edge"].mean())
        row["ranked_by"] = (
            WITHIN_MEAN if within else FOLD_MEAN if np.median(part["n_test"]) >= SMALL_FOLD else POOLED_MEAN
        )
        for score in SCORES:
            row |= describe_scores(part, pooled[key], score, f"{score}_")
        row |= within[key] if within else {}
        row |= p_values.get(key, NO_NULL)
        row["n_trained"] = count_trained(study.cohort, key[1], set(study.people.names))
        rows.append(row)
    frame = pd.DataFrame(rows)
    return Table(frame[[name for name in SUMMARY.columns if name in frame]], SUMMARY)


# --- Reliability ------------------------------------------------------------------------------------------------------


def tabulate_reliability(study: Study, results: Results) -> dict[str, Table]:
    """One row per target and representation; the sidecar says why halves are not there."""
    facts, halves = dict(RELIABILITY_FACTS), list[dict[str, NestedResult]]()
    if changes_features(study.settings.group.sites):
        facts["HalvesLeftOut"] = "The halves of scans are not harmonised."
    elif has_series(study.cohort):
        try:
            for part in (first_half, second_half):
                (half,) = cut_scans(study.cohort, [part], "FC of half scans", study.settings)
                connectomes = (
                    representation
                    for representation in study.representations(half)
                    if not representation.name.startswith(EMBEDDING)
                )
                halves.append(evaluate(study, connectomes, "{} of half scans"))
        except Unfit as error:
            facts["HalvesLeftOut"] = str(error)
    of_all = pooled_scores(study, results).groupby(["target", "representation"])["r"].mean().to_dict()
    rows = []
    for name in (label for label in halves[0] if label in results) if len(halves) > 1 else ():
        for j in range(len(study.targets)):
            first, second = (predictions_by_repeat(study, half[name], j) for half in halves)
            agreement, r = split_half_reliability(first, second), of_all.get((study.targets[j].name, name), np.nan)
            row = {"target": study.targets[j].name, "representation": name, "rho": agreement.mean}
            row |= {"rho_sd": agreement.sd, "reliability": agreement.full, "r": r}
            rows.append(row | {"ceiling": disattenuated_ceiling(r, agreement.mean)})
    return tabulate(facts, reliability=rows)
