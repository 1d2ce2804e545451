"""Differences between entries on shared folds, tested with the honest number of distinct test sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.scoring import SMALL_FOLD, main_score
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.engine.targets import Target
from fcpower_bids.core.inference.differences import adjust_p_values, corrected_resampled_t
from fcpower_bids.core.inference.permutation import sign_flip_p_value, sum_by_block

RULE = (
    "Corrected resampled t-test on per-fold scores of shared folds. Repeats that test the same people again (sites "
    "held out in turn) are averaged and count as one fold."
)
ADDED = ["p_people", "n_blocks"]
TESTS = ("mean_difference", "ci_low", "ci_high", "t", "df", "p_two_sided", "p_greater", "p_less", "p_holm")
COMPARED = ("target", "representation", "reference", "score", *TESTS, "n_folds", "n_distinct", "n_skipped")
FEWEST_PEOPLE = 100
"""With fewer, sign flips over people see a difference of equally good features too often (14 and more of 100)."""
ROUNDING = 1e-9
"""Difference of two scores, or share of an error, that is none."""


def compare_pairs(
    folds: pd.DataFrame, study: Study, pairs: Iterable[tuple[str, str]] | None = None, column: str = "representation"
) -> pd.DataFrame:
    """Test pairs of entries for every target."""
    if pairs is None:
        names = folds[column].unique().tolist()
        pairs = [(later, earlier) for earlier, later in combinations(names, 2)]
    pairs = list(pairs)
    rows: list[dict[str, Any]] = []
    for target in study.targets:
        score, sets = main_score(target), _TestSets(target, study)
        own = folds[folds["target"] == target.name]
        scores = {name: part[score].to_numpy() for name, part in own.groupby(column, sort=False)}
        for entry, reference in pairs:
            keys = {"target": target.name, "representation": entry, "reference": reference, "score": score}
            rows.append(keys | sets.test(scores[entry] - scores[reference]))
    frame = pd.DataFrame(rows, columns=[*COMPARED, "sd_difference", "folds_won"])
    return correct_within(frame, ["target"])


def correct_within(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Set ``p_holm`` to ``p_two_sided`` after Holm's correction over the rows that agree in some columns."""
    frame = frame.assign(p_holm=np.nan)
    for _, part in frame.groupby(list(keys), sort=False):
        frame.loc[part.index, "p_holm"] = adjust_p_values(part["p_two_sided"].to_numpy(dtype=float))
    return frame


def add_people_tests(comparisons: pd.DataFrame, predictions: Iterable[pd.DataFrame], study: Study) -> pd.DataFrame:
    """Add ``p_people``, of the squared errors of the same people; families and held-out sites count as one."""
    sites = study.protocol.units if study.protocol.held_out else None
    errors = {_about(block): _Errors.of(block, sites) for block in predictions}
    units, seed = study.protocol.units, study.settings.random_seed
    rows = []
    for target, entry, reference in comparisons[["target", "representation", "reference"]].astype(str).to_numpy():
        one, other = errors[target, entry], errors[target, reference]
        gains = _shared(other.squared, one.squared)
        sums = sum_by_block(gains, [units[str(name)] for name in gains.index])
        enough = study.protocol.held_out is not None or len(gains) >= FEWEST_PEOPLE
        row = {"p_people": sign_flip_p_value(sums, seed=seed) if enough else np.nan, "n_blocks": len(sums)}
        if sites:
            row["offset_difference"] = -_shared(other.offsets.abs(), one.offsets.abs()).mean()
            row["p_offset"] = sign_flip_p_value(_shared(other.offsets**2, one.offsets**2), seed=seed)
        rows.append(row)
    return comparisons.join(pd.DataFrame(rows, index=comparisons.index, columns=None if rows else ADDED))


def _about(block: pd.DataFrame) -> tuple[str, str]:
    return str(block["target"].iloc[0]), str(block["representation"].iloc[0])


def _shared(reference: pd.Series, own: pd.Series) -> pd.Series:
    """By how much an error is larger under the reference, of all who have it under both."""
    both = pd.concat([reference, own], axis=1, join="inner").dropna()
    gains = both.iloc[:, 0] - both.iloc[:, 1]
    return gains.where(gains.abs() > ROUNDING * both.abs().max(axis=1), 0.0)


@dataclass(frozen=True)
class _Errors:
    """Errors of the predictions of one entry and target, means over repeats."""

    squared: pd.Series  # of every person; within the sites where these are held out
    offsets: pd.Series  # mean error of every site that is held out; empty without any

    @classmethod
    def of(cls, block: pd.DataFrame, sites: Mapping[str, str] | None) -> _Errors:
        error, offsets = block["observed"] - block["predicted"], pd.Series(dtype=float)
        if sites is not None:
            site = block["participant_id"].map(sites)
            offsets = error.groupby(site).mean()
            error = error - error.groupby([block["repeat"], site]).transform("mean")
        return cls((error**2).groupby(block["participant_id"]).mean(), offsets)


def comparison_facts(study: Study) -> dict[str, Any]:
    """Say, for a sidecar, how entries are compared, and warn of test sets that are too small to say much."""
    smallest = min(fold.test.size for fold in study.folds)
    if smallest >= SMALL_FOLD or study.protocol.held_out:
        return {"Rule": RULE}
    return {
        "Rule": RULE,
        "SmallFolds": (
            f"The smallest test set has {smallest} people, so scores per fold are noisy and the tests weak; look "
            "at the pooled scores, or use fewer folds."
        ),
    }


class _TestSets:
    """Who is tested and who trains in every fold, among the people whose target is known."""

    def __init__(self, target: Target, study: Study) -> None:
        known = np.flatnonzero(target.known)
        tested = [np.intersect1d(fold.test, known) for fold in study.folds]
        self.some = np.array([rows.size > 0 for rows in tested])
        self.tested = [rows.tolist() for rows in tested if rows.size]
        self.n_train = [
            np.intersect1d(fold.train, known).size for fold, keep in zip(study.folds, self.some, strict=True) if keep
        ]

    def test(self, differences: np.ndarray) -> dict[str, Any]:
        """Test the differences of the folds; scores that are equal but for rounding do not differ."""
        differences = np.where(np.abs(differences) < ROUNDING, 0.0, differences)
        test = corrected_resampled_t(
            differences[self.some], self.n_train, [len(rows) for rows in self.tested], self.tested
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
            "n_folds": len(differences),
            "n_distinct": test.n_distinct,
            "n_skipped": test.n_skipped + int((~self.some).sum()),
            "sd_difference": float(pd.Series(differences).std()),
            "folds_won": int((differences > 0).sum()),
        }
