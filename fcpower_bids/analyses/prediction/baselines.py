"""Trivial predictors on the same folds, and how much the connectome adds to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.columns import KEY_COLUMNS
from fcpower_bids.analyses.engine.cross_validation import run_nested_cv
from fcpower_bids.analyses.engine.people import covariate_columns
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.engine.targets import Target, site_columns
from fcpower_bids.analyses.prediction.permutation_null import (
    choose_permutations,
    list_scores,
    null_p_values,
    score_columns,
)
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.core.regression.targets import leave_nothing, minus_known, remove_covariates, remove_probability
from fcpower_bids.records import Table
from fcpower_bids.schema import Column, TableSpec, join_columns, pick_columns

MEAN, KNOWN, STACKED = "mean", "known", "known and connectome"
CALLED = ("age", "sex", "gender")
"""Columns that are known of most people, in lower case."""
OF_SCANS = ("mean_fd", "minutes")
PEOPLE_PER_COLUMN = 10
MOST_PERMUTATIONS = 200
"""Taken where no number is asked for."""
GAINS = {"gain": "value", "gain_cod": "predictive_cod", "gain_log_likelihood": "log_likelihood"}
"""Columns of differences, and those whose they are."""

BASELINES = TableSpec(
    "prediction_baselines",
    "Trivial predictors on the folds of the first repeat, and how much each representation adds to them.",
    join_columns(
        pick_columns(KEY_COLUMNS, ("target",)),
        Column.text(
            "model",
            "The predictor",
            "Model",
            levels={
                MEAN: "the mean of the training people",
                KNOWN: "linear (classes: logistic) in covariates, age, sex, motion, minutes and site, as far as known",
                STACKED: "the same, and the representation on what it leaves",
            },
        ),
        Column.text("representation", "The representation that is added; n/a for none", "Representation"),
        Column.text("known", "Columns that are known", "Known"),
        Column.number("n_people", "People with the target", "People", 0),
        Column.text("score", "auc for targets of two classes, r for others", "Score"),
        Column.number("value", "The score of all predictions together", "Value", 2),
        Column.number("predictive_cod", "Coefficient of determination about the mean of the training people", "R²", 2),
        Column.number(
            "log_likelihood", "Mean log-likelihood of a person, in nats; without constants", "Log-likelihood"
        ),
        Column.number("gain", "Score minus the better of those of the mean and of what is known", "Gain", 2),
        Column.number("gain_cod", "The same of the coefficient of determination", "Gain in R²", 2),
        Column.number("gain_log_likelihood", "The same of the log-likelihood, per person", "Gain in log-likelihood"),
        Column.p(
            "p_adds",
            "p that the representation predicts what is left, against permutations of this within the blocks, "
            "corrected by the best of all targets and representations",
            "p (adds)",
        ),
        Column.number("n_permutations", "Permutations", "Permutations", 0),
    ),
    ("target", "model", "representation"),
)
FACTS = {
    "Rule": (
        "The representation predicts a target without the known columns (classes: minus their probability), on the "
        "folds of the first repeat; both predictions are added. Known columns are taken into the range of the training "
        "people, and in a fold where they err more than the mean, each person left out in turn, the mean is taken. "
        "Gains are over the better of the mean and the known "
        "columns. For p the known columns are taken from the target once, in everyone, and the rest changes places "
        "(Freedman and Lane); classes are drawn from their odds given what is known, and it is taken from each draw."
    )
}


class Baselines:
    """Collects what trivial predictors score, and what each entry adds."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._rows: list[dict[str, Any]] = []
        self._null: list[dict[str, Any]] = []
        self._known = {target.name: known_columns(study, target) for target in study.targets}

    def add(self, entry: str, solver: Solver) -> None:
        """Predict with one entry what the known columns leave of every target."""
        for target in self.study.targets:
            names, known = self._known[target.name]
            if not names:
                continue
            values, mean, base, stacked = self._stack(solver, target, known)
            about = {"target": target.name, "known": ", ".join(names), "n_people": int(np.isfinite(values).sum())}
            of_known, of_mean = (_describe(values, each, mean, target) for each in (base, mean))
            of_mean["value"] = 0.5 if target.is_binary else 0.0  # it orders no one
            known_of = np.isfinite(values)
            if np.allclose(base[known_of], mean[known_of], equal_nan=True):  # what is known is of no use in any fold
                of_known = of_mean
            row = {**about, "model": STACKED, "representation": entry, **_describe(values, stacked, mean, target)}
            for gain, column in GAINS.items():
                row[gain] = row[column] - np.nanmax([of_known[column], of_mean[column]])
            if not any(one["target"] == target.name for one in self._rows):
                self._rows.append({**about, "model": MEAN, **of_mean})
                self._rows.append({**about, "model": KNOWN, **of_known})
            self._rows.append(row)
            self._null += self._permute(solver, target, known, entry)

    def table(self) -> dict[str, Table]:
        """Return ``prediction_baselines``; nothing where nothing is known."""
        if not self._rows:
            return {}
        p = null_p_values(self._null)
        for row in self._rows:
            if row["model"] == STACKED:
                own = p.get((row["target"], row["representation"]), {"p_max_targets": np.nan, "n_permutations": 0})
                row |= {"p_adds": own["p_max_targets"], "n_permutations": own["n_permutations"]}
        first = {name: place for place, name in enumerate(self._known)}
        rows = sorted(self._rows, key=lambda row: first[row["target"]])
        frame = pd.DataFrame(rows).reindex(columns=list(BASELINES.columns))
        return {BASELINES.name: Table(frame, BASELINES, FACTS)}

    def _stack(self, solver: Solver, target: Target, known: FloatArray) -> FloatArray:
        """Target, predictions from the mean, from what is known, and with the representation too: (4, n), or NaN."""
        build, folds = target.build(), self.study.first_repeat
        residual = minus_known(build, known, target.is_binary)
        result = run_nested_cv(solver, residual, folds, self.study.preset)
        found = np.full((4, len(known)), np.nan)
        for fold, predicted in zip(folds, result.predicted, strict=True):
            whole = build(fold.train)[:, 0]
            mean, base = np.nanmean(whole[fold.train]), (whole - residual(fold.train)[:, 0])[fold.test]
            for row, each in enumerate((whole[fold.test], mean, base, base + predicted[:, 0])):
                found[row, fold.test] = each
        return found

    def _permute(self, solver: Solver, target: Target, known: FloatArray, entry: str) -> list[dict[str, Any]]:
        """Scores of what is left over, as it is and permuted."""
        number = choose_permutations(self.study).number
        if self.study.settings.permutations is None:
            number = min(number, MOST_PERMUTATIONS)
        if not number:
            return []
        rows, exchange = np.flatnonzero(target.known), self.study.protocol.exchange
        values = target.build()(rows)[rows, 0]
        columns = np.full((len(target.known), number + 1), np.nan)
        if target.is_binary:
            classes = values[np.vstack([np.arange(len(rows)), exchange.draws(target, number, known)])].T
            columns[rows] = remove_probability(classes, known[rows], np.arange(len(rows)))
        else:
            left = remove_covariates(values[:, None], known[rows], np.arange(len(rows)))[:, 0]
            columns[rows] = left[np.vstack([np.arange(len(rows)), exchange.orders(target, number)])].T
        return list_scores(target, entry, score_columns(solver, columns, self.study, target))


