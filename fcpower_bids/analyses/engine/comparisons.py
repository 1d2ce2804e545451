"""Differences between representations on shared folds, tested with the honest number of distinct test sets."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.protocol import Study
from fcpower_bids.analyses.engine.targets import Target
from fcpower_bids.core.inference.differences import adjust_p_values, corrected_resampled_t

COMPARISON_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "The one whose score comes first in the difference",
    "reference": "The one whose score is subtracted",
    "score": "auc for targets of two classes, r for others; per fold",
    "mean_difference": "Mean over the distinct folds",
    "ci_low": "Lower 95 % confidence limit",
    "ci_high": "Upper 95 % confidence limit",
    "t": "Corrected resampled t (Nadeau and Bengio 2003)",
    "df": "Degrees of freedom: distinct folds minus 1",
    "p_two_sided": "p of a difference",
    "p_greater": "p of the representation being better than the reference",
    "p_less": "p of the representation being worse than the reference",
    "p_holm": "p_two_sided after Holm's correction over the pairs of the target",
    "n_folds": "Folds",
    "n_distinct": "Distinct test sets, which is what counts as evidence",
    "n_skipped": "Folds in which a score is not defined",
}

RULE = (
    "Corrected resampled t-test on per-fold scores of shared folds. Repeats that test the same people again (sites "
    "held out in turn) are averaged and count as one fold."
)
SMALL_FOLD = 10
"""People in a test set below which its correlation says little."""


def compare_representations(prediction: pd.DataFrame, study: Study) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Test every pair of representations for every target.

    Parameters
    ----------
    prediction : pandas.DataFrame
        One row per target, representation and fold, the folds in the order of the study.
    study : Study

    Returns
    -------
    pandas.DataFrame
        `COMPARISON_COLUMNS`.
    dict
        The rule and a warning of small folds, for the sidecar.
    """
    rows: list[dict[str, Any]] = []
    for target in study.targets:
        rows += _compare_pairs(prediction[prediction["target"] == target.name], target, study)
    smallest = min(fold.test.size for fold in study.folds)
    notes = {"Rule": RULE}
    if smallest < SMALL_FOLD:
        notes["SmallFolds"] = (
            f"The smallest test set has {smallest} people, so scores per fold are noisy and the tests weak; look "
            "at the pooled scores, or use fewer folds."
        )
    return pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS)), notes


def _compare_pairs(prediction: pd.DataFrame, target: Target, study: Study) -> list[dict[str, Any]]:
    score = "auc" if target.is_binary else "r"
    scores = {name: part[score].to_numpy() for name, part in prediction.groupby("representation", sort=False)}
    rows = [
        _compare(scores[later] - scores[earlier], target, study)
        | {"target": target.name, "representation": later, "reference": earlier, "score": score}
        for earlier, later in combinations(scores, 2)
    ]
    for row, adjusted in zip(rows, adjust_p_values([row["p_two_sided"] for row in rows]), strict=True):
        row["p_holm"] = float(adjusted)
    return rows


def _compare(differences: np.ndarray, target: Target, study: Study) -> dict[str, Any]:
    known = np.flatnonzero(target.known)
    tested = [np.intersect1d(fold.test, known) for fold in study.folds]
    trained = [np.intersect1d(fold.train, known).size for fold in study.folds]
    some = np.array([rows.size > 0 for rows in tested])
    test = corrected_resampled_t(
        differences[some],
        [n for n, keep in zip(trained, some, strict=True) if keep],
        [rows.size for rows in tested if rows.size],
        [rows.tolist() for rows in tested if rows.size],
    )
    return {
        "mean_difference": test.mean,
        "ci_low": test.low,
        "ci_high": test.high,
        "t": test.t,
        "df": test.df,
        "p_two_sided": test.p_two_sided,
        "p_greater": test.p_greater,
        "p_less": test.p_less,
        "n_folds": len(study.folds),
        "n_distinct": test.n_distinct,
        "n_skipped": test.n_skipped + int((~some).sum()),
    }
