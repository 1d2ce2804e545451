"""How well phenotypes are predicted: every representation on the same folds, compared, with null and importance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.comparisons import COMPARISON_COLUMNS, comparison_facts
from fcpower_bids.analyses.engine.cross_validation import cross_validate, make_solver
from fcpower_bids.analyses.engine.entries import Entries, describe_scores
from fcpower_bids.analyses.engine.protocol import Study, open_study
from fcpower_bids.analyses.engine.scoring import (
    FOLD_COLUMNS,
    KEY_COLUMNS,
    PERSON_COLUMNS,
    POOLED_COLUMNS,
    SCORE_COLUMNS,
)
from fcpower_bids.analyses.prediction.alpha_selection import FC_NESTED, nested_exponent, tabulate_grid
from fcpower_bids.analyses.prediction.edge_importance import IMPORTANCE_FACTS, EdgeImportance
from fcpower_bids.analyses.prediction.permutation_null import NULL_COLUMNS, NULL_FACTS, null_p_values, null_rows
from fcpower_bids.analyses.prediction.reliability import tabulate_reliability
from fcpower_bids.core.regression.folds import folds_table
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Analysis


def analyse_prediction(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Predict phenotypes by nested cross-validation.

    Source: the paper, Section "Predicting from the connectome" and Appendix "Evaluation protocols".

    Parameters
    ----------
    cohort : Cohort
        Scans and phenotypes; a person is one row, averaged over their scans.
    settings : Analysis
        Targets, composites, covariates, family and site columns, representations, preset, permutations, seed.

    Returns
    -------
    dict of str to Table
        ``prediction`` (one row per target, representation and fold), ``prediction_pooled`` (per repeat),
        ``prediction_summary``, ``predictions`` (per person), ``folds``, ``comparisons``, ``reliability``,
        ``importance_edges``, ``importance_networks``; ``null`` where permutations are asked for; the tables of
        `alpha_selection` where the exponent is chosen inside the folds.

    Raises
    ------
    Unfit
        Unknown columns, constant targets, too few people, or a family that is larger than a fold.
    """
    study = open_study(cohort, settings)
    entries, importance, null = Entries(study), EdgeImportance(study), []
    for representation in study.representations():
        solver = make_solver(representation, study.preset)
        result = entries.add(representation.name, cross_validate(solver, study, representation.name))
        null += null_rows(solver, study, representation.name)
        del solver  # The inverses of a large cohort must not be in memory beside its features.
        importance.add(representation, result)
    grid = None
    if settings.alpha_selection == "nested":
        grid = nested_exponent(study)
        entries.add(FC_NESTED, grid.result)
    tables = _tables_of(entries) | (tabulate_grid(study, grid) if grid else {})
    tables["reliability"] = tabulate_reliability(entries)
    if null:
        tables["null"] = Table(pd.DataFrame(null), NULL_COLUMNS, NULL_FACTS)
    tables["prediction_summary"] = _summarise(tables, null)
    return tables | importance.tables(IMPORTANCE_FACTS)


def _tables_of(entries: Entries) -> dict[str, Table]:
    study = entries.study
    facts = study.facts() | {"Notes": entries.notes()}
    comparisons = entries.compare()[list(COMPARISON_COLUMNS)]
    return {
        "prediction": Table(entries.folds(), FOLD_COLUMNS, facts),
        "prediction_pooled": Table(entries.pooled(), POOLED_COLUMNS, facts),
        "predictions": Table(entries.people(), PERSON_COLUMNS, facts),
        "folds": _folds(study, facts),
        "comparisons": Table(comparisons, COMPARISON_COLUMNS, facts | comparison_facts(study)),
    }


def _folds(study: Study, facts: dict[str, Any]) -> Table:
    frame = pd.DataFrame(folds_table(study.folds, len(study.people.names)))
    frame.insert(2, "participant_id", np.array(study.people.names, dtype=object)[frame.pop("row").to_numpy()])
    columns = {
        "repeat": KEY_COLUMNS["repeat"],
        "fold": KEY_COLUMNS["fold"],
        "participant_id": "Person",
        "role": "test, train, or excluded (a relative of a test person at another site)",
        "inner_fold": "Inner fold in which a training person validates, from 0; -1 for others",
    }
    return Table(frame, columns, facts)


def _summarise(tables: dict[str, Table], null: list[dict[str, Any]]) -> Table:
    """One row per target and representation; everything in it follows from the other tables."""
    p_values = null_p_values(null)
    pooled = dict(iter(tables["prediction_pooled"].frame.groupby(["target", "representation"], sort=False)))
    rows = []
    for (target, representation), part in tables["prediction"].frame.groupby(["target", "representation"], sort=False):
        key = str(target), str(representation)
        row: dict[str, Any] = {"target": key[0], "representation": key[1], "n_folds": len(part)}
        row["n_scored"] = int(part["r"].notna().sum())
        row["share_at_grid_edge"] = float(part["at_grid_edge"].mean())
        for score in SCORE_COLUMNS:
            row |= describe_scores(part, pooled[key], score, f"{score}_")
        row["p_permutation"], row["n_permutations"] = p_values.get(key, (np.nan, 0))
        rows.append(row)
    columns = {
        "target": KEY_COLUMNS["target"],
        "representation": KEY_COLUMNS["representation"],
        "n_folds": "Folds",
        "n_scored": "Folds in which the correlation is defined",
        "share_at_grid_edge": "Share of folds whose penalty lies at an edge of the grid",
        "p_permutation": "(1 + permutations at least as good) / (1 + permutations), see the table null",
        "n_permutations": "Permutations",
    }
    for score, text in SCORE_COLUMNS.items():
        columns[f"{score}_fold_mean"] = f"Mean over folds. {text}"
        columns[f"{score}_fold_sd"] = f"Standard deviation over folds. {text}"
        columns[f"{score}_pooled_mean"] = f"All predictions of a repeat together, mean over repeats. {text}"
        columns[f"{score}_pooled_sd"] = f"All predictions of a repeat together, SD over repeats. {text}"
    return Table(pd.DataFrame(rows), columns)
