"""Every comparison of features: one loop over representations, tables of their scores, one test of their differences.

Predictions of several representations on the people, targets and folds of one study are a mapping of names to results
(`Results`); everything that is said of them follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.features import Representation
from fcpower_bids.analyses.study import Study
from fcpower_bids.analyses.targets import Target
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.differences import adjust_p_values, corrected_resampled_t
from fcpower_bids.core.folds import Fold, PredictionPreset
from fcpower_bids.core.kernels import correlation_kernel
from fcpower_bids.core.krr import BlockRidge, Regression, grid_of, kernel_ridge
from fcpower_bids.core.nested import NestedResult, Outcome, merge_folds, nested_cv
from fcpower_bids.core.probe import PRIMAL_WIDTH, LinearProbe, standard_kernel
from fcpower_bids.core.scores import BINARY_SCORES, CONTINUOUS_SCORES, Training, score_predictions
from fcpower_bids.core.targets import TargetBuilder
from fcpower_bids.errors import Unfit
from fcpower_bids.parallel import map_tasks, track
from fcpower_bids.records import Table, tabulate
from fcpower_bids.schema import TABLES

Results = Mapping[str, NestedResult]
Pairs = Iterable[tuple[str, str]]
SCORES = ("r", "cod", "predictive_cod", "mae", "mae_norm", "mse", "mse_norm", "auc", "balanced_accuracy")
SMALL_FOLD = 10
"""People in a test set below which its correlation says little."""
FOLD_MEAN, POOLED_MEAN, WITHIN_MEAN = "fold_mean", "pooled_mean", "within_mean"
"""Summaries of a score that rank representations: of all predictions of a repeat together where the folds test few
people, and within sites where these are held out, since no model knows the level of a new site."""
MEANS, KEYS = (FOLD_MEAN, "fold_sd", POOLED_MEAN, "pooled_sd"), ["target", "representation"]
RULE = (
    "Corrected resampled t-test on per-fold scores of shared folds. Repeats that test the same people again (sites "
    "held out in turn) are averaged and count as one fold."
)
ROUNDING = 1e-9
"""Difference of two scores that is none."""
TESTS = ("mean_difference", "ci_low", "ci_high", "t", "df", "p_two_sided", "p_greater", "p_less", "p_holm")
COMPARED = ("target", "representation", "reference", "score", *TESTS, "n_folds", "n_distinct", "n_skipped")


# --- Predictions ----------------------------------------------------------------------------------------------------


def make_solver(people: Representation, preset: PredictionPreset) -> Regression:
    """Kernel ridge regression on the correlation between people's features, or a linear probe on z-scored features."""
    fitted = people.fitted
    if people.kernel == "correlation":
        whole = people.similarity()  # of features that need no fit; its mean diagonal is the unit
        if fitted is None:
            return kernel_ridge(whole, preset)
        grid, unit = grid_of(preset, float(np.trace(whole)) / len(whole))
        return BlockRidge(lambda train: correlation_kernel(fitted(train)), grid, preset.intercept, unit)
    features = np.asarray(people.features()[:])
    everyone, (n, width) = preset.fit_transforms_on == "cohort", features.shape
    grid, unit = grid_of(preset, float((np.ptp(features, axis=0) > 0).sum()))
    if fitted is None and everyone and width > min(PRIMAL_WIDTH, n / 4):  # one kernel for all folds costs less
        return kernel_ridge(standard_kernel(features, np.arange(n), np.arange(n)), preset)
    return LinearProbe(fitted or features, grid, preset.intercept, everyone and fitted is None, unit)


def cross_validate(
    solver: Regression,
    study: Study,
    label: str = "",
    columns: FloatArray | TargetBuilder | None = None,
    folds: Sequence[Fold] | None = None,
) -> NestedResult:
    """Predict columns of targets (by default all) of everyone from the others, on folds (by default the study's).

    The score of the preset selects the penalty; `label` announces a long loop; features that are fitted stay in this
    process.
    """
    folds = study.folds if folds is None else folds

    def map_folds(function: Callable[[Fold], Outcome], items: Sequence[Fold], /) -> Iterable[Outcome]:
        outcomes = map(function, items) if solver.fitted else map_tasks(function, items)
        return track(outcomes, f"cross-validation of {label}", study.settings, len(items)) if label else outcomes

    return nested_cv(solver, study.columns if columns is None else columns, folds, study.preset.selection, map_folds)


def evaluate(study: Study, representations: Iterable[Representation], label: str = "{}") -> dict[str, NestedResult]:
    """Cross-validate representations, one in memory at a time; `label` announces them."""
    return {
        representation.name: cross_validate(
            make_solver(representation, study.preset), study, label.format(representation.name)
        )
        for representation in representations
    }


