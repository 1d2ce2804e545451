"""How far the Nystroem approximation is from what it approximates: in the kernel, and in the predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.columns import KEY_COLUMNS
from fcpower_bids.analyses.engine.connectomes import precision
from fcpower_bids.analyses.engine.cross_validation import cross_validate
from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.analyses.engine.scoring import main_score, pooled_rows, predictions_by_repeat
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.regression.kernels import SomePeople, correlation_kernel, narrow_panel
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.core.regression.solvers.nystroem import Landmarks, NystroemSolver, kernel_error
from fcpower_bids.predictors import NYSTROEM, split_entry
from fcpower_bids.predictors.contract import regress_on_similarity
from fcpower_bids.records import Table
from fcpower_bids.schema import Column, TableSpec, join_columns, pick_columns

FloatArray = NDArray[np.float64]

EXACT_UP_TO = 3000
"""People up to whom the exact regression is run beside its approximation."""

COMPARED = 2000
"""People, at most, whose kernel is held against its approximation."""

APPROXIMATION = TableSpec(
    NYSTROEM,
    "The Nystroem approximation (`--predictors nystroem`) against the exact kernel and the exact regression.",
    join_columns(
        pick_columns(KEY_COLUMNS, ("target", "representation")),
        Column.number(
            "landmarks", "Training people of a fold whom everybody is compared with; the most", "Landmarks", 0
        ),
        Column.number(
            "clipped",
            "Eigenvalues of the landmarks' kernel that are rounding and were left out; the most",
            "Clipped",
            0,
        ),
        Column.number(
            "kernel_error",
            "Frobenius norm of kernel less approximation over that of the kernel, between people who are no landmarks; "
            "mean over the folds of the first repeat. n/a where features are fitted in the folds",
            "Error of the kernel",
        ),
        Column.number("kernel_error_max", "The largest of these folds", "Largest"),
        Column.number("n_compared", "People between whom the kernels are compared; the fewest of a fold", "Between", 0),
        Column.text("score", "auc for targets of two classes, r for others", "Score"),
        Column.number("pooled_mean", "Score of all predictions of a repeat together, mean over repeats", "Score of it"),
        Column.number(
            "exact_pooled_mean",
            f"The same of exact kernel ridge regression; n/a above {EXACT_UP_TO:,} people",
            "Exact",
        ),
        Column.number(
            "agreement", "Correlation of its predictions with the exact ones, mean over repeats", "Agreement", 4
        ),
    ),
    ("target", "representation"),
)

FACTS = {
    "Rule": (
        "Everyone is put into one random order (seed); the landmarks of a fold are the first of its training people in "
        "it. With K the correlations of everyone with the landmarks and U diag(s) U' their block of the landmarks, "
        "ridge regression is on the features K U diag(s)^(-1/2) (Williams and Seeger 2001). The kernel is held against "
        f"its approximation between the last {COMPARED:,} people of that order, or all, without those who are "
        "landmarks."
    )
}


class Approximations:
    """Collects how far off each approximation is, one representation in memory after the other."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._rows: list[dict[str, Any]] = []

    def add(self, entry: str, representation: Representation, solver: Solver, result: NestedResult) -> None:
        """Compare what was predicted with the exact regression, where the cohort allows it; others are passed over."""
        if split_entry(entry)[1] != NYSTROEM:
            return
        base, exact = getattr(solver, "base", solver), self._predict_exactly(representation)
        about = self._describe_kernel(base.landmarks, representation) if isinstance(base, NystroemSolver) else {}
        about["landmarks"] = self._count_landmarks()
        scores = [_pooled(self.study, entry, each) for each in (result, exact)]
        for j, target in enumerate(self.study.targets):
            score = main_score(target)
            row = {"target": target.name, "representation": entry, **about, "score": score}
            row["pooled_mean"], row["exact_pooled_mean"] = (each.get((target.name, score), np.nan) for each in scores)
            row["agreement"] = np.nan if exact is None else self._agreement(result, exact, j)
            self._rows.append(row)

    def tables(self) -> dict[str, Table]:
        """Return the table, if there is an approximation."""
        if not self._rows:
            return {}
        frame = pd.DataFrame(self._rows).reindex(columns=list(APPROXIMATION.columns))
        return {APPROXIMATION.name: Table(frame, APPROXIMATION, FACTS | {"Seed": self.study.preset.seed})}

    def _predict_exactly(self, representation: Representation) -> NestedResult | None:
        study = self.study
        if len(study.people.names) > EXACT_UP_TO:
            return None
        kernel = representation.similarity()
        solver = regress_on_similarity(representation, correlation_kernel, kernel, study.preset)
        return cross_validate(solver, study, f"{representation.name}, exact")

    def _describe_kernel(self, landmarks: Landmarks, representation: Representation) -> dict[str, Any]:
        people = np.sort(landmarks.order[-COMPARED:])
        features = representation.features()
        if len(people) == len(landmarks.order):
            kernel = representation.similarity()
        else:
            some, panel = SomePeople(features, people), narrow_panel(features.shape[0])
            kernel = correlation_kernel(some, dtype=precision(features.shape), panel=panel)
        errors, clipped, compared = [], [], []
        for fold in self.study.first_repeat:
            approximate, left_out = landmarks.features(fold.train)
            others = ~np.isin(people, landmarks.choose(fold.train))
            errors.append(kernel_error(kernel[np.ix_(others, others)], approximate[people[others]]))
            clipped.append(left_out)
            compared.append(int(others.sum()))
        return {
            "clipped": max(clipped),
            "kernel_error": float(np.mean(errors)),
            "kernel_error_max": max(errors),
            "n_compared": min(compared),
        }

    def _count_landmarks(self) -> int:
        return min(self.study.preset.landmarks, max(fold.train.size for fold in self.study.folds))

    def _agreement(self, result: NestedResult, exact: NestedResult, target: int) -> float:
        pairs = zip(*(predictions_by_repeat(self.study, each, target) for each in (result, exact)), strict=True)
        found = []
        for one, other in pairs:
            known = np.isfinite(one) & np.isfinite(other)
            if known.sum() > 1 and np.ptp(one[known]) > 0 and np.ptp(other[known]) > 0:
                found.append(np.corrcoef(one[known], other[known])[0, 1])
        return float(np.mean(found)) if found else np.nan


def _pooled(study: Study, entry: str, result: NestedResult | None) -> dict[tuple[str, str], float]:
    """Mean over repeats of the pooled score of every target, by target and score."""
    if result is None:
        return {}
    frame = pd.DataFrame(pooled_rows(study, entry, result))
    scores = {(target.name, main_score(target)) for target in study.targets}
    return {key: float(frame.loc[frame["target"] == key[0], key[1]].mean()) for key in scores}
