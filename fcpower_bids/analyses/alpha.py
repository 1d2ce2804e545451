"""Which exponent suits this cohort: by nested prediction over a grid, or by kernel-target alignment per fold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.evaluate import cross_validate, main_score, make_solver, score_targets
from fcpower_bids.analyses.features import ALPHA_GRID, PowerFamily, Representation, combine_scans
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.alignment import (
    AlignmentCurves,
    alignment_curves,
    chebyshev_nodes,
    kernel_and_derivative,
    quadratic_peak,
)
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort, Table, tabulate
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Analysis

Rows = list[dict[str, Any]]
FC_NESTED = "fc_nested"
"""FC^alpha with alpha chosen inside each outer fold."""

OPTIMISM = (
    "Each curve scores the test people, so naming the best exponent of the curve and reporting its score on the same "
    "folds is optimistic. The exponent marked as chosen saw the training people alone; predictions made with it (mean "
    "in NestedScore) carry no optimism. BestOfGridScore minus NestedScore measures the optimism."
)
STEP = 1e-3
"""Half the step of the central difference."""
prepare = open_study


def analyse_alpha(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Choose the exponent by ``alpha_selection``: "align", else the grid under nested validation. Raises Unfit."""
    study = prepare(cohort, settings)
    return tabulate_alpha(study, None if settings.alpha_selection == "align" else nested_exponent(study))


def tabulate_alpha(study: Study, grid: ExponentGrid | None = None) -> dict[str, Table]:
    """Tables ``alpha`` and ``alpha_optimum`` of an exponent chosen by prediction, or by alignment without a grid."""
    curve, optimum, facts = _by_alignment(study) if grid is None else _by_prediction(study, grid)
    return tabulate(study.facts() | facts, alpha=curve) | tabulate(facts, alpha_optimum=optimum)


def _keys(study: Study, fold: int, target: int) -> dict[str, Any]:
    chosen = study.folds[fold]
    return {"target": study.targets[target].name, "repeat": chosen.repeat, "fold": chosen.fold}


def _by_prediction(study: Study, grid: ExponentGrid) -> tuple[Rows, Rows, dict[str, Any]]:
    scores = np.stack([_scores(study, result) for result in grid.results])
    star = int(np.abs(grid.alphas - ALPHA_STAR).argmin())
    curve: Rows = []
    optimum: Rows = []
    for i, j in np.ndindex(grid.best.shape):
        keys, best = {"criterion": "prediction", **_keys(study, i, j)}, int(grid.best[i, j])
        each = zip(grid.alphas.tolist(), scores[:, i, j].tolist(), grid.inner[:, i, j].tolist(), strict=True)
        curve += [
            keys | {"alpha": alpha, "score": score, "inner_score": inner, "chosen": a == best}
            for a, (alpha, score, inner) in enumerate(each)
        ]
        at = {"alpha": float(grid.alphas[best]), "score": scores[best, i, j], "score_at_star": scores[star, i, j]}
        optimum.append(keys | at | {"at_bound": best in (0, len(grid.alphas) - 1)})
    names = [target.name for target in study.targets]
    nested = np.take_along_axis(scores, grid.best[None], axis=0)[0]
    means = _mean_over_folds(scores)
    comparable = np.where(np.isnan(means), -np.inf, means)
    chosen = np.where(comparable.max(axis=0) > -np.inf, grid.alphas[comparable.argmax(axis=0)], np.nan)
    facts = {
        "Optimism": OPTIMISM,
        "Grid": grid.alphas.tolist(),
        "BestOfGrid": dict(zip(names, chosen.tolist(), strict=True)),
        "BestOfGridScore": dict(zip(names, np.fmax.reduce(means, axis=0).tolist(), strict=True)),
        "NestedScore": dict(zip(names, _mean_over_folds(nested[None])[0].tolist(), strict=True)),
        "QuadraticFit": _fits(study, grid.alphas, scores),
    }
    return curve, optimum, facts


def _fits(study: Study, alphas: FloatArray, scores: FloatArray) -> dict[str, Any]:
    """Peak and coefficients, by target, of the parabola through the curves of scores (A, F, m) over the exponents."""
    fits = [quadratic_peak(alphas, scores[:, :, j]) for j in range(scores.shape[2])]
    rows = ({"Peak": peak, "Coefficients": coefficients.tolist()} for peak, coefficients in fits)
    return dict(zip([target.name for target in study.targets], rows, strict=True))


def _mean_over_folds(scores: FloatArray) -> FloatArray:
    """Mean of scores (A, F, m) over the folds that have one; NaN where none has, as when folds test one person each."""
    known = np.isfinite(scores)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, scores, 0.0).sum(axis=1) / known.sum(axis=1))


def _scores(study: Study, result: Any) -> FloatArray:
    """The score of each fold and target, (F, m): auc for two classes, r for others."""
    rows = []
    for i in range(len(result.folds)):
        scores = score_targets(study.targets, result.observed[i], result.predicted[i], result.train[i])
        rows.append(np.array([scores[main_score(target)][j] for j, target in enumerate(study.targets)]))
    return np.stack(rows)


