"""Nested cross-validation of one representation for all targets of a study, and its scores as rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.progress import track
from fcpower_bids.analyses.engine.protocol import Study
from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.analyses.engine.targets import Target, join_target_builders
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.nested import NestedResult, TargetBuilder, nested_cv
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.probe import LinearProbe
from fcpower_bids.core.regression.ridge import Solver, factorise_kernel
from fcpower_bids.core.regression.scores import (
    BINARY_SCORES,
    CONTINUOUS_SCORES,
    Training,
    pool_training,
    score_predictions,
)

FloatArray = NDArray[np.float64]
Rows = list[dict[str, Any]]

NAMES = {"pearson": "r"}
"""Columns that are not called like the score."""

SCORE_COLUMNS = {
    "r": "Pearson correlation of observed and predicted values of the test people",
    "cod": "Coefficient of determination about the mean of the test people",
    "predictive_cod": "Coefficient of determination about the mean of the training people",
    "mae": "Mean absolute error, in the unit of the target",
    "mae_norm": "Mean absolute error over the standard deviation of the training people",
    "mse": "Mean squared error, in the squared unit of the target",
    "mse_norm": "Mean squared error over the variance of the training people",
    "auc": "Area under the ROC curve, for targets of two classes",
    "balanced_accuracy": "Mean of sensitivity and specificity, for targets of two classes",
}


def make_solver(representation: Representation, preset: PredictionPreset) -> Solver:
    """Return the regression of a representation: a factorised kernel, or a linear probe on z-scored features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Dropped penalties are in `notes`.
        if representation.kernel == "correlation":
            return factorise_kernel(representation.similarity(), preset.penalties, preset.intercept)
        features = np.asarray(representation.features()[:])
        return LinearProbe(features, preset.penalties, preset.intercept)


def cross_validate(solver: Solver, study: Study, label: str) -> NestedResult:
    """Predict every target of everyone from the others, repeat by repeat."""
    targets = join_target_builders(study.targets, study.people.covariates)
    repeats = sorted({fold.repeat for fold in study.folds})
    parts = []
    for repeat in track(repeats, f"cross-validation of {label}", study.settings):
        folds = [fold for fold in study.folds if fold.repeat == repeat]
        parts.append(run_nested_cv(solver, targets, folds, study.preset))
    return merge_results(parts)


def run_nested_cv(
    solver: Solver, targets: FloatArray | TargetBuilder, folds: Sequence[Fold], preset: PredictionPreset
) -> NestedResult:
    """Run `core.nested.nested_cv` with the selection score of the preset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return nested_cv(solver, targets, folds, preset.selection)


def merge_results(parts: Sequence[NestedResult]) -> NestedResult:
    """Put the results of several sets of folds together."""
    return NestedResult(
        folds=tuple(fold for part in parts for fold in part.folds),
        penalties=parts[0].penalties,
        chosen=np.concatenate([part.chosen for part in parts]),
        inner_scores=np.concatenate([part.inner_scores for part in parts]),
        observed=tuple(each for part in parts for each in part.observed),
        predicted=tuple(each for part in parts for each in part.predicted),
        train=tuple(each for part in parts for each in part.train),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def observed_of(study: Study, result: NestedResult, fold: int) -> FloatArray:
    """What the predictions of a fold are compared with, shape (n_test, m): the target as built, or the true class.

    A target of two classes stays 0 and 1 even where covariates are regressed from what the model is trained on.
    """
    observed = np.array(result.observed[fold])
    for j, target in enumerate(study.targets):
        if target.is_binary:
            observed[:, j] = target.measures[result.folds[fold].test, 0]
    return observed


def score_targets(
    targets: Sequence[Target], observed: FloatArray, predicted: FloatArray, train: Training
) -> dict[str, FloatArray]:
    """All scores of (rows, m) predictions by column name, each of shape (m,); NaN where a score does not apply."""
    binary = np.array([target.is_binary for target in targets])
    scores = {name: np.full(len(targets), np.nan) for name in SCORE_COLUMNS}
    for columns, names in ((~binary, CONTINUOUS_SCORES), (binary, ("pearson", *BINARY_SCORES))):
        if columns.any():
            own = Training(train.mean[..., columns], train.std[..., columns])
            for name in names:
                values = score_predictions(name, observed[:, columns], predicted[:, columns], own)
                scores[NAMES.get(name, name)][columns] = values
    return scores


def fold_rows(study: Study, name: str, result: NestedResult) -> Rows:
    """One row per target and fold: sizes, penalty and scores."""
    rows: Rows = []
    at_edge = result.at_edge
    for i, fold in enumerate(result.folds):
        observed = observed_of(study, result, i)
        scores = score_targets(study.targets, observed, result.predicted[i], result.train[i])
        for j, target in enumerate(study.targets):
            rows.append(
                {
                    "target": target.name,
                    "representation": name,
                    "repeat": fold.repeat,
                    "fold": fold.fold,
                    "n_train": int(target.known[fold.train].sum()),
                    "n_test": int(target.known[fold.test].sum()),
                    "penalty": float(result.chosen[i, j]),
                    "at_grid_edge": bool(at_edge[i, j]),
                    **{score: float(values[j]) for score, values in scores.items()},
                }
            )
    return rows


def pooled_rows(study: Study, name: str, result: NestedResult) -> Rows:
    """One row per target and repeat: scores of the out-of-fold predictions of all folds together."""
    rows: Rows = []
    for repeat in dict.fromkeys(fold.repeat for fold in result.folds):
        cells = [i for i, fold in enumerate(result.folds) if fold.repeat == repeat]
        observed = np.concatenate([observed_of(study, result, i) for i in cells])
        train = pool_training([result.train[i] for i in cells], [len(result.observed[i]) for i in cells])
        predicted = np.concatenate([result.predicted[i] for i in cells])
        scores = score_targets(study.targets, observed, predicted, train)
        for j, target in enumerate(study.targets):
            own = {score: float(values[j]) for score, values in scores.items()}
            rows.append({"target": target.name, "representation": name, "repeat": repeat, **own})
    return rows


def person_frame(study: Study, name: str, result: NestedResult) -> pd.DataFrame:
    """One row per target, repeat and person: observed and predicted out of fold."""
    sizes = [fold.test.size for fold in result.folds]
    tested = np.concatenate([fold.test for fold in result.folds])
    observed = np.concatenate([observed_of(study, result, i) for i in range(len(result.folds))])
    predicted = np.concatenate(result.predicted)
    blocks = [
        pd.DataFrame(
            {
                "participant_id": np.array(study.people.names, dtype=object)[tested],
                "target": target.name,
                "representation": name,
                "repeat": np.repeat([fold.repeat for fold in result.folds], sizes),
                "fold": np.repeat([fold.fold for fold in result.folds], sizes),
                "observed": observed[:, j],
                "predicted": predicted[:, j],
            }
        )
        for j, target in enumerate(study.targets)
    ]
    return pd.concat(blocks, ignore_index=True)


def predictions_by_repeat(study: Study, result: NestedResult, target: int) -> FloatArray:
    """Out-of-fold predictions of one target, shape (n_repeats, n); NaN for people whom no fold tests."""
    repeats = {repeat: i for i, repeat in enumerate(dict.fromkeys(fold.repeat for fold in result.folds))}
    predicted = np.full((len(repeats), len(study.people.names)), np.nan)
    for fold, values in zip(result.folds, result.predicted, strict=True):
        predicted[repeats[fold.repeat], fold.test] = values[:, target]
    return predicted
