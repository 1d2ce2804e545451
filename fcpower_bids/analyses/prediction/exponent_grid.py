"""FC^alpha over a grid of exponents on shared folds, and the exponent chosen inside every outer fold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.connectomes import AveragedEdges, PowerFamily
from fcpower_bids.analyses.engine.cross_validation import cross_validate, make_solver
from fcpower_bids.analyses.engine.progress import track
from fcpower_bids.analyses.engine.protocol import Study
from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.core.regression.nested import NestedResult

FloatArray = NDArray[np.float64]

FC_NESTED = "fc_nested"
"""FC^alpha with alpha chosen inside each outer fold."""

ALPHA_GRID = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.65, 0.8, 1.0)
"""The paper's fine grid 0.10 to 0.50, continued to FC itself and towards the log-Euclidean limit: 13 exponents."""


@dataclass(frozen=True, eq=False)
class ExponentGrid:
    """The nested cross-validation of every exponent, F folds and m targets.

    Attributes
    ----------
    alphas : ndarray, shape (A,)
        The grid.
    results : tuple of A NestedResult
        On the same folds.
    inner : ndarray, shape (A, F, m)
        Selection score of the selected penalty; it has seen the training people of the fold alone.
    best : ndarray of int, shape (F, m)
        Position of the exponent with the best selection score, the first in a tie.
    result : NestedResult
        Predictions with that exponent: the choice is nested, so its scores carry no optimism.
    """

    alphas: FloatArray
    results: tuple[NestedResult, ...]
    inner: FloatArray
    best: NDArray[np.intp]
    result: NestedResult


def nested_exponent(study: Study, alphas: tuple[float, ...] = ALPHA_GRID) -> ExponentGrid:
    """Run the nested cross-validation for every exponent and choose one inside each outer fold.

    Parameters
    ----------
    study : Study
        People, targets and folds.
    alphas : tuple of float
        The grid.

    Returns
    -------
    ExponentGrid
    """
    family = PowerFamily(AveragedEdges(study.cohort.edges, study.people.scans), study.settings, keep=True)
    results = []
    for alpha in track(alphas, "exponents", study.settings):
        results.append(_validate(study, family, alpha))
    return choose_exponent(np.array(alphas), results)


def choose_exponent(alphas: FloatArray, results: list[NestedResult]) -> ExponentGrid:
    """Take in every fold and for every target the exponent with the best selection score."""
    scores = [np.where(np.isnan(result.inner_scores), -np.inf, result.inner_scores) for result in results]
    inner = np.stack([score.max(axis=1) for score in scores])
    best = inner.argmax(axis=0)
    first = results[0]
    predicted = tuple(
        np.take_along_axis(np.stack([result.predicted[i] for result in results]), best[i][None, None], axis=0)[0]
        for i in range(len(first.folds))
    )
    chosen = np.take_along_axis(np.stack([result.chosen for result in results]), best[None], axis=0)[0]
    nested = NestedResult(
        folds=first.folds,
        penalties=first.penalties,
        chosen=chosen,
        inner_scores=np.take_along_axis(inner, best[None], axis=0)[0][:, None],
        observed=first.observed,
        predicted=predicted,
        train=first.train,
        notes=(f"The exponent was chosen in every outer fold among {', '.join(f'{alpha:g}' for alpha in alphas)}.",),
    )
    return ExponentGrid(alphas, tuple(results), np.where(np.isinf(inner), np.nan, inner), best, nested)


def _validate(study: Study, family: PowerFamily, alpha: float) -> NestedResult:
    representation = Representation(f"fc^{alpha:g}", study.settings.kernel, lambda: family.features(alpha))
    return cross_validate(make_solver(representation, study.preset), study, representation.name)
