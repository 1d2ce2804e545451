"""Scores by chance alone: the whole nested cross-validation on permuted targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fcpower_bids.analyses.engine.columns import KEY_COLUMNS
from fcpower_bids.analyses.engine.cross_validation import run_nested_cv
from fcpower_bids.analyses.engine.representations import expand_names
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.engine.targets import Target, join_target_builders
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.inference.differences import POWER
from fcpower_bids.core.inference.permutation import largest_of_permutations, largest_standardised, permutation_p_value
from fcpower_bids.core.inference.sites import scores_within
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.core.regression.targets import TargetBuilder, remember_target
from fcpower_bids.predictors import PREDICTORS
from fcpower_bids.progress import track
from fcpower_bids.schema import Column, TableSpec, join_columns, pick_columns

NO_NULL = {"n_permutations": 0} | dict.fromkeys(
    ("p_permutation", "p_max", "p_max_targets", "score_needed", "score_powered"), np.nan
)
CHUNK = 250
"""Permutations that go through the folds together."""

BUDGET, BUDGET_REBUILT = 2000, 500
"""Permuted targets that what a predictor makes of a representation can afford by default, by kernel ridge: they cost
about a third of its prediction. With covariates and composites, which are fitted again in every fold and permutation, a
target costs four times as much. Other predictors say how many times kernel ridge they cost.
"""
LADDER = (1000, 500, 200, 100, 50, 20)
"""Numbers of permutations that are taken by default; fewer than 20 cannot give a p below 0.05, so none are drawn."""

NULL = TableSpec(
    "null",
    "Scores under permutation of the target.",
    join_columns(
        pick_columns(KEY_COLUMNS, ("target", "representation")),
        Column.number("permutation", "0 for the true order, then the permutations from 1"),
        Column.number(
            "score",
            "auc for targets of two classes, r for others; predictions of the first repeat together, or within sites "
            "where these are held out",
        ),
    ),
    ("target", "representation", "permutation"),
)
NULL_FACTS = {
    "Rule": (
        "People exchange their target together with its covariates; a class alone, as often as the covariates of "
        "both make likely, which stay (Berrett et al. 2020, doi:10.1111/rssb.12340); families are exchanged whole, "
        "with families of the same size; with --site-column, and where the target goes with a column of sites "
        "(TargetsThatGoWithSites), everyone stays at their site; people without the target stay in place. The "
        "penalty is selected again in every permutation. The statistic is that of all out-of-fold predictions of the "
        "first repeat; where sites are held out, the mean over sites of the statistic within each, weighted as in "
        "prediction_sites."
    )
}


@dataclass(frozen=True)
class Permutations:
    """How many permutations each target has, and why."""

    number: int
    reason: str  # a sentence


def choose_permutations(study: Study) -> Permutations:
    """Take the number of the request, else the largest within the budget; the published protocols have none."""
    asked, targets = study.settings.permutations, study.targets
    if asked is not None:
        return Permutations(asked, f"{asked:,} per target, as asked for (--permutations).")
    if not study.preset.permuted:
        return Permutations(0, f"None: the protocol '{study.preset.name}' has none (--permutations).")
    rebuilt = study.people.covariates.shape[1] > 0 or any(each.measures.shape[1] > 1 for each in targets)
    budget = BUDGET_REBUILT if rebuilt else BUDGET
    costs = predictor_costs(study)
    affordable = budget * sum(n for n, _ in costs.values()) / sum(n * cost for n, cost in costs.values())
    number = next((each for each in LADDER if each * len(targets) <= affordable + 1e-9), 0)
    of = f"{len(targets)} target{'s' if len(targets) > 1 else ''}"
    dear = "".join(f", {name} counting {cost:.0f} times" for name, (_, cost) in costs.items() if cost > 1)
    if not number:
        why = f"would leave fewer than {LADDER[-1]} each of {budget:,}{dear} (--permutations)."
        return Permutations(0, f"None: {of} {why}")
    what = f"{budget:,} permuted targets" + (", fitted again in every fold," if rebuilt else "")
    reason = f"{number:,} per target: as many as {what} allow for {of}{dear}; the smallest p is {1 / (1 + number):.2g}."
    return Permutations(number, reason)


def predictor_costs(study: Study) -> dict[str, tuple[int, float]]:
    """Entries of every predictor, and how many times kernel ridge a permuted target costs it."""
    n_representations = len(expand_names(study.cohort, study.settings))
    costs = {}
    for name in dict.fromkeys(study.settings.predictors):
        predictor = PREDICTORS[name]()
        cost = predictor.permuted_cost(len(study.people.names), study.cohort.edges.shape[1], n_representations)
        costs[name] = (1 if predictor.joint else n_representations, cost)
    return costs


def null_rows(solver: Solver, study: Study, name: str) -> list[dict[str, Any]]:
    """Score the true and the permuted targets, one row each; no rows without permutations."""
    rows: list[dict[str, Any]] = []
    if choose_permutations(study).number:
        for target in study.targets:
            rows += [
                {"target": target.name, "representation": name, "permutation": i, "score": float(score)}
                for i, score in enumerate(_scores(solver, study, target, name))
            ]
    return rows


def null_p_values(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """Columns of the summary by target and representation; undefined scores count as no better.

    The permutations are the same for all representations of a target, so the best of each corrects for their number.
    They are the same for all complete targets too; the best of all of these, each score in standard deviations of its
    own permutations, corrects for the number of targets. Targets of other people, and classes given covariates,
    have other permutations, as if they were independent, which makes the best larger.
    """
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        scores.setdefault(row["target"], {}).setdefault(row["representation"], []).append(row["score"])
    found = {}
    of_all, needed_of_all = _correct_for_targets(scores) if len(scores) > 1 else ({}, {})
    for target, each in scores.items():
        table = np.array(list(each.values())).T
        p_max, needed = largest_of_permutations(table[0], table[1:])
        for i, name in enumerate(each):
            needed = needed_of_all.get((target, name), needed)
            found[target, name] = {
                "p_permutation": _p_value(table[0, i], table[1:, i]),
                "p_max": float(p_max[i]),
                "p_max_targets": of_all.get((target, name), float(p_max[i])),
                "score_needed": needed if np.isfinite(needed) else np.nan,
                "score_powered": needed + POWER * np.nanstd(table[1:, i]) if np.isfinite(needed) else np.nan,
                "n_permutations": len(table) - 1,
            }
    return found


Keys = tuple[str, str]


def _correct_for_targets(scores: dict[str, dict[str, list[float]]]) -> tuple[dict[Keys, float], dict[Keys, float]]:
    """P of each target and representation against the best of all of each permutation, and the score it needs."""
    keys = [(target, name) for target, each in scores.items() for name in each]
    p, needed = largest_standardised(np.array([scores[target][name] for target, name in keys]).T)
    return dict(zip(keys, p.tolist(), strict=True)), dict(zip(keys, needed.tolist(), strict=True))


def _p_value(observed: float, null: FloatArray) -> float:
    return np.nan if np.isnan(observed) else permutation_p_value(observed, np.nan_to_num(null, nan=-np.inf))


def _scores(solver: Solver, study: Study, target: Target, name: str) -> FloatArray:
    orders = [None, *_orders(study, target)]
    chunks = [orders[start : start + CHUNK] for start in range(0, len(orders), CHUNK)]
    progress = track(chunks, f"permutations of {target.name} ({name})", study.settings)
    return np.concatenate([_score_orders(solver, study, target, chunk) for chunk in progress])


def _orders(study: Study, target: Target) -> list[Rows]:
    """Orders of everyone in which only people who have the target change places."""
    known, orders, exchange = np.flatnonzero(target.known), [], study.protocol.exchange
    drawn = target.is_binary and study.people.covariates.shape[1]
    for among in (exchange.draws if drawn else exchange.orders)(target, choose_permutations(study).number):
        order = np.arange(target.known.size)
        order[known] = known[among]
        orders.append(order)
    return orders


def _score_orders(solver: Solver, study: Study, target: Target, orders: list[Rows | None]) -> FloatArray:
    columns = join_target_builders([target], study.people.covariates, orders)
    if callable(columns):
        columns = remember_target(columns)
    return score_columns(solver, columns, study, target)


def score_columns(solver: Solver, columns: FloatArray | TargetBuilder, study: Study, target: Target) -> FloatArray:
    """Predict columns of one target in the first repeat; the score of all predictions of each together."""
    result = run_nested_cv(solver, columns, study.first_repeat, study.preset)
    predicted, observed = np.concatenate(result.predicted), np.concatenate(result.observed)
    score, sites = "auc" if target.is_binary else "pearson", study.protocol.scored_within
    if sites is None:
        return score_predictions(score, observed, predicted)
    return scores_within(observed, predicted, sites[np.concatenate([fold.test for fold in result.folds])], score)
