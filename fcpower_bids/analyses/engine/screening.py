"""Many entries scored on the same folds and compared with one reference: transforms, filters, kernels, controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from fcpower_bids.analyses.engine.comparisons import COMPARISON_COLUMNS, RULE, compare_representations
from fcpower_bids.analyses.engine.cross_validation import SCORE_COLUMNS, cross_validate, fold_rows, pooled_rows
from fcpower_bids.analyses.engine.protocol import Study
from fcpower_bids.core.inference.differences import adjust_p_values
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.records import Table

SCORED, REFUSED = "scored", "refused"

FOLD_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "Row of the summary",
    "repeat": "Repetition of the cross-validation, from 0",
    "fold": "Fold of the repetition, from 0",
    "n_train": "People who train, with a known target",
    "n_test": "People who are tested, with a known target",
    "penalty": "Ridge penalty that the inner folds selected",
    "at_grid_edge": "Whether that is the smallest or the largest of the grid",
    **SCORE_COLUMNS,
}
TESTS = ("mean_difference", "ci_low", "ci_high", "t", "df", "p_two_sided", "p_greater", "p_less", "p_holm")
SUMMARY_COLUMNS = {
    "status": f"{SCORED}, or {REFUSED} where this cohort does not allow the row",
    "reason": "Why it was refused",
    "score": "auc for targets of two classes, r for others",
    "n_folds": "Folds",
    "n_scored": "Folds in which the score is defined: a prediction that is the same for everyone has no correlation",
    "fold_mean": "Mean of the score over folds",
    "fold_sd": "Standard deviation over folds",
    "pooled_mean": "Score of all out-of-fold predictions of a repeat together, mean over repeats",
    "pooled_sd": "Its standard deviation over repeats",
    "share_at_grid_edge": "Share of folds whose penalty lies at an edge of the grid",
    "reference": "The row that is subtracted in the differences",
    **{name: COMPARISON_COLUMNS[name] for name in TESTS[:-1]},
    "p_holm": "p_two_sided after Holm's correction over the rows of the target that ask the same question",
    "n_distinct": COMPARISON_COLUMNS["n_distinct"],
}


class Screening:
    """The entries of one screen, scored one after the other.

    Parameters
    ----------
    study : Study
        People, targets and folds that all entries share.
    reference : str
        Entry that the others are compared with, to be scored first.
    question : str, optional
        Further column of the summary; Holm's correction is over the entries that have the same value there, and over
        all without it. A hundred random filters must not hide whether FC differs from FC^alpha.
    """

    def __init__(self, study: Study, reference: str, question: str | None = None) -> None:
        self.study, self.reference, self.question = study, reference, question
        self.results: dict[str, NestedResult] = {}
        self._entries: dict[str, dict[str, Any]] = {}

    def score(self, name: str, make: Callable[[], Solver], **about: Any) -> None:
        """Cross-validate an entry, or note why it cannot be had.

        Parameters
        ----------
        name : str
            Unique.
        make : callable
            Returns the regression of the entry; its ValueError is the reason of a refusal.
        **about
            Further columns of the summary.

        Raises
        ------
        ValueError
            The reference cannot be had, and nothing could be compared.
        """
        try:
            solver = make()
        except ValueError as error:
            if name == self.reference:
                raise
            self.refuse(name, str(error), **about)
            return
        self.add(name, cross_validate(solver, self.study, name), **about)

    def add(self, name: str, result: NestedResult, **about: Any) -> None:
        """Take the predictions of an entry that were made elsewhere, on the folds of the study."""
        self.results[name] = result
        self._entries[name] = {**about, "status": SCORED, "reason": ""}

    def refuse(self, name: str, reason: str, **about: Any) -> None:
        """Note why an entry cannot be had."""
        self._entries[name] = {**about, "status": REFUSED, "reason": reason}

    def tables(self, name: str, columns: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, Table]:
        """Make the tables ``<name>`` (a row per target and entry) and ``<name>_folds`` (and fold).

        Parameters
        ----------
        name : str
        columns : mapping of str to str
            What the further columns of the entries mean.
        facts : mapping
            For the sidecars, beside the protocol.
        """
        about = {**self.study.facts(), "Comparisons": RULE, "Reference": self.reference, **facts}
        notes = {entry: list(result.notes) for entry, result in self.results.items() if result.notes}
        folds = pd.DataFrame(
            [row for entry, result in self.results.items() for row in fold_rows(self.study, entry, result)],
            columns=list(FOLD_COLUMNS),
        )
        keys = {"target": FOLD_COLUMNS["target"], "representation": "What predicts it"}
        every = {**keys, **columns, **SUMMARY_COLUMNS}
        return {
            name: Table(self._summarise(folds).reindex(columns=list(every)), every, about),
            f"{name}_folds": Table(folds, FOLD_COLUMNS, about | ({"Notes": notes} if notes else {})),
        }

    def _summarise(self, folds: pd.DataFrame) -> pd.DataFrame:
        pooled = pd.DataFrame(
            [row for entry, result in self.results.items() for row in pooled_rows(self.study, entry, result)]
        )
        tests = {(row["target"], row["representation"]): row for row in self._compare(folds).to_dict("records")}
        rows = []
        for target in self.study.targets:
            score = "auc" if target.is_binary else "r"
            for entry, about in self._entries.items():
                row: dict[Any, Any] = {"target": target.name, "representation": entry, "score": score, **about}
                if entry in self.results:
                    row |= _describe(_part(folds, target.name, entry), _part(pooled, target.name, entry), score)
                rows.append(row | tests.get((target.name, entry), {}))
        return pd.DataFrame(rows)

    def _compare(self, folds: pd.DataFrame) -> pd.DataFrame:
        """Test every entry against the reference, which comes first, so that it is the one subtracted."""
        kept = ["target", "representation", "reference", *TESTS, "n_distinct"]
        parts = dict(iter(folds.groupby("representation", sort=False)))
        first = parts.pop(self.reference)
        pairs = [compare_representations(pd.concat([first, part]), self.study)[0] for part in parts.values()]
        tests = pd.concat(pairs, ignore_index=True)[kept] if pairs else pd.DataFrame(columns=kept)
        questions = [self._entries[entry].get(self.question or "", "") for entry in tests["representation"]]
        for _, rows in tests.groupby(["target", pd.Series(questions, tests.index)], sort=False).groups.items():
            tests.loc[rows, "p_holm"] = adjust_p_values(tests.loc[rows, "p_two_sided"].to_numpy(dtype=float))
        return tests

    def compare_pair(self, entry: str, reference: str) -> pd.DataFrame:
        """Test one scored entry against another one, a row of `comparisons.COMPARISON_COLUMNS` per target."""
        names = (reference, entry)  # the first is subtracted
        rows = [row for name in names for row in fold_rows(self.study, name, self.results[name])]
        return compare_representations(pd.DataFrame(rows), self.study)[0]


def _part(frame: pd.DataFrame, target: str, entry: str) -> pd.DataFrame:
    return frame[(frame["target"] == target) & (frame["representation"] == entry)]


def _describe(folds: pd.DataFrame, pooled: pd.DataFrame, score: str) -> dict[str, Any]:
    return {
        "n_folds": len(folds),
        "n_scored": int(folds[score].notna().sum()),
        "fold_mean": folds[score].mean(),
        "fold_sd": folds[score].std(),
        "pooled_mean": pooled[score].mean(),
        "pooled_sd": pooled[score].std(),
        "share_at_grid_edge": float(folds["at_grid_edge"].mean()),
    }
