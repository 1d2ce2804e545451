"""Scores by chance alone: the whole nested cross-validation on permuted targets."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcpower_bids.analyses.evaluate import cross_validate
from fcpower_bids.analyses.study import Study
from fcpower_bids.analyses.targets import Target, build_once, join_target_builders
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.differences import POWER, largest_of_permutations, largest_standardised
from fcpower_bids.core.regression.krr import Regression
from fcpower_bids.core.regression.scores import score_predictions, scores_within
from fcpower_bids.core.regression.targets import TargetBuilder
from fcpower_bids.progress import track

NO_NULL = {"n_permutations": 0} | dict.fromkeys(
    ("p_permutation", "p_max", "p_max_targets", "score_needed", "score_powered"), np.nan
)
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
        "People exchange their target together with its covariates; a class alone, as often as the covariates of "
        "both make likely, which stay (Berrett et al. 2020, doi:10.1111/rssb.12340); families are exchanged whole, "
        "with families of the same size; with --site-column, and where the target goes with a column of sites "
        "(TargetsThatGoWithSites), everyone stays at their site; people without the target stay in place. The "
        "penalty is selected again in every permutation. The statistic is that of all out-of-fold predictions of the "
        "first repeat (of an AUC: less .5, in standard errors); where sites are held out, the mean over sites of that "
        "within each, weighted as in prediction_sites."
    )
}


def choose_permutations(study: Study) -> tuple[int, str]:
    """How many permutations each target has, by request, else by the budget and the protocol, and why in a sentence."""
    asked, targets = study.settings.permutations, study.targets
    if asked is not None:
        return asked, f"{asked:,} per target, as asked for (--permutations)."
    if not study.preset.permuted:
        return 0, f"None: the protocol '{study.preset.name}' has none (--permutations)."
    rebuilt = study.people.covariates.shape[1] > 0 or any(each.measures.shape[1] > 1 for each in targets)
    budget = BUDGET_REBUILT if rebuilt else BUDGET
    number = next((each for each in LADDER if each * len(targets) <= budget), 0)
    of = f"{len(targets)} target{'s' if len(targets) > 1 else ''}"
    if not number:
        return 0, f"None: {of} would leave fewer than {LADDER[-1]} each of {budget:,} (--permutations)."
    what = f"{budget:,} permuted targets" + (", fitted again in every fold," if rebuilt else "")
    reason = f"{number:,} per target: as many as {what} allow for {of}; the smallest p is {1 / (1 + number):.2g}."
    return number, reason


def null_rows(solver: Regression, study: Study, name: str) -> list[dict[str, Any]]:
    """Score the true and the permuted targets, one row each; no rows without permutations."""
    targets = study.targets if choose_permutations(study)[0] else ()
    return [row for target in targets for row in list_scores(target, name, _scores(solver, study, target, name))]


def list_scores(target: Target, name: str, scores: FloatArray) -> list[dict[str, Any]]:
    """Rows of ``null`` from scores and their standard errors, (2, 1 + B)."""
    about = {"target": target.name, "representation": name}
    numbered = enumerate(scores.T.tolist())
    return [about | {"permutation": i, "score": score, "standard_error": error} for i, (score, error) in numbered]


def null_p_values(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """Columns of the summary; the best of each permutation corrects for the representations, and for the targets."""
    cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        key = str(row["target"]), str(row["representation"])
        cells.setdefault(key, []).append((row["score"], row["standard_error"]))
    if not cells:
        return {}
    scores, errors = np.array(list(cells.values())).transpose(2, 1, 0)  # (1 + B, m)
    table = np.where(np.isfinite(errors), (scores - 0.5) / errors, scores)
    p_max, needed = np.empty((2, len(cells)))
    targets = np.array([target for target, _ in cells])
    for target in dict.fromkeys(targets.tolist()):
        own = targets == target
        p_max[own], needed[own] = largest_of_permutations(table[0, own], table[1:, own])
    of_all = p_max
    if len(set(targets.tolist())) > 1:
        of_all, needed = largest_standardised(table)
    needed[~np.isfinite(needed)] = np.nan
    statistics = np.stack([needed, needed + POWER * np.nanstd(table[1:], axis=0)])
    # Scores that would have had these statistics: the error of an AUC goes with sqrt(AUC (1 - AUC)).
    with np.errstate(divide="ignore", invalid="ignore"):
        areas = 0.5 + 0.5 * np.sin(np.arctan(statistics * errors[0] / np.sqrt(scores[0] * (1 - scores[0]))))
    needed, powered = np.where(np.isfinite(errors[0]), areas, statistics)
    return {
        key: {
            "p_permutation": float(largest_of_permutations(table[0, [i]], table[1:, [i]])[0][0]),
            "p_max": float(p_max[i]),
            "p_max_targets": float(of_all[i]),
            "score_needed": float(needed[i]),
            "score_powered": float(powered[i]),
            "n_permutations": len(table) - 1,
        }
        for i, key in enumerate(cells)
    }


def _scores(solver: Regression, study: Study, target: Target, name: str) -> FloatArray:
    known, exchange = np.flatnonzero(target.known), study.protocol.exchange
    number, covariates = choose_permutations(study)[0], study.people.covariates
    drawn, orders = target.is_binary and covariates.shape[1], list[Rows | None]([None])
    for among in exchange.draws(target, number, covariates) if drawn else exchange.orders(target, number):
        order = np.arange(target.known.size)  # only people who have the target change places
        order[known] = known[among]
        orders.append(order)
    chunks = [orders[start : start + CHUNK] for start in range(0, len(orders), CHUNK)]
    progress = track(chunks, f"permutations of {target.name} ({name})", study.settings)
    builders = (join_target_builders([target], study.people.covariates, chunk) for chunk in progress)
    return np.hstack([score_columns(solver, build_once(columns), study, target) for columns in builders])


def score_columns(solver: Regression, columns: FloatArray | TargetBuilder, study: Study, target: Target) -> FloatArray:
    """Predict columns of one target in the first repeat; score all predictions of each, with its error, (2, m)."""
    result = cross_validate(solver, study, columns=columns, folds=study.first_repeat)
    predicted, observed = np.concatenate(result.predicted), np.concatenate(result.observed)
    sites = study.protocol.scored_within
    within = None if sites is None else sites[np.concatenate([fold.test for fold in result.folds])]

    def score(name: str) -> FloatArray:
        if within is None:
            return score_predictions(name, observed, predicted)
        return scores_within(observed, predicted, within, name)

    if target.is_binary:
        return np.stack([score("auc"), score("auc_error")])
    scores = score("pearson")
    return np.stack([scores, np.full_like(scores, np.nan)])
