"""How well phenotypes are predicted: every representation on the same folds, compared, with null and importance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.columns import (
    COMPARISON_COLUMNS,
    FOLD,
    FOLD_COLUMNS,
    KEY_COLUMNS,
    PERSON,
    PERSON_COLUMNS,
    POOLED_COLUMNS,
    SCORE_COLUMNS,
)
from fcpower_bids.analyses.engine.comparisons import add_people_tests, comparison_facts
from fcpower_bids.analyses.engine.cross_validation import cross_validate, run_nested_cv
from fcpower_bids.analyses.engine.entries import Entries, describe_scores
from fcpower_bids.analyses.engine.scoring import LEADING, WITHIN_MEAN, leading_summary
from fcpower_bids.analyses.engine.study import Study, open_study
from fcpower_bids.analyses.prediction.alpha_selection import FC_NESTED, nested_exponent, tabulate_grid
from fcpower_bids.analyses.prediction.baselines import BASELINES, Baselines
from fcpower_bids.analyses.prediction.edge_importance import (
    IMPORTANCE_EDGES,
    IMPORTANCE_FACTS,
    IMPORTANCE_NETWORKS,
    IMPORTANCE_PARCELS,
    EdgeImportance,
)
from fcpower_bids.analyses.prediction.harmonise import HARMONISERS, changes_features, make_solvers
from fcpower_bids.analyses.prediction.permutation_null import (
    NO_NULL,
    NULL,
    NULL_FACTS,
    choose_permutations,
    null_p_values,
    null_rows,
)
from fcpower_bids.analyses.prediction.reliability import RELIABILITY, tabulate_reliability
from fcpower_bids.analyses.prediction.sites import PREDICTION_SITES, scores_within_sites, tabulate_sites
from fcpower_bids.analyses.pretraining_overlap import (
    MARK,
    N_TRAINED,
    PREDICTION_UNSEEN,
    count_trained,
    mark_rows,
    score_unseen,
)
from fcpower_bids.core.regression.folds import folds_table
from fcpower_bids.core.regression.ridge import check_memory
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.records import Blocks, Cohort, Table
from fcpower_bids.schema import Column, Columns, TableSpec, join_columns, pick_columns
from fcpower_bids.settings import Analysis
from fcpower_bids.settings.group import PERMUTE

MOST_ROWS = 2_000_000
"""With more rows `predictions` has its means over repeats in its place."""

PREDICTIONS = TableSpec(
    "predictions",
    "Out-of-fold prediction of every person.",
    join_columns(PERSON_COLUMNS, MARK),
    ("participant_id", *FOLD),
)
PREDICTION_MEANS = TableSpec(
    "prediction_means",
    f"Out-of-fold prediction of every person, mean over repeats: in the place of `predictions` where that would have "
    f"more than {MOST_ROWS:,} rows.",
    join_columns(
        PERSON,
        pick_columns(KEY_COLUMNS, ("target", "representation")),
        Column.number("n_repeats", "Repeats in which the person was tested", digits=0),
        Column.number("observed", "Target as the folds define it, mean over repeats"),
        Column.number("predicted", "Prediction by models that have seen neither person nor family, mean over repeats"),
        Column.number("predicted_sd", "Standard deviation of the predictions over repeats; n/a for a single one"),
        MARK,
    ),
    ("participant_id", "target", "representation"),
)
FOLDS = TableSpec(
    "folds",
    "Who was where, so that any tool can use the same splits.",
    join_columns(
        pick_columns(KEY_COLUMNS, ("repeat", "fold")),
        Column.text("repeat_label", "Repetition as the file of `--folds-file` calls it", optional=True),
        Column.text("fold_label", "Fold as that file calls it", optional=True),
        PERSON,
        Column.text("role", "test, train, or excluded (a relative of a test person at another site)"),
        Column.number("inner_fold", "Inner fold in which a training person validates, from 0; -1 for others"),
    ),
    ("repeat", "fold", "participant_id"),
)


def tabulate_people(entries: Entries, facts: Mapping[str, Any]) -> dict[str, Table]:
    """Return ``predictions``, or ``prediction_means`` where it has too many rows."""
    study = entries.study
    tested = sum(fold.test.size for fold in study.folds)
    n_rows = tested * len(study.targets) * len(entries.results)
    if n_rows <= MOST_ROWS:
        return {PREDICTIONS.name: Table(Blocks(partial(_predictions, entries, False), n_rows), PREDICTIONS, facts)}
    people = np.unique(np.concatenate([fold.test for fold in study.folds])).size
    blocks = Blocks(partial(_predictions, entries, True), people * len(study.targets) * len(entries.results))
    return {PREDICTION_MEANS.name: Table(blocks, PREDICTION_MEANS, facts)}


def _predictions(entries: Entries, of_repeats: bool) -> Iterator[pd.DataFrame]:
    for each in entries.people():
        block = mean_over_repeats(each) if of_repeats else each
        yield block.assign(**{MARK.key: mark_rows(entries.study.cohort, block)})


def mean_over_repeats(block: pd.DataFrame) -> pd.DataFrame:
    """Average the repeats of one target and representation, person by person, in the order of their names."""
    by_person = block.groupby("participant_id", sort=True)
    frame = by_person.agg(
        n_repeats=("predicted", "size"),
        observed=("observed", "mean"),
        predicted=("predicted", "mean"),
        predicted_sd=("predicted", "std"),
    ).reset_index()
    frame.insert(1, "target", block["target"].iloc[0])
    frame.insert(2, "representation", block["representation"].iloc[0])
    return frame


def tabulate_folds(study: Study, facts: Mapping[str, Any]) -> Table:
    """Return ``folds``, made fold by fold."""
    names, labels = np.array(study.people.names, dtype=object), study.protocol.labels
    named = any(tuple(map(str, numbers)) != label for numbers, label in labels.items())

    def each() -> Iterator[pd.DataFrame]:
        for fold in study.folds:
            frame = pd.DataFrame(folds_table([fold], len(names)))
            frame["participant_id"] = names[frame.pop("row").to_numpy()]
            if named:
                frame["repeat_label"], frame["fold_label"] = labels[fold.repeat, fold.fold]
            yield frame[[key for key in FOLDS.columns if key in frame]]

    return Table(Blocks(each, len(names) * len(study.folds)), FOLDS, facts)


PREDICTION = TableSpec(
    "prediction",
    "One row per target, representation, repetition and outer fold.",
    join_columns(pick_columns(KEY_COLUMNS, ("target", "representation")), FOLD_COLUMNS),
    FOLD,
)
POOLED = TableSpec(
    "prediction_pooled",
    "Scores of all out-of-fold predictions of a repetition together.",
    POOLED_COLUMNS,
    ("target", "representation", "repeat"),
)
COMPARISONS = TableSpec(
    "comparisons",
    "Two representations on the same folds: corrected resampled t, and sign flips over people.",
    join_columns(
        COMPARISON_COLUMNS,
        Column.p(
            "p_people",
            "p of a difference in squared out-of-fold error, by sign flips over people; families, and sites that are "
            "held out, as blocks, the error of the latter without the offset of the site. It holds for these fitted "
            "models alone; that representations differ it says too often in small cohorts (14 and 7 of 100 true nulls "
            "with 100 and 300 people): read it with p_two_sided. n/a below 100 people (23 of 100 with 30)",
            "p (people)",
        ),
        Column.number("n_blocks", "People, families or sites whose signs are flipped (`Unit`)", "Blocks", 0),
        Column.number(
            "offset_difference",
            "Sites held out: size of the mean error of a site, representation minus reference, mean over sites, in the "
            "unit of the target; below 0 the representation places new sites better",
            "Offset",
            optional=True,
        ),
        Column.p(
            "p_offset", "p of a difference in the squared mean error of a site, sign flips over sites", optional=True
        ),
    ),
    ("target", "representation", "reference"),
)


def _summaries(score: Column) -> Columns:
    """Four summaries of one score."""
    name = score.heading
    return join_columns(
        Column.number(f"{score.key}_fold_mean", f"Mean over folds. {score.meaning}", f"Mean {name} of folds"),
        Column.number(f"{score.key}_fold_sd", f"Standard deviation over folds. {score.meaning}", "SD"),
        Column.number(
            f"{score.key}_pooled_mean",
            f"All predictions of a repeat together, mean over repeats. {score.meaning}",
            f"{name} of all predictions" if score.key in ("r", "auc") else name,
        ),
        Column.number(
            f"{score.key}_pooled_sd", f"All predictions of a repeat together, SD over repeats. {score.meaning}", "SD"
        ),
    )


SUMMARY = TableSpec(
    "prediction_summary",
    "Means and standard deviations over folds and repetitions, and the permutation p-value.",
    join_columns(
        pick_columns(KEY_COLUMNS, ("target", "representation")),
        Column.number("n_folds", "Folds", "Folds", 0),
        Column.number("n_scored", "Folds in which the correlation is defined", "Scored folds", 0),
        Column.number(
            "share_at_grid_edge",
            "Share of folds whose penalty is the first or last that was searched",
            "Penalty at edge",
            2,
        ),
        Column.text("ranked_by", "Which mean of the score ranks the representations", levels=LEADING),
        *(_summaries(score) for score in SCORE_COLUMNS.values()),
        Column.number("r_within_mean", "r within sites that are held out, as in prediction_sites", optional=True),
        Column.number("auc_within_mean", "AUC within sites that are held out, the same", optional=True),
        Column.p(
            "p_permutation",
            "(1 + permutations at least as good) / (1 + permutations), see the table null",
            "p (permutation)",
        ),
        Column.p(
            "p_max",
            "The same against the best representation of each permutation: corrected for how many there are",
            "p (corrected)",
        ),
        Column.p(
            "p_max_targets",
            "The same against the best of all targets and representations of each permutation, scores in standard "
            "deviations of their permutations: corrected for how many there are; the page goes by it",
            "p (all targets)",
        ),
        Column.number(
            "score_needed",
            "Score of all predictions of the first repeat above which p_max_targets would have been below 0.05; n/a "
            "where the permutations are too few",
            "Needed",
        ),
        Column.number(
            "score_powered",
            "True score that would be found in 80 of 100 such cohorts: the one needed and .84 standard deviations of "
            "the permuted ones",
            "Found in four of five",
        ),
        Column.number("n_permutations", "Permutations", "Permutations", 0),
        Column.number(
            "score_unharmonised",
            "Score of all predictions of the first repeat from features as they are, where --sites combat changes them",
            "Unharmonised",
            optional=True,
        ),
        N_TRAINED,
    ),
    ("target", "representation"),
)
TABLES = (
    *(PREDICTION, PREDICTIONS, PREDICTION_MEANS, POOLED, PREDICTION_UNSEEN, SUMMARY, COMPARISONS, FOLDS),
    BASELINES,
    *(NULL, PREDICTION_SITES, RELIABILITY, IMPORTANCE_EDGES, IMPORTANCE_NETWORKS, IMPORTANCE_PARCELS),
)
"""All but those of `alpha_selection`, which a nested choice of the exponent writes as well."""


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse what allows no prediction: columns, targets, folds, a harmonisation that would leak, too little memory."""
    study = _open(cohort, settings)
    check_memory(len(study.people.names))


