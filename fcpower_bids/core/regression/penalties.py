"""A grid of ridge penalties in units of the kernel that goes on while the best lies at its edge."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.nested import (
    EachFold,
    NestedResult,
    in_turn,
    nested_cv,
    unscored_notes,
)
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import KernelPenalties, Sides, Solver, Split, open_kernel
from fcpower_bids.core.regression.scores import Training, best_penalty, selection_scores
from fcpower_bids.core.regression.targets import TargetBuilder

DECADES = (-3, -2, -1, 0, 1, 2, 3)
"""The grid that every fold searches: powers of ten of the kernel's mean diagonal."""

LAST_DECADE = 6
"""How far the grid goes on, to both sides; there a regression is interpolation, or predicts the mean."""

GAIN = 1e-4
"""Gain of the selection score below which the next penalty is no better: without it a plateau never ends."""


class PenaltyLadder:
    """A regression for a grid of penalties that can be continued; to others it is the regression on that grid.

    `make`: from penalties to the regression. `scale`: mean diagonal of the kernel, trace(K) / n, which is the unit of
    the penalties.
    """

    def __init__(self, make: Callable[[FloatArray], Solver], scale: float) -> None:
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"The kernel has a mean diagonal of {scale:g}: its features are all zero or missing.")
        self.make, self.scale = make, float(scale)
        self.base = make(self._penalties(DECADES))
        self._further: dict[int, Solver] = {}

    @property
    def penalties(self) -> FloatArray:
        """The grid that every fold searches."""
        return self.base.penalties

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the grid, for the sidecar."""
        return self.base.notes

    def prepare(self, targets: FloatArray) -> Sides:
        """Do what depends on the targets and not on the split."""
        return self.base.prepare(targets)

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict for every penalty of the grid."""
        return self.base.predict(split, outer, inner)

    def beyond(self, decade: int) -> Solver:
        """Return the regression for one penalty outside the grid, made once where there is memory."""
        if isinstance(self.base, KernelPenalties):
            return self.make(self._penalties((decade,)))  # there is no memory to keep it
        if decade not in self._further:
            self._further[decade] = self.make(self._penalties((decade,)))
        return self._further[decade]

    def whole(self) -> Solver:
        """Return the regression for all penalties that a fold could reach."""
        return self.make(self._penalties(range(-LAST_DECADE, LAST_DECADE + 1)))

    def _penalties(self, decades: Sequence[int]) -> FloatArray:
        return self.scale * 10.0 ** np.asarray(decades, dtype=float)


def regress_on_kernel(kernel: FloatArray, preset: PredictionPreset) -> Solver:
    """Return the regression on a kernel of everyone, shape (n, n), for the penalties of a preset."""
    scale = float(np.trace(kernel)) / len(kernel)
    return search_penalties(lambda penalties: open_kernel(kernel, penalties, preset.intercept), scale, preset)


def search_penalties(make: Callable[[FloatArray], Solver], scale: float, preset: PredictionPreset) -> Solver:
    """Return a regression for the penalties of a preset; `scale` is the mean diagonal of the kernel."""

    def quietly(penalties: FloatArray) -> Solver:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Dropped penalties are in `notes`.
            return make(penalties)

    return PenaltyLadder(quietly, scale) if preset.relative_penalties else quietly(np.array(preset.penalties))


