"""How repeatable the predictions are, over halves of the scans and over repeats, and the ceiling that this sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.cross_validation import (
    cross_validate,
    make_solver,
    observed_of,
    predictions_by_repeat,
)
from fcpower_bids.analyses.engine.protocol import Study
from fcpower_bids.analyses.engine.representations import EMBEDDING
from fcpower_bids.analyses.engine.scan_parts import connect_parts, first_half, has_series, second_half
from fcpower_bids.core.inference.reliability import (
    SplitHalf,
    disattenuated_ceiling,
    repeat_reliability,
    split_half_reliability,
)
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.records import Table

RELIABILITY_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "What predicts it",
    "over": "halves: predictions from the first and from the second half of each scan; repeats: halves of the repeats",
    "rho": "Correlation between the two sets of out-of-fold predictions, mean over repeats or divisions",
    "rho_sd": "Its standard deviation over repeats or divisions",
    "reliability": "Spearman-Brown 2 rho / (1 + rho)",
    "r": "Correlation of the predictions of a repeat with the target, mean over repeats, from whole scans",
    "ceiling": "r / sqrt(2 rho / (1 + rho)): what a perfectly reliable predictor would reach; for halves only",
}

RELIABILITY_FACTS = {
    "Rule": (
        "Halves are those of each scan in time; the nested cross-validation is run on each half, on the same folds "
        "(the paper, Appendix F). The agreement between repeats tells how much the division into folds matters, not "
        "how reliable the scans are, so it sets no ceiling. Halves need the series of every scan; embeddings have none."
    )
}


def tabulate_reliability(study: Study, results: Mapping[str, NestedResult]) -> Table:
    """One row per target, representation and way of halving; the sidecar says why halves are not there."""
    rows, facts = _repeats(study, results), dict(RELIABILITY_FACTS)
    if has_series(study.cohort):
        try:
            rows += _halves(study, results)
        except ValueError as error:
            facts["HalvesLeftOut"] = str(error)
    return Table(pd.DataFrame(rows, columns=list(RELIABILITY_COLUMNS)), RELIABILITY_COLUMNS, facts)


def _repeats(study: Study, results: Mapping[str, NestedResult]) -> list[dict[str, Any]]:
    rows = []
    for name, result in results.items():
        if len({fold.repeat for fold in result.folds}) > 1:
            for j in range(len(study.targets)):
                agreement = repeat_reliability(predictions_by_repeat(study, result, j), seed=study.settings.random_seed)
                rows.append(_row(study, name, "repeats", result, j, agreement))
    return rows


def _halves(study: Study, results: Mapping[str, NestedResult]) -> list[dict[str, Any]]:
    halved: list[dict[str, NestedResult]] = []
    for part in (first_half, second_half):
        edges = connect_parts(study.cohort, [part], "FC of half scans", study.settings)[0]
        half = dataclasses.replace(study.cohort, edges=edges)
        halved.append(
            {
                each.name: cross_validate(make_solver(each, study.preset), study, f"{each.name} of half scans")
                for each in study.representations(half)
                if not each.name.startswith(EMBEDDING)
            }
        )
    rows = []
    for name in halved[0]:
        for j in range(len(study.targets)):
            first, second = (predictions_by_repeat(study, half[name], j) for half in halved)
            rows.append(_row(study, name, "halves", results[name], j, split_half_reliability(first, second)))
    return rows


def _row(study: Study, name: str, over: str, result: NestedResult, target: int, agreement: SplitHalf) -> dict[str, Any]:
    r = _mean_correlation(study, result, target)
    return {
        "target": study.targets[target].name,
        "representation": name,
        "over": over,
        "rho": agreement.mean,
        "rho_sd": agreement.sd,
        "reliability": agreement.full,
        "r": r,
        "ceiling": disattenuated_ceiling(r, agreement.mean) if over == "halves" else np.nan,
    }


def _mean_correlation(study: Study, result: NestedResult, target: int) -> float:
    pairs: dict[int, list[np.ndarray]] = {}
    for i, fold in enumerate(result.folds):
        observed = observed_of(study, result, i)[:, target]
        pairs.setdefault(fold.repeat, []).append(np.column_stack([observed, result.predicted[i][:, target]]))
    correlations = []
    for parts in pairs.values():
        values = np.concatenate(parts)
        values = values[np.isfinite(values).all(axis=1)]
        if len(values) > 1 and (np.ptp(values, axis=0) > 0).all():
            correlations.append(np.corrcoef(values.T)[0, 1])
    return float(np.mean(correlations)) if correlations else np.nan
