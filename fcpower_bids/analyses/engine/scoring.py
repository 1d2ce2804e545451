"""The scores of one entry on the folds of a study, as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.engine.targets import Target
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.scores import (
    BINARY_SCORES,
    CONTINUOUS_SCORES,
    Training,
    pool_training,
    score_predictions,
)

Rows = list[dict[str, Any]]

SCORES = ("r", "cod", "predictive_cod", "mae", "mae_norm", "mse", "mse_norm", "auc", "balanced_accuracy")
NAMES = {"pearson": "r"}
"""Columns that are not called like the score."""
SPREAD, OF_CLASSES = "spread of classes", "The connectomes of one class of {} (the one that is 1) are"
"""A subject of the check, and the start of its sentence on a target, for the section of its prediction."""
SMALL_FOLD = 10
"""People in a test set below which its correlation says little."""
FOLD_MEAN, POOLED_MEAN, WITHIN_MEAN = "fold_mean", "pooled_mean", "within_mean"
LEADING = {
    FOLD_MEAN: "the mean over folds, as the paper reports it",
    POOLED_MEAN: f"all predictions of a repeat together, since half of the folds or more test fewer than {SMALL_FOLD} "
    "people, and their scores are mostly noise",
    WITHIN_MEAN: "within sites, since these are held out: no model knows the level of a new site",
}
"""The summary of a score that ranks entries."""


def leading_summary(n_test: Sequence[int] | pd.Series) -> str:
    """Which summary of a score ranks entries: `FOLD_MEAN`, but `POOLED_MEAN` where the folds test too few people."""
    return POOLED_MEAN if np.median(n_test) < SMALL_FOLD else FOLD_MEAN


def main_score(target: Target) -> str:
    """Name of the score that entries are compared by: auc for targets of two classes, r for others."""
    return "auc" if target.is_binary else "r"


def score_targets(
    targets: Sequence[Target], observed: FloatArray, predicted: FloatArray, train: Training
) -> dict[str, FloatArray]:
    """All scores of (rows, m) predictions by column name, each of shape (m,); NaN where a score does not apply."""
    binary = np.array([target.is_binary for target in targets])
    scores = {name: np.full(len(targets), np.nan) for name in SCORES}
    for columns, names in ((~binary, CONTINUOUS_SCORES), (binary, ("pearson", *BINARY_SCORES))):
        if columns.any():
            about = Training(train.mean[..., columns], train.std[..., columns])
            own = observed[:, columns], predicted[:, columns], about
            for name in names:
                scores[NAMES.get(name, name)][columns] = score_predictions(name, *own)
    return scores


def fold_rows(study: Study, name: str, result: NestedResult) -> Rows:
    """One row per target and fold: sizes, penalty and scores."""
    rows: Rows = []
    at_edge = result.at_edge
    for i, fold in enumerate(result.folds):
        scores = score_targets(study.targets, result.observed[i], result.predicted[i], result.train[i])
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
        observed = np.concatenate([result.observed[i] for i in cells])
        train = pool_training([result.train[i] for i in cells], [len(result.observed[i]) for i in cells])
        predicted = np.concatenate([result.predicted[i] for i in cells])
        scores = score_targets(study.targets, observed, predicted, train)
        for j, target in enumerate(study.targets):
            own = {score: float(values[j]) for score, values in scores.items()}
            rows.append({"target": target.name, "representation": name, "repeat": repeat, **own})
    return rows


def person_frame(study: Study, name: str, result: NestedResult, target: int) -> pd.DataFrame:
    """One row per repeat and person: observed and predicted out of fold, of one target."""
    sizes = [fold.test.size for fold in result.folds]
    tested = np.concatenate([fold.test for fold in result.folds])
    about = study.targets[target]
    return pd.DataFrame(
        {
            "participant_id": np.array(study.people.names, dtype=object)[tested],
            "target": about.name,
            "representation": name,
            "repeat": np.repeat([fold.repeat for fold in result.folds], sizes),
            "fold": np.repeat([fold.fold for fold in result.folds], sizes),
            "observed": np.concatenate([observed[:, target] for observed in result.observed]),
            "predicted": np.concatenate([predicted[:, target] for predicted in result.predicted]),
        }
    )


def predictions_by_repeat(study: Study, result: NestedResult, target: int) -> FloatArray:
    """Out-of-fold predictions of one target, shape (n_repeats, n); NaN for people that no fold tests."""
    repeats = {repeat: i for i, repeat in enumerate(dict.fromkeys(fold.repeat for fold in result.folds))}
    predicted = np.full((len(repeats), len(study.people.names)), np.nan)
    for fold, values in zip(result.folds, result.predicted, strict=True):
        predicted[repeats[fold.repeat], fold.test] = values[:, target]
    return predicted
