"""Which exponent suits this cohort: by nested prediction over a grid, or by kernel-target alignment per fold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.evaluate import evaluate, fold_scores
from fcpower_bids.analyses.features import ALPHA_GRID, PowerFamily, Representation, combine_scans, similarity
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.alignment import NODES, AlignmentCurves, alignment_curves, kernel_and_derivative, quadratic_peak
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.nested import NestedResult
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort, Looked, Table, tabulate
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Settings

Rows = list[dict[str, Any]]

FC_NESTED = "fc_nested"
"""FC^alpha with alpha chosen inside each outer fold."""
OPTIMISM = (
    "Each curve scores the test people, so naming the best exponent of the curve and reporting its score on the same "
    "folds is optimistic. The exponent marked as chosen saw the training people alone; predictions made with it (mean "
    "in NestedScore) carry no optimism. BestOfGridScore minus NestedScore measures the optimism."
)


def analyse_alpha(cohort: Cohort, settings: Settings) -> Looked:
    """Choose the exponent by ``alpha_selection``: "align", else the grid under nested validation. Raises Unfit."""
    study = open_study(cohort, settings)
    yield {}
    yield tabulate_alpha(study, None if settings.group.alpha_selection == "align" else nested_exponent(study))


def tabulate_alpha(study: Study, grid: ExponentGrid | None = None) -> dict[str, Table]:
    """Tables ``alpha`` and ``alpha_optimum`` of an exponent chosen by prediction, or by alignment without a grid."""
    curve, optimum, facts = _by_alignment(study) if grid is None else _by_prediction(study, grid)
    return tabulate(study.facts() | facts, alpha=curve) | tabulate(facts, alpha_optimum=optimum)


def _keys(study: Study, criterion: str, fold: int, target: int) -> dict[str, Any]:
    chosen, name = study.folds[fold], study.targets[target].name
    return {"criterion": criterion, "target": name, "repeat": chosen.repeat, "fold": chosen.fold}


def _by_target(study: Study, values: Iterable[Any]) -> dict[str, Any]:
    return dict(zip([target.name for target in study.targets], values, strict=True))


def _fits(study: Study, alphas: FloatArray, scores: FloatArray) -> dict[str, Any]:
    """Peak and coefficients, by target, of the parabola through the curves of scores (A, F, m) over the exponents."""
    fits = (quadratic_peak(alphas, scores[:, :, j]) for j in range(scores.shape[2]))
    return _by_target(study, ({"Peak": peak, "Coefficients": coefficients.tolist()} for peak, coefficients in fits))


def _by_prediction(study: Study, grid: ExponentGrid) -> tuple[Rows, Rows, dict[str, Any]]:
    frame, alphas = fold_scores(study, dict(enumerate(grid.results))), grid.alphas  # type: ignore[arg-type]
    binary = np.isin(frame["target"], [target.name for target in study.targets if target.is_binary])
    scores = np.where(binary, frame["auc"], frame["r"]).astype(float).reshape(grid.inner.shape)
    star = int(np.abs(alphas - ALPHA_STAR).argmin())
    curve: Rows = []
    optimum: Rows = []
    for i, j in np.ndindex(grid.best.shape):
        keys, best = _keys(study, "prediction", i, j), int(grid.best[i, j])
        points = zip(alphas.tolist(), scores[:, i, j].tolist(), grid.inner[:, i, j].tolist(), strict=True)
        curve += [
            keys | {"alpha": alpha, "score": score, "inner_score": inner, "chosen": a == best}
            for a, (alpha, score, inner) in enumerate(points)
        ]
        at = {"alpha": float(alphas[best]), "score": scores[best, i, j], "score_at_star": scores[star, i, j]}
        optimum.append(keys | at | {"at_bound": best in (0, len(alphas) - 1)})
    nested, known = np.take_along_axis(scores, grid.best[None], axis=0), np.isfinite(scores)
    # over the folds that have a score; NaN where none has, as when folds test one person each
    with np.errstate(invalid="ignore"):
        means, of_nested = (
            np.nan_to_num(values).sum(axis=1) / np.isfinite(values).sum(axis=1) for values in (scores, nested)
        )
    comparable = np.where(np.isnan(means), -np.inf, means)
    chosen = np.where(known.any(axis=(0, 1)), alphas[comparable.argmax(axis=0)], np.nan)
    facts = {
        "Optimism": OPTIMISM,
        "Grid": alphas.tolist(),
        "BestOfGrid": _by_target(study, chosen.tolist()),
        "BestOfGridScore": _by_target(study, np.fmax.reduce(means, axis=0).tolist()),
        "NestedScore": _by_target(study, of_nested[0].tolist()),
        "QuadraticFit": _fits(study, alphas, scores),
    }
    return curve, optimum, facts


def _by_alignment(study: Study) -> tuple[Rows, Rows, dict[str, Any]]:
    curves, note = _align(study)
    optimum, on_grid = curves.optimum(), curves.at(np.array(ALPHA_GRID))
    curve: Rows = []
    rows: Rows = []
    for i, j in np.ndindex(optimum["alpha"].shape):
        keys = _keys(study, "alignment", i, j)
        curve += [
            keys | {"alpha": alpha, "score": float(on_grid[a, i, j]), "inner_score": np.nan, "chosen": False}
            for a, alpha in enumerate(ALPHA_GRID)
        ]
        rows.append(keys | {name: values[i, j].item() for name, values in optimum.items()})
    facts = {
        "Rule": (
            "Alignment of the correlation kernel with the target, training people alone, interpolated through "
            "Chebyshev nodes and maximised by Brent's method in every fold."
        ),
        "Nodes": NODES.tolist(),
        "DerivativeCheck": note,
        "QuadraticFit": _fits(study, np.array(ALPHA_GRID), on_grid),
    }
    return curve, rows, facts


def _align(study: Study) -> tuple[AlignmentCurves, str]:
    masks = np.zeros((len(study.folds), len(study.people.names)), dtype=bool)
    for i, fold in enumerate(study.folds):
        masks[i, fold.train] = True
    built = study.columns
    targets = np.stack([built(fold.train) for fold in study.folds]) if callable(built) else built
    family = PowerFamily(combine_scans(study.cohort, study.people.scans), study.settings, keep=True)
    spectra, size = family.spectra, masks.shape[1] * family.connectivity.shape[1] * 8
    if spectra is None or 4 * size > available_bytes():
        curves = alignment_curves(lambda alpha: (similarity(family.features(alpha)), None), masks, targets)
        return curves, "left out: the cohort is too large for memory"
    curves = alignment_curves(partial(kernel_and_derivative, *spectra), masks, targets)
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
    """Run the nested cross-validation for every exponent and choose one inside each outer fold, for every target."""
    family = PowerFamily(combine_scans(study.cohort, study.people.scans), study.settings, keep=True)
    every = (
        Representation(f"fc^{alpha:g}", study.settings.group.kernel, partial(family.features, alpha))
        for alpha in track(alphas, "exponents", study.settings)
    )
    results = list(evaluate(study, every).values())
    inner = np.stack([result.best_scores for result in results])
    best = np.where(np.isnan(inner), -np.inf, inner).argmax(axis=0)
    predicted = tuple(
        np.take_along_axis(np.stack([result.predicted[i] for result in results]), at[None, None], axis=0)[0]
        for i, at in enumerate(best)
    )
    chosen, at_edge, best_scores = (
        np.take_along_axis(np.stack([getattr(result, name) for result in results]), best[None], axis=0)[0]
        for name in ("chosen", "at_edge", "best_scores")
    )
    note = f"The exponent was chosen in every outer fold among {', '.join(f'{alpha:g}' for alpha in alphas)}."
    scores = {"inner_scores": best_scores[:, None], "best_scores": best_scores, "slopes": np.empty(0)}
    nested = replace(results[0], chosen=chosen, at_edge=at_edge, predicted=predicted, notes=(note,), **scores)
    return ExponentGrid(np.array(alphas), tuple(results), inner, best, nested)
