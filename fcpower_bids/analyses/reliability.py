"""How repeatable the predictions are, over halves of the scans and over repeats, and the ceiling that this sets."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import Results, evaluate, predictions_by_repeat
from fcpower_bids.analyses.features import EMBEDDING, cut_series, has_series
from fcpower_bids.analyses.scan_parts import connect_parts, first_half, second_half
from fcpower_bids.analyses.sites import changes_features
from fcpower_bids.analyses.study import Study
from fcpower_bids.core.identification import (
    SplitHalf,
    disattenuated_ceiling,
    repeat_reliability,
    split_half_reliability,
)
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Table
from fcpower_bids.schema import TABLES

RELIABILITY = TABLES["reliability"]

RELIABILITY_FACTS = {
    "Rule": (
        "Halves are those of each scan in time; the nested cross-validation is run on each half, on the same folds "
        "(the paper, Appendix F). The agreement between repeats shows how much the division into folds matters, not "
        "how reliable the scans are, so it sets no ceiling. Halves need the series of every scan; embeddings have none."
    )
}


def tabulate_reliability(study: Study, results: Results) -> Table:
    """One row per target, entry and way of halving; the sidecar says why halves are not there."""
    rows, facts = [], dict(RELIABILITY_FACTS)
    for name, result in results.items():
        if len({fold.repeat for fold in result.folds}) > 1:
            for j in range(len(study.targets)):
                agreement = repeat_reliability(predictions_by_repeat(study, result, j), seed=study.settings.random_seed)
                rows.append(_row(study, name, "repeats", result, j, agreement))
    if changes_features(study.settings.sites):
        facts["HalvesLeftOut"] = "The halves of scans are not harmonised."
    elif has_series(study.cohort):
        try:
            rows += _halves(study, results)
        except Unfit as error:
            facts["HalvesLeftOut"] = str(error)
    return Table(pd.DataFrame(rows, columns=list(RELIABILITY.columns)), RELIABILITY, facts)


def _halves(study: Study, results: Results) -> list[dict[str, Any]]:
    halves = []
    for part in (first_half, second_half):
        edges = connect_parts(study.cohort, [part], "FC of half scans", study.settings)[0]
        cut = cut_series(study.cohort, part)
        half = study.representations(dataclasses.replace(study.cohort, edges=edges, series=cut))
        connectomes = (one for one in half if not one.name.startswith(EMBEDDING))
        halves.append(evaluate(study, connectomes, "{} of half scans"))
    rows = []
    for name in (each for each in halves[0] if each in results):
        for j in range(len(study.targets)):
            first, second = (predictions_by_repeat(study, half[name], j) for half in halves)
            agreement = split_half_reliability(first, second)
            rows.append(_row(study, name, "halves", results[name], j, agreement))
    return rows


def _row(study: Study, name: str, over: str, result: NestedResult, target: int, agreement: SplitHalf) -> dict[str, Any]:
    r = _mean_correlation(result, target)
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


def _mean_correlation(result: NestedResult, target: int) -> float:
    pairs: dict[int, list[np.ndarray]] = {}
    for i, fold in enumerate(result.folds):
        observed = result.observed[i][:, target]
        pairs.setdefault(fold.repeat, []).append(np.column_stack([observed, result.predicted[i][:, target]]))
    correlations = []
    for parts in pairs.values():
        values = np.concatenate(parts)
        values = values[np.isfinite(values).all(axis=1)]
        if len(values) > 1 and (np.ptp(values, axis=0) > 0).all():
            correlations.append(np.corrcoef(values.T)[0, 1])
    return float(np.mean(correlations)) if correlations else np.nan
