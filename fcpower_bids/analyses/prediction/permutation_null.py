"""What scores chance alone reaches: the whole nested cross-validation on permuted targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.columns import KEY_COLUMNS
from fcpower_bids.analyses.engine.cross_validation import run_nested_cv
from fcpower_bids.analyses.engine.progress import track
from fcpower_bids.analyses.engine.protocol import Study
from fcpower_bids.analyses.engine.targets import Target, join_target_builders
from fcpower_bids.core.inference.permutation import permutation_p_value
from fcpower_bids.core.regression.folds import Rows
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.core.regression.targets import permuted_rows
from fcpower_bids.schema import Column, TableSpec, join_columns, pick_columns

FloatArray = NDArray[np.float64]

CHUNK = 250
"""Permutations that go through the folds together."""

NULL = TableSpec(
    "null",
    "Scores under permutation of the target (`--permutations`).",
    join_columns(
        pick_columns(KEY_COLUMNS, ("target", "representation")),
        Column.number("permutation", "0 for the true order, then the permutations from 1"),
        Column.number(
            "score", "auc for targets of two classes, r for others; predictions of the first repeat together"
        ),
    ),
    ("target", "representation", "permutation"),
)
NULL_FACTS = {
    "Rule": (
        "People exchange their target together with its covariates; families are exchanged whole, with families of the "
        "same size; people without the target stay in place. The penalty is selected again in every permutation. The "
        "statistic is that of all out-of-fold predictions of the first repeat."
    )
}


def null_rows(solver: Solver, study: Study, name: str) -> list[dict[str, Any]]:
    """Score the true and the permuted targets, one row each; no rows where no permutations are asked for."""
    rows: list[dict[str, Any]] = []
    if study.settings.permutations:
        for target in study.targets:
            rows += [
                {"target": target.name, "representation": name, "permutation": i, "score": float(score)}
                for i, score in enumerate(_scores(solver, study, target, name))
            ]
    return rows


def null_p_values(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, int]]:
    """p-value and number of permutations by target and representation; undefined scores count as no better."""
    scores: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        scores.setdefault((row["target"], row["representation"]), []).append(row["score"])
    return {key: _p_value(values[0], np.array(values[1:])) for key, values in scores.items()}


def _p_value(observed: float, null: FloatArray) -> tuple[float, int]:
    if np.isnan(observed):
        return np.nan, len(null)
    return permutation_p_value(observed, np.nan_to_num(null, nan=-np.inf)), len(null)


def _scores(solver: Solver, study: Study, target: Target, name: str) -> FloatArray:
    orders = [None, *_orders(study, target)]
    chunks = [orders[start : start + CHUNK] for start in range(0, len(orders), CHUNK)]
    progress = track(chunks, f"permutations of {target.name} ({name})", study.settings)
    return np.concatenate([_score_orders(solver, study, target, chunk) for chunk in progress])


def _orders(study: Study, target: Target) -> list[Rows]:
    """Orders of everyone in which only people who have the target change places."""
    known = np.flatnonzero(target.known)
    families = None if study.people.families is None else study.people.families[known]
    orders = []
    for among in permuted_rows(known.size, study.settings.permutations, study.settings.random_seed, families):
        order = np.arange(target.known.size)
        order[known] = known[among]
        orders.append(order)
    return orders


def _score_orders(solver: Solver, study: Study, target: Target, orders: list[Rows | None]) -> FloatArray:
    columns = join_target_builders([target], study.people.covariates, orders)
    result = run_nested_cv(solver, columns, study.first_repeat, study.preset)
    predicted = np.concatenate(result.predicted)
    if not target.is_binary:
        return score_predictions("pearson", np.concatenate(result.observed), predicted)
    tested = np.concatenate([fold.test for fold in result.folds])
    classes = target.measures[:, 0]
    observed = np.column_stack([(classes if order is None else classes[order])[tested] for order in orders])
    return score_predictions("auc", observed, predicted)