def cross_validate_anew(fit: Callable[[Rows], Regression], study: Study, label: str) -> NestedResult:
    """Predict as `cross_validate`, with features fitted to the training people of every outer fold, inner folds too."""
    folds: dict[bytes, list[Fold]] = {}
    for fold in study.folds:
        folds.setdefault(np.sort(fold.train).tobytes(), []).append(fold)
    groups = track(folds.values(), f"folds of {label}", study.settings, len(folds))
    return merge_folds([cross_validate(fit(group[0].train), study, folds=group) for group in groups])


# --- Scores ---------------------------------------------------------------------------------------------------------


def main_score(target: Target) -> str:
    """Name of the score that representations are compared by: auc for targets of two classes, r for others."""
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
            for name in names:
                values = score_predictions(name, observed[:, columns], predicted[:, columns], about)
                scores["r" if name == "pearson" else name][columns] = values
    return scores


def fold_scores(study: Study, results: Results) -> pd.DataFrame:
    """Sizes, penalty and scores by target, representation and fold: the columns of the table ``prediction``."""
    rows = []
    for name, result in results.items():
        for i, fold in enumerate(result.folds):
            scores = score_targets(study.targets, result.observed[i], result.predicted[i], result.train[i])
            for j, target in enumerate(study.targets):
                row = {"target": target.name, "representation": name, "repeat": fold.repeat, "fold": fold.fold}
                row |= {f"n_{part}": int(target.known[getattr(fold, part)].sum()) for part in ("train", "test")}
                row |= {"penalty": float(result.chosen[i, j]), "at_grid_edge": bool(result.at_edge[i, j])}
                rows.append(row | {score: float(values[j]) for score, values in scores.items()})
    return pd.DataFrame(rows, columns=list(TABLES["prediction"].columns))


def pooled_scores(study: Study, results: Results) -> pd.DataFrame:
    """Scores of all predictions of a repeat together, by target, representation and repeat."""
    rows = []
    for name, result in results.items():
        for repeat, cell in result.repeats():
            scores = score_targets(study.targets, *cell)
            for j, target in enumerate(study.targets):
                of_target = {score: float(values[j]) for score, values in scores.items()}
                rows.append({"target": target.name, "representation": name, "repeat": repeat, **of_target})
    return pd.DataFrame(rows, columns=list(TABLES["prediction_pooled"].columns))


def person_frames(study: Study, results: Results) -> Iterator[pd.DataFrame]:
    """Yield observed and predicted by repeat and person, one representation and target after the other."""
    for name, result in results.items():
        sizes = [fold.test.size for fold in result.folds]
        tested = np.concatenate([fold.test for fold in result.folds])
        for j, target in enumerate(study.targets):
            yield pd.DataFrame(
                {
                    "participant_id": np.array(study.people.names, dtype=object)[tested],
                    "target": target.name,
                    "representation": name,
                    "repeat": np.repeat([fold.repeat for fold in result.folds], sizes),
                    "fold": np.repeat([fold.fold for fold in result.folds], sizes),
                    "observed": np.concatenate([observed[:, j] for observed in result.observed]),
                    "predicted": np.concatenate([predicted[:, j] for predicted in result.predicted]),
                }
            )


def summarise(folds: pd.DataFrame, pooled: pd.DataFrame) -> pd.DataFrame:
    """By target and representation: numbers of folds, and mean and SD of scores over folds, and of pooled ones."""
    parts = folds.groupby(KEYS, sort=False)
    columns = {"n_folds": parts.size(), "n_scored": parts["r"].count()}
    columns["share_at_grid_edge"] = parts["at_grid_edge"].mean()
    for kind, groups in (("fold", parts), ("pooled", pooled.groupby(KEYS, sort=False))):
        for word, values in (("mean", groups[[*SCORES]].mean()), ("sd", groups[[*SCORES]].std())):
            columns |= {f"{score}_{kind}_{word}": values[score] for score in SCORES}
    return pd.DataFrame(columns)