def _open(cohort: Cohort, settings: Analysis) -> Study:
    if changes_features(settings.sites):
        HARMONISERS[settings.sites].check(settings)
    return open_study(cohort, settings)


def analyse_prediction(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Predict phenotypes by nested cross-validation. Raises Unfit."""
    study = _open(cohort, settings)
    unharmonised = _score_unharmonised(study) if changes_features(settings.sites) else {}
    entries, importance, baselines, null = Entries(study), EdgeImportance(study), Baselines(study), []
    for representation, solver in make_solvers(study.representations(), study, settings.sites):
        entry = representation.name
        result = entries.add(entry, cross_validate(solver, study, entry))
        null += null_rows(solver, study, entry)
        baselines.add(entry, solver)
        del solver  # The inverses of a large cohort must not be in memory together with its features.
        if not changes_features(settings.sites):
            importance.add(representation, result)
    grid = None
    if settings.alpha_selection == "nested":
        grid = nested_exponent(study)
        entries.add(FC_NESTED, grid.result)
    tables = _tables_of(entries) | (tabulate_grid(study, grid) if grid else {})
    tables[RELIABILITY.name] = tabulate_reliability(entries)
    if null:
        tables[NULL.name] = Table(pd.DataFrame(null), NULL, NULL_FACTS)
    tables |= tabulate_sites(study, entries.people()) | baselines.table()
    tables[SUMMARY.name] = _summarise(tables, null, study, unharmonised)
    return tables | importance.tables(IMPORTANCE_FACTS)


def _score_unharmonised(study: Study) -> dict[tuple[str, str], dict[str, float]]:
    """Score predictions from features as they are, on the folds of the first repeat."""
    found = {}
    for representation, solver in make_solvers(study.representations(), study, PERMUTE):
        result = run_nested_cv(solver, study.columns, study.first_repeat, study.preset)
        observed, predicted = np.concatenate(result.observed), np.concatenate(result.predicted)
        for target, own, other in zip(study.targets, observed.T, predicted.T, strict=True):
            score = score_predictions("auc" if target.is_binary else "pearson", own, other)
            found[target.name, representation.name] = {"score_unharmonised": float(score)}
    return found


def _tables_of(entries: Entries) -> dict[str, Table]:
    study = entries.study
    facts = study.facts() | {"Notes": entries.notes(), "Permutations": choose_permutations(study).reason}
    if changes_features(study.settings.sites):
        facts |= HARMONISERS[study.settings.sites].facts(study)
    comparisons = add_people_tests(entries.compare()[list(COMPARISON_COLUMNS)], entries.people(), study)
    classes = [target.name for target in study.targets if target.is_binary]
    unseen = score_unseen(study.cohort, list(entries.results), study.people.names, entries.people(), classes)
    return {
        PREDICTION.name: Table(entries.folds()[list(PREDICTION.columns)], PREDICTION, facts),
        POOLED.name: Table(entries.pooled(), POOLED, facts),
        **tabulate_people(entries, facts),
        PREDICTION_UNSEEN.name: Table(unseen, PREDICTION_UNSEEN, facts),
        FOLDS.name: tabulate_folds(study, facts),
        COMPARISONS.name: Table(comparisons, COMPARISONS, facts | comparison_facts(study)),
    }


def _summarise(
    tables: dict[str, Table],
    null: list[dict[str, Any]],
    study: Study,
    more: Mapping[tuple[str, str], dict[str, float]],
) -> Table:
    """One row per target and representation; everything in it follows from the other tables."""
    p_values, within = null_p_values(null), scores_within_sites(tables) if study.protocol.held_out else None
    pooled = dict(iter(tables[POOLED.name].frame.groupby(["target", "representation"], sort=False)))
    rows = []
    for (target, representation), part in tables[PREDICTION.name].frame.groupby(
        ["target", "representation"], sort=False
    ):
        key = str(target), str(representation)
        row: dict[str, Any] = {"target": key[0], "representation": key[1], "n_folds": len(part)}
        row["n_scored"] = int(part["r"].notna().sum())
        row["share_at_grid_edge"] = float(part["at_grid_edge"].mean())
        row["ranked_by"] = WITHIN_MEAN if within else leading_summary(part["n_test"])
        for score in SCORE_COLUMNS:
            row |= describe_scores(part, pooled[key], score, f"{score}_")
        row |= within[key] if within else {}
        row |= p_values.get(key, NO_NULL) | more.get(key, {})
        row[N_TRAINED.key] = count_trained(study.cohort, key[1], set(study.people.names))
        rows.append(row)
    frame = pd.DataFrame(rows)
    return Table(frame[[name for name in SUMMARY.columns if name in frame]], SUMMARY)