def nested_cv_extending(
    ladder: PenaltyLadder,
    targets: FloatArray | TargetBuilder,
    folds: Sequence[Fold],
    selection: str,
    each: EachFold = in_turn,
) -> NestedResult:
    """Nested cross-validation in which a fold whose best penalty lies at an edge goes on by decades.

    Each fold and target goes on by itself, as far as its own inner folds gain: the choices of others change nothing, so
    the choice stays nested. A fold is `at_edge` only where even the last decade still gained. `targets`, `folds`,
    `selection`, `each`: as of `nested.nested_cv`. Returns `penalties` and `inner_scores` are those of the grid
    that every fold searches.
    """
    result = nested_cv(ladder.base, targets, folds, selection, each=each)
    chosen, predicted = result.chosen.copy(), [each.copy() for each in result.predicted]
    best, slopes = result.best_scores.copy(), result.slopes.copy()
    at_edge = np.zeros(chosen.shape, dtype=bool)
    for edge, decades in _beyond(ladder.penalties):
        going = (result.chosen == edge) & np.isfinite(best)
        for decade in decades:
            rows = np.flatnonzero(going.any(axis=1)).tolist()
            if not rows:
                break
            own = [folds[i] for i in rows]
            further = nested_cv(ladder.beyond(decade), targets, own, selection, each=each)
            scores = further.inner_scores[:, 0]
            better = np.zeros_like(going)
            better[rows] = going[rows] & (scores > best[rows] + GAIN)
            for at, i in enumerate(rows):
                gained = better[i]
                best[i, gained], chosen[i, gained] = scores[at, gained], further.chosen[at, gained]
                predicted[i][:, gained] = further.predicted[at][:, gained]
                slopes[i, gained] = further.slopes[at, gained]
            going = better
        at_edge |= going
    notes = [*ladder.notes, *unscored_notes(result.inner_scores)]
    if at_edge.any():
        notes.append(
            f"In {int(at_edge.sum())} of {at_edge.size} fits the selection score still rose at the last penalty of all."
        )
    return dataclasses.replace(
        result,
        chosen=chosen,
        predicted=tuple(predicted),
        best_scores=best,
        at_edge=at_edge,
        notes=tuple(notes),
        slopes=slopes,
    )


def _beyond(penalties: FloatArray) -> tuple[tuple[float, range], ...]:
    """Both edges of a grid, with the decades that lie beyond each."""
    return (
        (penalties.max(), range(DECADES[-1] + 1, LAST_DECADE + 1)),
        (penalties.min(), range(DECADES[0] - 1, -LAST_DECADE - 1, -1)),
    )


def score_penalties(solver: Solver, targets: FloatArray, validation: Sequence[Rows], selection: str) -> FloatArray:
    """Score every penalty of a regression on folds.

    `solver`: of n people. `targets` (n, m): known for all rows of the folds; the values of other rows take no part.
    `validation`: the rows of each fold; each is predicted from the rows of all others. `selection`: selection score,
    see `scores.selection_scores`. Returns (n_penalties, m): more is better; NaN where a score is not defined.
    """
    sides = solver.prepare(np.nan_to_num(targets))
    everyone = np.concatenate(validation)
    others = np.setdiff1d(np.arange(len(targets)), everyone)
    observed, predicted, train = [], [], []
    for test in validation:
        rest = np.setdiff1d(everyone, test)
        # A solver also predicts inner folds; here they are two halves whose predictions are not used.
        split = Split(test, rest, tuple(np.array_split(rest, 2)), others)
        predicted.append(solver.predict(split, sides, [sides, sides])[0])
        observed.append(targets[test])
        train.append(Training.of(targets[rest]))
    return selection_scores(selection, observed, predicted, train)


def select_penalties(
    solver: Solver, targets: FloatArray, validation: Sequence[Rows], selection: str
) -> tuple[FloatArray, FloatArray]:
    """Choose a penalty for each target; parameters as in `score_penalties`.

    A grid that can go on does so as in `nested_cv_extending`: by decades while the best lies at its edge. On the
    training rows of a fold of a nested cross-validation this is the penalty that it selects there. Returns `penalties,
    scores` (m,): the selected penalties, and their selection scores.
    """
    base = solver.base if isinstance(solver, PenaltyLadder) else solver
    grid = score_penalties(base, targets, validation, selection)
    best = best_penalty(grid, base.penalties)
    chosen, scores = base.penalties[best], np.take_along_axis(grid, best[None], axis=0)[0]
    if not isinstance(solver, PenaltyLadder):
        return chosen, scores
    for edge, decades in _beyond(base.penalties):
        going = (base.penalties[best] == edge) & np.isfinite(scores)
        for decade in decades:
            if not going.any():
                break
            further = solver.beyond(decade)
            gained = score_penalties(further, targets, validation, selection)[0]
            going &= gained > scores + GAIN
            chosen[going], scores[going] = further.penalties[0], gained[going]
    return chosen, scores
