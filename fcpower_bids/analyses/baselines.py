"""What predicts without connectomes: chance alone, and what is known of people; and what connectomes add to it.

Chance: the whole nested cross-validation on permuted targets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import cross_validate
from fcpower_bids.analyses.study import Study
from fcpower_bids.analyses.targets import Target, build_once, covariate_columns, join_target_builders, site_columns
from fcpower_bids.core.arrays import FloatArray, Labels, Rows
from fcpower_bids.core.differences import SIGNIFICANT, largest_of_permutations, largest_standardised
from fcpower_bids.core.krr import Regression
from fcpower_bids.core.scores import score_predictions, scores_within
from fcpower_bids.core.targets import (
    TargetBuilder,
    fixed_target,
    join_targets,
    leave_nothing,
    predict_known,
    remove_covariates,
    residual_target,
)
from fcpower_bids.parallel import track
from fcpower_bids.records import CALLED, Table, tabulate

NO_NULL = {"n_permutations": 0} | dict.fromkeys(("p_permutation", "p_max", "p_max_targets", "score_needed"), np.nan)
CHUNK = 250
"""Permutations that go through the folds together."""
BUDGET, BUDGET_REBUILT = 2000, 500
"""Permuted targets that a representation can afford by default: they cost about a third of its prediction. With
covariates and composites, which are fitted again in every fold and permutation, a target costs four times as much.
"""
LADDER = (1000, 500, 200, 100, 50, 20)
"""Numbers of permutations that are taken by default; fewer than 20 cannot give a p below 0.05, so none are drawn."""

NULL_FACTS = {
    "Rule": (
        "People exchange their target together with its covariates; families are exchanged whole, with families of "
        "the same size; with --site-column, and where the target goes with a column of sites "
        "(TargetsThatGoWithSites), everyone stays at their site; people without the target stay in place. The "
        "penalty is selected again in every permutation. The statistic is that of all out-of-fold predictions of the "
        "first repeat (of an AUC: less .5, in standard errors); where sites are held out, the mean over sites of that "
        "within each, weighted as in prediction_sites."
    )
}


def choose_permutations(study: Study) -> tuple[int, str]:
    """How many permutations each target has, by request, else by the budget and the protocol, and why in a sentence."""
    asked, targets = study.settings.group.permutations, study.targets
    if asked is not None:
        return asked, f"{asked:,} per target, as asked for (--permutations)."
    if not study.preset.permuted:
        return 0, f"None: the protocol '{study.preset.name}' has none (--permutations)."
    rebuilt = study.people.covariates.shape[1] > 0 or any(target.measures.shape[1] > 1 for target in targets)
    budget = BUDGET_REBUILT if rebuilt else BUDGET
    number = next((count for count in LADDER if count * len(targets) <= budget), 0)
    of = f"{len(targets)} target{'s' if len(targets) > 1 else ''}"
    if not number:
        return 0, f"None: {of} would leave fewer than {LADDER[-1]} each of {budget:,} (--permutations)."
    what = f"{budget:,} permuted targets" + (", fitted again in every fold," if rebuilt else "")
    reason = f"{number:,} per target: as many as {what} allow for {of}; the smallest p is {1 / (1 + number):.2g}."
    return number, reason


Null = dict[tuple[str, str], FloatArray]
"""By target and representation: scores of the true and the permuted targets and their standard errors, (2, 1 + B)."""


def null_scores(solver: Regression, study: Study, name: str) -> Null:
    """Score the true and the permuted targets; nothing without permutations."""
    targets = study.targets if choose_permutations(study)[0] else ()
    return {(target.name, name): _scores(solver, study, target, name) for target in targets}


def null_p_values(cells: Null) -> dict[tuple[str, str], dict[str, float]]:
    """Columns of the summary; the best of each permutation corrects for the representations, and for the targets."""
    if not cells:
        return {}
    scores, errors = np.stack(list(cells.values()), axis=-1)  # (1 + B, m)
    table = np.where(np.isfinite(errors), (scores - 0.5) / errors, scores)
    p_max, needed = np.empty((2, len(cells)))
    targets = np.array([target for target, _ in cells])
    for target in dict.fromkeys(targets.tolist()):
        columns = targets == target
        p_max[columns], needed[columns] = largest_of_permutations(table[0, columns], table[1:, columns])
    of_all = p_max
    if len(set(targets.tolist())) > 1:
        of_all, needed = largest_standardised(table)
    needed[~np.isfinite(needed)] = np.nan
    # Scores that would have had these statistics: the error of an AUC goes with sqrt(AUC (1 - AUC)).
    with np.errstate(divide="ignore", invalid="ignore"):
        areas = 0.5 + 0.5 * np.sin(np.arctan(needed * errors[0] / np.sqrt(scores[0] * (1 - scores[0]))))
    needed = np.where(np.isfinite(errors[0]), areas, needed)
    return {
        key: {
            "p_permutation": float(largest_of_permutations(table[0, [i]], table[1:, [i]])[0][0]),
            "p_max": float(p_max[i]),
            "p_max_targets": float(of_all[i]),
            "score_needed": float(needed[i]),
            "n_permutations": len(table) - 1,
        }
        for i, key in enumerate(cells)
    }


def score_columns(name: str, observed: FloatArray, predicted: FloatArray, sites: Labels | None) -> FloatArray:
    """Score columns (n, m), within sites (n,) where these are given: (m,)."""
    if sites is None:
        return score_predictions(name, observed, predicted)
    return scores_within(observed, predicted, sites, name)


def _scores(solver: Regression, study: Study, target: Target, name: str) -> FloatArray:
    known, exchange = np.flatnonzero(target.known), study.exchange
    orders = list[Rows | slice]([slice(None)])
    for among in exchange.orders(target, choose_permutations(study)[0]):
        order = np.arange(target.known.size)  # only people who have the target change places
        order[known] = known[among]
        orders.append(order)
    chunks = [orders[start : start + CHUNK] for start in range(0, len(orders), CHUNK)]
    progress = track(chunks, f"permutations of {target.name} ({name})", study.settings)
    builders = (join_target_builders([target], study.people.covariates, chunk) for chunk in progress)
    results = (
        cross_validate(solver, study, columns=build_once(builder), folds=study.first_repeat) for builder in builders
    )
    sites, by_chunk = study.scored_within, []
    for result in results:  # all predictions of each column together, with the error of an AUC: (2, m)
        both = np.concatenate(result.observed), np.concatenate(result.predicted)
        within = None if sites is None else sites[np.concatenate([fold.test for fold in result.folds])]
        names = ("auc", "auc_error") if target.is_binary else ("pearson",)
        scores = [score_columns(name, *both, within) for name in names]
        by_chunk.append(np.stack(scores if target.is_binary else [*scores, np.full_like(scores[0], np.nan)]))
    return np.hstack(by_chunk)


# --- What is known without a scan -------------------------------------------------------------------------------------


MEAN, SITE, KNOWN, STACKED = "mean", "site", "known", "known and connectome"
MOTION, MINUTES = "mean_fd", "minutes"
PEOPLE_PER_COLUMN = 10
MOST_PERMUTATIONS = 200
"""Taken where no number is asked for."""
FEWEST_PERMUTATIONS = 20
"""Fewer cannot give a p below 0.05."""
GAINS = {"gain": "value", "gain_cod": "predictive_cod"}
"""Columns of differences, and those whose they are."""
BASELINES = "prediction_baselines"
FACTS = {
    "Rule": (
        "The representation predicts, on the folds of the first repeat, what the known columns leave of a target "
        "(classes are 0 and 1). Known columns are taken into the range of the training people, and their "
        "prediction is drawn towards the mean by the slope of the target on predictions of each training person from "
        "the others; that of the representation is multiplied by the slope, not below 0, of what is left on the "
        "predictions of the inner folds, and both are added. The gain is over the best of mean, site and known. "
        "For its p what the known columns leave in everyone changes places (Freedman and Lane), and all of this is "
        "done again; the gain is then that of the correlation, of classes in standard errors that hold where they are "
        "spread differently (DiCiccio and Romano 2017, doi:10.1080/01621459.2016.1202117)."
    )
}


@dataclass(frozen=True)
class Added:
    """What a representation adds to the best predictor without a scan."""

    over: str  # that predictor in words
    alone: float  # its score, as a sentence shows it
    together: float  # that with the representation: the gain is the difference
    p: float  # NaN with fewer than `FEWEST_PERMUTATIONS`, which test nothing
    adds: bool

    @property
    def gain(self) -> float:
        """The difference of both scores."""
        return round(self.together - self.alone, 2)

    def clause(self, name: str) -> str:
        """``age alone 0.41, with FC 0.52; FC adds +0.11 (p = 0.005)``."""
        if np.isnan(self.p):
            sentence = f"whether {name} adds to it was not tested"
        elif self.adds:
            sentence = f"{name} adds {self.gain:+.2f} (p {'<' if self.p < 0.001 else '='} {max(self.p, 0.001):.3f})"
        else:
            sentence = f"{name} adds nothing that was shown (p = {self.p:.3f})"
        return f"{self.over} {self.alone:.2f}, with {name} {self.together:.2f}; {sentence}"


def find_added(rows: pd.DataFrame, target: str, representation: str) -> Added | None:
    """Read what a representation adds to a target from rows of ``prediction_baselines``; None where none is there."""
    models = rows[rows["target"].astype(str) == target] if len(rows) else rows
    stacked = models[models["representation"] == representation] if len(models) else models
    if stacked.empty:
        return None
    row = stacked.iloc[0]
    base = models[models["model"] == row["over"]].iloc[0]
    over = {MEAN: "without a scan", SITE: f"the site ({base['known']}) alone"}.get(
        str(row["over"]), f"{base['known']} alone"
    )
    alone, together = (round(float(model["value"]), 2) for model in (base, row))
    p = float(row["p_adds"]) if row["n_permutations"] >= FEWEST_PERMUTATIONS else np.nan
    return Added(over, alone, together, p, str(row["adds"]).lower() == "true")


class Known(NamedTuple):
    """What is known of people besides their scans: names, and columns (n, c), means where missing."""

    names: tuple[str, ...]
    columns: FloatArray


class Baselines:
    """Collects what is predicted without a scan, and what each entry adds."""

    def __init__(self, study: Study) -> None:
        self.study, self.sites = study, study.scored_within
        self._rows: list[dict[str, Any]] = []
        self._null: Null = {}
        self._known = {target.name: find_known(study, target) for target in study.targets}

    def add(self, entry: str, solver: Regression) -> None:
        """Predict with one entry what the known columns leave of every target."""
        for target in self.study.targets:
            known, given = self._known[target.name], self.study.people.covariates.shape[1] > 0
            site: Known | None = None
            if not known.names:
                continue
            exchange = self.study.exchange
            columns, labels = [share.column for share in exchange.shares(target.name)], exchange.sites_of(target.name)
            if columns and labels is not None and self.sites is None:  # it goes with sites that are not held out
                indicators = (labels[:, None] == np.unique(labels)[1:]).astype(float)
                site = Known(tuple(dict.fromkeys(columns)), indicators) if indicators.size else None
            predictions = self._predict(solver, target, known, None if given else site)
            described = {name: predictions.describe(name) for name in predictions.predicted}
            alone = [name for name in described if name != STACKED]
            over = max(alone, key=lambda name: float(described[name]["value"]))
            about = {"target": target.name, "n_people": int(target.known.sum())}
            row = about | {"model": STACKED, "representation": entry, "known": ", ".join(known.names)}
            row |= described[STACKED]
            row |= {gain: row[column] - described[over][column] for gain, column in GAINS.items()}
            if not any(earlier["target"] == target.name for earlier in self._rows):
                names = {KNOWN: ", ".join(known.names), SITE: ", ".join(site.names) if site else ""}
                if site and given:  # of what the covariates leave of the target, which is what is predicted
                    build = residual_target(target.build(), self.study.people.covariates)
                    described[SITE] = self._gather(target, build, {SITE: self._guess_site(build, site)}).describe(SITE)
                models = [name for name in (MEAN, SITE, KNOWN) if name in described]
                self._rows += [{**about, "model": name, "known": names.get(name), **described[name]} for name in models]
            self._rows.append(row | {"over": over})
            if predictions.observed.shape[1] > 1:
                gains = predictions.score(STACKED) - np.max([predictions.score(name) for name in alone], axis=0)
                errors = predictions.error() if target.is_binary else np.full_like(gains, np.nan)
                self._null[target.name, entry] = np.stack([0.5 * target.is_binary + gains, errors])

    def table(self) -> dict[str, Table]:
        """Return ``prediction_baselines``; nothing where nothing is known."""
        if not self._rows:
            return {}
        p = null_p_values(self._null)
        for row in self._rows:
            if row["model"] == STACKED:
                test = p.get((row["target"], row["representation"]), {"p_max_targets": np.nan, "n_permutations": 0})
                row |= {"p_adds": test["p_max_targets"], "n_permutations": test["n_permutations"], "adds": None}
                if np.isfinite(row["p_adds"]):
                    row["adds"] = bool(row["p_adds"] < SIGNIFICANT and row["gain"] > 0 and row["gain_cod"] > 0)
        first = list(self._known)
        return tabulate(FACTS, **{BASELINES: sorted(self._rows, key=lambda row: first.index(row["target"]))})

    def _guess_site(self, build: TargetBuilder, site: Known) -> list[FloatArray]:
        folds = self.study.first_repeat
        return [predict_known(build(fold.train), site.columns, fold.train)[fold.test] for fold in folds]

    def _predict(self, solver: Regression, target: Target, known: Known, site: Known | None) -> _Predictions:
        folds = self.study.first_repeat
        build: TargetBuilder = build_once(self._targets(target, known))  # type: ignore[assignment]

        def predict(train: Rows) -> FloatArray:
            return predict_known(build(train), known.columns, train, self.sites)

        guess: TargetBuilder = build_once(predict)  # type: ignore[assignment]
        result = cross_validate(solver, self.study, columns=lambda train: build(train) - guess(train), folds=folds)
        predictions = {SITE: self._guess_site(build, site)} if site else {}
        predictions[KNOWN] = [guess(fold.train)[fold.test] for fold in folds]
        of_folds = zip(predictions[KNOWN], result.slopes, result.predicted, strict=True)
        predictions[STACKED] = [base + np.maximum(slopes, 0) * predicted for base, slopes, predicted in of_folds]
        return self._gather(target, build, predictions)

    def _gather(self, target: Target, build: TargetBuilder, predictions: dict[str, list[FloatArray]]) -> _Predictions:
        """Put the folds of each model together, and those of the training mean, for the people who have the target."""
        folds = self.study.first_repeat
        observed = [build(fold.train)[fold.test] for fold in folds]
        means = [np.nanmean(build(fold.train)[fold.train], axis=0) for fold in folds]
        every = {
            MEAN: [np.broadcast_to(mean, truth.shape) for mean, truth in zip(means, observed, strict=True)],
            **predictions,
        }
        rows = np.concatenate([fold.test for fold in folds])
        there = target.known[rows]
        return _Predictions(
            target.is_binary,
            None if self.sites is None else self.sites[rows[there]],
            np.concatenate(observed)[there],
            {name: np.concatenate(values)[there] for name, values in every.items()},
        )

    def _targets(self, target: Target, known: Known) -> TargetBuilder:
        """The target, and permutations of what the known columns leave of it, side by side."""
        number = choose_permutations(self.study)[0]
        if self.study.settings.group.permutations is None:
            number = min(number, MOST_PERMUTATIONS)
        if not number:
            return target.build()
        rows, exchange = np.flatnonzero(target.known), self.study.exchange
        values = target.measures[rows]
        given = known.columns
        if self.sites is not None:  # their levels stay where they are, and say nothing of the other columns
            given = np.hstack([given, self.sites[:, None] == np.unique(self.sites)[1:]])
        left = remove_covariates(values, given[rows], np.arange(len(rows)))
        permuted = np.concatenate([values[None], values - left + left[exchange.orders(target, number)]])
        versions = np.full((number + 1, *target.measures.shape), np.nan)
        versions[:, rows] = permuted
        if target.measures.shape[1] == 1:
            return fixed_target(np.ascontiguousarray(versions[:, :, 0].T))
        return join_targets([replace(target, measures=measures).build() for measures in versions])


class _Predictions(NamedTuple):
    """Out-of-fold predictions of the true target, and of permuted ones, by the model."""

    is_binary: bool  # whether the target is one of two classes
    sites: Labels | None  # (n,): of the people, where these are scored within sites
    observed: FloatArray  # (n, 1 + B)
    predicted: dict[str, FloatArray]  # the same

    def score(self, model: str, name: str = "pearson") -> FloatArray:
        """The score of each column, (1 + B,), an AUC of the first alone: that of chance where a model orders nobody."""
        chance, columns = (0.5, slice(1)) if name == "auc" else (0.0, slice(None))
        predicted = self.predicted[model][:, columns]
        scores = score_columns(name, self.observed[:, columns], predicted, self.sites)
        if self.sites is None:
            scores = np.where((predicted != self.predicted[MEAN][:, columns]).any(axis=0), scores, np.nan)
        return np.where(np.isfinite(scores), scores, chance)

    def error(self) -> FloatArray:
        """Standard error of the correlation of each column, (1 + B,), which holds where classes are spread differently.

        Source: DiCiccio and Romano 2017 (doi:10.1080/01621459.2016.1202117).
        """
        x, y = (self.centre(values) for values in (self.observed, self.predicted[STACKED]))
        size = (x**2).sum(axis=0) * (y**2).sum(axis=0)
        return np.sqrt(np.divide(((x * y) ** 2).sum(axis=0), size, out=np.ones_like(size), where=size > 0))

    def centre(self, values: FloatArray) -> FloatArray:
        """Columns (n, m) without their means, those of each site where these are held out."""
        if self.sites is None:
            return np.asarray(values - values.mean(axis=0))
        members = (self.sites[:, None] == np.unique(self.sites)).astype(float)
        return np.asarray(values - members @ (members.T @ values / members.sum(axis=0)[:, None]))

    def describe(self, model: str) -> dict[str, Any]:
        """Scores of the true target."""
        values, guess, mean = (each[:, :1] for each in (self.observed, self.predicted[model], self.predicted[MEAN]))
        errors, spread = values - guess, values - mean
        if self.sites is not None and not self.is_binary:
            errors, spread = self.centre(errors), self.centre(spread)
        total = float((spread**2).sum())
        return {
            "value": self.score(model, "auc" if self.is_binary else "pearson")[0],
            "score": "auc" if self.is_binary else "r",
            "predictive_cod": 1 - float((errors**2).sum()) / total if total else np.nan,
        }


def find_known(study: Study, target: Target) -> Known:
    """Find what else is known, undeclared columns as far as people are enough for them; nothing where it is all."""
    people, settings, declared = study.people, study.settings, list(study.preset.covariates)
    table, n = people.phenotypes, len(people.names)
    called = [str(name) for name in table.columns if str(name).lower() in CALLED]
    names = dict.fromkeys([*declared, *called, MOTION, MINUTES, *site_columns(table, settings.group)])
    made_of = settings.group.made_of(target.name)
    forms = {
        name: covariate_columns(table, study.cohort.scans, [name], (settings.group.site_column,)).to_numpy(dtype=float)
        for name in names
        if name not in made_of
    }
    candidates = [(name, columns) for name, columns in forms.items() if name != MOTION or name in declared]
    if MOTION in forms:  # what goes with motion need not do so in a straight line
        motion = forms[MOTION]
        rank = pd.DataFrame(motion).rank().to_numpy() / n - 0.5
        log = np.log(np.where(motion > 0, motion, np.nan))
        place = sum(name in (*declared, *called) for name, _ in candidates)
        candidates.insert(place, (MOTION, rank))
        candidates += [(MOTION, rank**2), *([(MOTION, motion)] if MOTION not in declared else []), (MOTION, log)]
    sites = study.scored_within
    groups = [np.ones(n, dtype=bool)] if sites is None else [sites == site for site in np.unique(sites)]
    chosen: list[tuple[str, FloatArray]] = []
    for name, columns in candidates:
        # the SD of equal numbers is not always 0
        varies = [np.fmax.reduce(columns[group]) > np.fmin.reduce(columns[group]) for group in groups]
        kept = columns[:, np.any(varies, axis=0)]
        held = sum(block.shape[1] for _, block in chosen)
        if kept.shape[1] and (name in declared or held + kept.shape[1] <= max(n // PEOPLE_PER_COLUMN, 1)):
            chosen.append((name, np.where(np.isfinite(kept), kept, np.nanmean(kept, axis=0))))
    known = np.hstack([block for _, block in chosen]) if chosen else np.zeros((n, 0))
    train = min((fold.train[target.known[fold.train]] for fold in study.first_repeat), key=len)
    if not chosen or leave_nothing(target.measures, known, train):
        return Known((), known)
    return Known(tuple(dict.fromkeys(name for name, _ in chosen)), known)