def _by_alignment(study: Study) -> tuple[Rows, Rows, dict[str, Any]]:
    curves, note = _align(study)
    optimum = curves.optimum()
    on_grid = curves.at(np.array(ALPHA_GRID))
    truncation = curves.truncation()
    low, high = curves.nodes.min(), curves.nodes.max()
    centre = np.clip(np.nan_to_num(optimum.alpha, nan=ALPHA_STAR), low + STEP, high - STEP)
    curve: Rows = []
    rows: Rows = []
    for i, j in np.ndindex(optimum.alpha.shape):
        keys = {"criterion": "alignment", **_keys(study, i, j)}
        curve += [
            keys | {"alpha": alpha, "score": float(on_grid[a, i, j]), "inner_score": np.nan, "chosen": False}
            for a, alpha in enumerate(ALPHA_GRID)
        ]
        beside = curves.at([centre[i, j] - STEP, centre[i, j] + STEP])[:, i, j]
        row = keys | {"alpha": float(optimum.alpha[i, j]), "score": float(optimum.alignment[i, j])}
        row |= {"score_at_star": float(optimum.alignment_at_star[i, j]), "slope": float(optimum.slope[i, j])}
        row["slope_check"] = float((beside[1] - beside[0]) / (2 * STEP))
        rows.append(row | {"truncation": float(truncation[i, j]), "at_bound": bool(optimum.at_bound[i, j])})
    facts = {
        "Rule": (
            "Alignment of the correlation kernel with the target, training people alone, interpolated through "
            "Chebyshev nodes and maximised by Brent's method in every fold."
        ),
        "Nodes": curves.nodes.tolist(),
        "DerivativeCheck": note,
        "QuadraticFit": _fits(study, np.array(ALPHA_GRID), on_grid),
    }
    return curve, rows, facts


def _align(study: Study) -> tuple[AlignmentCurves, str]:
    n = len(study.people.names)
    masks = np.zeros((len(study.folds), n), dtype=bool)
    for i, fold in enumerate(study.folds):
        masks[i, fold.train] = True
    built = study.columns
    targets = np.stack([built(fold.train) for fold in study.folds]) if callable(built) else built
    family = PowerFamily(combine_scans(study.cohort, study.people.scans, study.settings), study.settings, keep=True)
    nodes = chebyshev_nodes()
    spectra, size = family.spectra, n * family.connectivity.shape[1] * 8
    if spectra is None or 4 * size > available_bytes():
        return alignment_curves(family.kernel, masks, targets, nodes), "left out: the cohort is too large for memory"
    last: dict[float, tuple[FloatArray, FloatArray]] = {}

    def pair(alpha: float) -> tuple[FloatArray, FloatArray]:
        if alpha not in last:
            last.clear()
            last[alpha] = kernel_and_derivative(*spectra, alpha)
        return last[alpha]

    curves = alignment_curves(
        lambda alpha: pair(alpha)[0], masks, targets, nodes, derivatives=lambda alpha: pair(alpha)[1]
    )
    return curves, "closed form (the paper, Appendix D.4) at every optimum"


@dataclass(frozen=True, eq=False)
class ExponentGrid:
    """The nested cross-validation of every exponent, F folds and m targets."""

    alphas: FloatArray  # (A,): the grid
    results: tuple[NestedResult, ...]  # on the same folds
    # (A, F, m): selection score of the selected penalty; it has seen the training people of the fold alone
    inner: FloatArray
    best: NDArray[np.intp]  # (F, m): position of the exponent with the best selection score, the first in a tie
    result: NestedResult  # predictions with that exponent: the choice is nested, so its scores carry no optimism


def nested_exponent(study: Study, alphas: tuple[float, ...] = ALPHA_GRID) -> ExponentGrid:
    """Run the nested cross-validation for every exponent and choose one inside each outer fold."""
    family = PowerFamily(combine_scans(study.cohort, study.people.scans, study.settings), study.settings, keep=True)
    results = []
    for alpha in track(alphas, "exponents", study.settings):
        representation = Representation(f"fc^{alpha:g}", study.settings.kernel, partial(family.features, alpha))
        results.append(cross_validate(make_solver(representation, study.preset), study, representation.name))
    return choose_exponent(np.array(alphas), results)


def choose_exponent(alphas: FloatArray, results: list[NestedResult]) -> ExponentGrid:
    """Take in every fold and for every target the exponent with the best selection score."""
    inner = np.stack([result.best_scores for result in results])
    best = np.where(np.isnan(inner), -np.inf, inner).argmax(axis=0)
    first = results[0]
    predicted = tuple(
        np.take_along_axis(np.stack([result.predicted[i] for result in results]), best[i][None, None], axis=0)[0]
        for i in range(len(first.folds))
    )
    chosen, at_edge = (
        np.take_along_axis(np.stack([getattr(result, name) for result in results]), best[None], axis=0)[0]
        for name in ("chosen", "at_edge")
    )
    best_scores = np.take_along_axis(inner, best[None], axis=0)[0]
    note = f"The exponent was chosen in every outer fold among {', '.join(f'{alpha:g}' for alpha in alphas)}."
    scores = {"inner_scores": best_scores[:, None], "best_scores": best_scores, "slopes": np.empty(0)}
    nested = replace(first, chosen=chosen, at_edge=at_edge, predicted=predicted, notes=(note,), **scores)
    return ExponentGrid(alphas, tuple(results), inner, best, nested)
