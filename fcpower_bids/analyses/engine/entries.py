"""Entries scored on the same folds, compared and tabulated: the core of every comparison of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.comparisons import RULE, TESTS, compare_pairs, correct_within
from fcpower_bids.analyses.engine.cross_validation import cross_validate, make_solver
from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.analyses.engine.scoring import (
    fold_rows,
    main_score,
    person_frame,
    pooled_rows,
)
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Table
from fcpower_bids.schema import TABLES, TableSpec

Made = TypeVar("Made")
PERSON_COLUMNS = ["participant_id", "target", "representation", "repeat", "fold", "observed", "predicted"]


class Entries:
    """Predictions, entry by entry, on the people, targets and folds of one study."""

    def __init__(self, study: Study, reference: str = "") -> None:
        self.study, self.reference = study, reference
        self.results: dict[str, NestedResult] = {}
        self._about: dict[str, dict[str, Any]] = {}
        self._folds: dict[str, list[dict[str, Any]]] = {}  # what is asked for again is not scored again

    def score_all(self, representations: Iterable[Representation], label: str = "{}") -> Entries:
        """Cross-validate representations, one in memory at a time; `label` announces them."""
        for one in representations:
            solver = make_solver(one, self.study.preset)
            self.add(one.name, cross_validate(solver, self.study, label.format(one.name)))
        return self

    def score(self, name: str, make: Callable[[], Solver], **about: Any) -> None:
        """Cross-validate a regression, or note why this cohort does not allow it. Raises Unfit."""
        solver = self._attempt(name, make, about)
        if solver is not None:
            self.add(name, cross_validate(solver, self.study, name), **about)

    def try_to_add(self, name: str, predict: Callable[[], NestedResult], **about: Any) -> None:
        """Add what a function predicts on the folds of the study; its `Unfit` is the reason of a refusal."""
        result = self._attempt(name, predict, about)
        if result is not None:
            self.add(name, result, **about)

    def _attempt(self, name: str, make: Callable[[], Made], about: dict[str, Any]) -> Made | None:
        try:
            return make()
        except Unfit as error:
            if name == self.reference:
                raise
            self.refuse(name, str(error), **about)
            return None

    def add(self, name: str, result: NestedResult, **about: Any) -> NestedResult:
        """Take the predictions of an entry, made on the folds of the study; equal targets are held once for all."""
        for other in list(self.results.values())[:1]:
            if _same(result.observed, other.observed):
                result = replace(result, observed=other.observed)
        self.results[name] = result
        self._folds.pop(name, None)
        self._about[name] = {**about, "status": "scored", "reason": ""}
        return result

    def refuse(self, name: str, reason: str, **about: Any) -> None:
        """Note why this cohort does not allow an entry."""
        self._about[name] = {**about, "status": "refused", "reason": reason}

    def folds(self) -> pd.DataFrame:
        """Scores by target, entry and fold: the columns of the table ``prediction``."""
        for name in self.results.keys() - self._folds.keys():
            self._folds[name] = fold_rows(self.study, name, self.results[name])
        return pd.DataFrame(
            [row for name in self.results for row in self._folds[name]], columns=list(TABLES["prediction"].columns)
        )

    def pooled(self) -> pd.DataFrame:
        """Scores by target, entry and repeat: the columns of ``prediction_pooled``."""
        rows = [row for name, result in self.results.items() for row in pooled_rows(self.study, name, result)]
        return pd.DataFrame(rows, columns=list(TABLES["prediction_pooled"].columns))

    def people(self) -> Iterator[pd.DataFrame]:
        """Predictions by repeat and person, one entry and target after the other: `PERSON_COLUMNS`."""
        for name, result in self.results.items():
            for target in range(len(self.study.targets)):
                yield person_frame(self.study, name, result, target)[PERSON_COLUMNS]

    def notes(self) -> dict[str, list[str]]:
        """Notes on each entry: dropped penalties, penalties at an edge of the grid."""
        return {name: list(result.notes) for name, result in self.results.items() if result.notes}

    def compare(self, pairs: Iterable[tuple[str, str]] | None = None) -> pd.DataFrame:
        """Test pairs of entries, by default all, as `comparisons.compare_pairs` does."""
        return compare_pairs(self.folds(), self.study, pairs)

    def tables(self, summary: TableSpec, facts: Mapping[str, Any], question: str | None = None) -> dict[str, Table]:
        """Make the table with a row per target and entry, and that with a row per fold."""
        about = {**self.study.facts(), "Comparisons": RULE, "Reference": self.reference, **facts}
        folds, notes = self.folds(), self.notes()
        by_fold = TABLES[f"{summary.name}_folds"]
        return {
            summary.name: Table(
                self._summarise(folds, question).reindex(columns=list(summary.columns)), summary, about
            ),
            by_fold.name: Table(folds, by_fold, about | ({"Notes": notes} if notes else {})),
        }

    def _summarise(self, folds: pd.DataFrame, question: str | None) -> pd.DataFrame:
        others = [(name, self.reference) for name in self.results if name != self.reference]
        tests = compare_pairs(folds, self.study, others)
        asked = [self._about[name].get(question or "", "") for name in tests["representation"]]
        tests = correct_within(tests.assign(question=asked), ["target", "question"])
        kept = tests[["target", "representation", "reference", *TESTS, "n_distinct"]].to_dict("records")
        by_entry = {(row["target"], row["representation"]): row for row in kept}
        pooled, rows = self.pooled(), []
        for target in self.study.targets:
            score = main_score(target)
            for entry, about in self._about.items():
                row: dict[Any, Any] = {"target": target.name, "representation": entry, "score": score, **about}
                if entry in self.results:
                    own, together = (_part(frame, target.name, entry) for frame in (folds, pooled))
                    row |= describe_folds(own, score) | describe_scores(own, together, score)
                rows.append(row | by_entry.get((target.name, entry), {}))
        return pd.DataFrame(rows)


def _same(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(one, other, equal_nan=True) for one, other in zip(some, others, strict=True))


def _part(frame: pd.DataFrame, target: str, entry: str) -> pd.DataFrame:
    return frame[(frame["target"] == target) & (frame["representation"] == entry)]


def describe_folds(folds: pd.DataFrame, score: str) -> dict[str, Any]:
    """Return how many folds there are and how many have a score, and the share at an edge of the grid."""
    return {
        "n_folds": len(folds),
        "n_scored": int(folds[score].notna().sum()),
        "share_at_grid_edge": float(folds["at_grid_edge"].mean()),
    }


def describe_scores(folds: pd.DataFrame, pooled: pd.DataFrame, score: str, prefix: str = "") -> dict[str, float]:
    """Mean and spread of a score over folds, and of the pooled score over repeats."""
    return {
        f"{prefix}{kind}_{name}": float(value)
        for kind, values in (("fold", folds[score]), ("pooled", pooled[score]))
        for name, value in (("mean", values.mean()), ("sd", values.std()))
    }