def known_columns(study: Study, target: Target) -> tuple[list[str], FloatArray]:
    """Names and numbers (n, c) of what else is known, means where missing; undeclared while people are enough."""
    people, settings = study.people, study.settings
    table, n = people.phenotypes, len(people.names)
    called = [str(name) for name in table.columns if str(name).lower() in CALLED]
    declared = list(study.preset.covariates)
    names: list[str] = []
    columns: list[FloatArray] = []
    for name in dict.fromkeys([*declared, *called, *OF_SCANS, *site_columns(table, settings)]):
        if name == target.name:
            continue
        own = covariate_columns(table, study.cohort.scans, [name], (settings.site_column,)).to_numpy(dtype=float)
        # the SD of equal numbers is not always 0
        own = own[:, np.nanmin(own, axis=0) < np.nanmax(own, axis=0)] if np.isfinite(own).any() else own[:, :0]
        held = sum(each.shape[1] for each in columns)
        if own.shape[1] and (name in declared or held + own.shape[1] <= max(n // PEOPLE_PER_COLUMN, 1)):
            names.append(name)
            columns.append(np.where(np.isfinite(own), own, np.nanmean(own, axis=0)))
    known = np.hstack(columns) if columns else np.zeros((n, 0))
    train = min((fold.train[target.known[fold.train]] for fold in study.first_repeat), key=len)
    return ([], known) if not names or leave_nothing(target.measures, known, train) else (names, known)


def _describe(values: FloatArray, predicted: FloatArray, mean: FloatArray, target: Target) -> dict[str, Any]:
    rows = np.isfinite(values) & np.isfinite(predicted)
    name = "auc" if target.is_binary else "pearson"
    values, predicted, mean = values[rows], predicted[rows], mean[rows]
    errors, spread = (values - predicted) ** 2, float(((values - mean) ** 2).sum())
    # Mean over people, in nats: of two classes, or Gaussian with the spread of the errors.
    p = np.clip(predicted, 0.01, 0.99)
    likelihood = np.log(np.where(values == 1, p, 1 - p)).mean() if target.is_binary else -0.5 * np.log(errors.mean())
    return {
        "score": "auc" if target.is_binary else "r",
        "value": float(score_predictions(name, values, predicted)),
        "predictive_cod": 1 - float(errors.sum()) / spread if spread else np.nan,
        "log_likelihood": float(likelihood),
    }