def describe_each(study: Study, folds: pd.DataFrame, pooled: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """The main score of every target and representation, of how many folds, and how often a penalty was at an edge."""
    wide, counts = summarise(folds, pooled).to_dict("index"), folds.groupby(KEYS)[[*SCORES]].count()
    described: dict[tuple[str, str], dict[str, Any]] = {}
    for target, name in product(study.targets, folds["representation"].unique()):
        key, score = (target.name, name), main_score(target)
        row = {"target": target.name, "representation": name, "score": score, "n_folds": wide[key]["n_folds"]}
        row |= {"n_scored": counts.loc[key, score], "share_at_grid_edge": wide[key]["share_at_grid_edge"]}
        described[key] = row | {end: wide[key][f"{score}_{end}"] for end in MEANS}
    return described


def notes_of(results: Results) -> dict[str, list[str]]:
    """Notes on each representation: dropped penalties, penalties at an edge of the grid."""
    return {name: list(result.notes) for name, result in results.items() if result.notes}


# --- Differences ----------------------------------------------------------------------------------------------------


def compare(
    folds: pd.DataFrame, study: Study, pairs: Pairs | None = None, column: str = "representation"
) -> pd.DataFrame:
    """Test pairs of representations for every target, by default all, with the honest number of distinct test sets.

    `folds`: as of `fold_scores`. `column`: what differs, under the name of which the first of a pair is found.
    """
    if pairs is None:
        pairs = [(later, earlier) for earlier, later in combinations(folds[column].unique().tolist(), 2)]
    pairs, rows = list(pairs), []
    for target in study.targets:
        score, known = main_score(target), np.flatnonzero(target.known)
        tested = [np.intersect1d(fold.test, known) for fold in study.folds]
        some = np.array([people.size > 0 for people in tested])
        n_train = [np.intersect1d(fold.train, known).size for fold, keep in zip(study.folds, some, strict=True) if keep]
        tested = [people.tolist() for people in tested if people.size]
        of_target = folds[folds["target"] == target.name]
        scores = {name: part[score].to_numpy() for name, part in of_target.groupby(column, sort=False)}
        for first, reference in pairs:
            differences = scores[first] - scores[reference]
            differences = np.where(np.abs(differences) < ROUNDING, 0.0, differences)
            test = corrected_resampled_t(differences[some], n_train, [len(people) for people in tested], tested)
            row: dict[str, Any] = {"target": target.name, "representation": first, "reference": reference}
            row |= {"score": score, **test}
            row |= {"n_folds": len(differences), "n_skipped": test["n_skipped"] + int((~some).sum())}
            row |= {"sd_difference": float(pd.Series(differences).std()), "folds_won": int((differences > 0).sum())}
            rows.append(row)
    return correct_within(pd.DataFrame(rows, columns=[*COMPARED, "sd_difference", "folds_won"]), ["target"])


def correct_within(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Set ``p_holm`` to ``p_two_sided`` after Holm's correction over the rows that agree in some columns."""
    frame = frame.assign(p_holm=np.nan)
    for _, part in frame.groupby(list(keys), sort=False):
        frame.loc[part.index, "p_holm"] = adjust_p_values(part["p_two_sided"].to_numpy(dtype=float))
    return frame


def comparison_facts(study: Study) -> dict[str, Any]:
    """Say, for a sidecar, how representations are compared, and warn of test sets that are too small to say much."""
    smallest, facts = min(fold.test.size for fold in study.folds), {"Rule": RULE}
    if smallest < SMALL_FOLD and not study.held_out:
        facts["SmallFolds"] = (
            f"The smallest test set has {smallest} people, so scores per fold are noisy and the tests weak; look "
            "at the pooled scores, or use fewer folds."
        )
    return facts


# --- Screens --------------------------------------------------------------------------------------------------------


class Screen:
    """Rows that are each compared with one reference; what a cohort does not allow is a row that says why."""

    def __init__(self, study: Study, reference: str) -> None:
        self.study, self.reference = study, reference
        self.results: dict[str, NestedResult] = {}
        self.about: dict[str, dict[str, Any]] = {}

    def add(self, name: str, make: NestedResult | Callable[[], NestedResult | Regression], **about: Any) -> None:
        """Take the predictions of a row, or those of a regression. Raises Unfit, where it is the reference."""
        try:
            made = make() if callable(make) else make
            result = made if isinstance(made, NestedResult) else cross_validate(made, self.study, name)
        except Unfit as error:
            if name == self.reference:
                raise
            self.about[name] = {**about, "status": "refused", "reason": str(error)}
            return
        first = next(iter(self.results.values()), result)
        if all(np.array_equal(*pair, equal_nan=True) for pair in zip(first.observed, result.observed, strict=True)):
            result = replace(result, observed=first.observed)  # held once for all
        self.results[name], self.about[name] = result, {**about, "status": "scored", "reason": ""}

    def tables(self, name: str, facts: Mapping[str, Any], question: str = "") -> dict[str, Table]:
        """Make the table with a row per target and entry, and that with a row per fold.

        `question`: the column whose values are corrected for by themselves.
        """
        folds, pooled = (scores(self.study, self.results) for scores in (fold_scores, pooled_scores))
        others = [(row, self.reference) for row in self.results if row != self.reference]
        tests = compare(folds, self.study, others)
        asked = [self.about[row].get(question, "") for row in tests["representation"]]
        tests = correct_within(tests.assign(question=asked), ["target", "question"])
        tested = tests.set_index(["target", "representation"])[["reference", *TESTS, "n_distinct"]].to_dict("index")
        scored, rows = describe_each(self.study, folds, pooled), []
        for target in self.study.targets:
            for entry, about in self.about.items():
                key = target.name, entry
                row = {"target": target.name, "representation": entry, "score": main_score(target), **about}
                rows.append(row | scored.get(key, {}) | tested.get(key, {}))
        about = {**self.study.facts(), "Comparisons": RULE, "Reference": self.reference, **facts}
        notes = {"Notes": notes} if (notes := notes_of(self.results)) else {}
        return tabulate(about, **{name: rows}) | tabulate(about | notes, **{f"{name}_folds": folds})
