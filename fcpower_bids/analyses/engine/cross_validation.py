"""Nested cross-validation of one entry for all targets of a study, fitted to everyone or anew in every fold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.nested import NestedResult, Outcome, nested_cv
from fcpower_bids.core.regression.penalties import (
    PenaltyLadder,
    nested_cv_extending,
    regress_on_kernel,
    search_penalties,
)
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.probe import PRIMAL_WIDTH, LinearProbe
from fcpower_bids.core.regression.ridge import FoldKernels, FoldSolver, Solver, SubsetSolver
from fcpower_bids.core.regression.scores import Training
from fcpower_bids.core.regression.targets import TargetBuilder
from fcpower_bids.parallel import map_tasks
from fcpower_bids.progress import track


def make_solver(people: Representation, preset: PredictionPreset) -> Solver:
    """Kernel ridge regression on the correlation between people's features, or a linear probe on z-scored features."""
    fitted = people.fitted
    if people.kernel == "correlation":
        whole = people.similarity()  # of features that need no fit; its mean diagonal is the unit
        if fitted is None:
            return regress_on_kernel(whole, preset)
        kernels = FoldKernels(lambda train: correlation_kernel(fitted(train)))

        def regress(train: Rows, penalties: FloatArray) -> Solver:
            return SubsetSolver(kernels(train), penalties, preset.intercept)

        return search_penalties(
            lambda penalties: FoldSolver(regress, penalties), float(np.trace(whole)) / len(whole), preset
        )
    features = np.asarray(people.features()[:])
    scale = float((np.ptp(features, axis=0) > 0).sum())
    if fitted is None:
        everyone, (n, width) = preset.fit_transforms_on == "cohort", features.shape
        probe = LinearProbe(features, [1.0], preset.intercept, everyone=everyone)
        if everyone and width > min(PRIMAL_WIDTH, n / 4):  # one kernel for all folds costs less
            return regress_on_kernel(probe.kernel(), preset)
        return search_penalties(probe.with_penalties, scale, preset)

    def probe_features(train: Rows, penalties: FloatArray) -> Solver:
        return LinearProbe(fitted(train)[:], penalties, preset.intercept)

    return search_penalties(lambda penalties: FoldSolver(probe_features, penalties), scale, preset)


def regress_on_blocks(solver: Solver, kernel: FloatArray, preset: PredictionPreset) -> Solver:
    """Return the same regression as one that decomposes the block of the training people in every fold."""

    def make(penalties: FloatArray) -> Solver:
        return SubsetSolver(kernel, penalties, preset.intercept, solver.notes)

    return PenaltyLadder(make, solver.scale) if isinstance(solver, PenaltyLadder) else make(solver.penalties)


def cross_validate(solver: Solver, study: Study, label: str) -> NestedResult:
    """Predict every target of everyone from the others."""
    watch = partial(track, label=f"cross-validation of {label}", settings=study.settings, total=len(study.folds))
    return run_nested_cv(solver, study.columns, study.folds, study.preset, watch)


def cross_validate_anew(fit: Callable[[Sequence[Rows]], Iterable[Solver]], study: Study) -> NestedResult:
    """Predict as `cross_validate`, with features fitted to the training people of every outer fold, inner folds too."""
    folds: dict[bytes, list[Fold]] = {}
    for fold in study.folds:
        folds.setdefault(np.sort(fold.train).tobytes(), []).append(fold)
    solvers = fit([own[0].train for own in folds.values()])
    return merge_results(
        [
            run_nested_cv(solver, study.columns, own, study.preset)
            for own, solver in zip(folds.values(), solvers, strict=True)
        ]
    )


def run_nested_cv(
    solver: Solver,
    targets: FloatArray | TargetBuilder,
    folds: Sequence[Fold],
    preset: PredictionPreset,
    watch: Callable[[Iterable[Outcome]], Iterable[Outcome]] = iter,
) -> NestedResult:
    """Run `nested.nested_cv` with the score and grid of the preset; features that are fitted stay in this process."""
    here = isinstance(getattr(solver, "base", solver), FoldSolver)

    def each(function: Callable[[Fold], Outcome], items: Sequence[Fold], /) -> Iterable[Outcome]:
        return watch(map(function, items) if here else map_tasks(function, items))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if isinstance(solver, PenaltyLadder):
            return nested_cv_extending(solver, targets, folds, preset.selection, each)
        return nested_cv(solver, targets, folds, preset.selection, each=each)


def merge_results(parts: Sequence[NestedResult]) -> NestedResult:
    """Put the results of several sets of folds together, in the order of repeats and folds."""
    folds = [fold for part in parts for fold in part.folds]
    order = sorted(range(len(folds)), key=lambda i: (folds[i].repeat, folds[i].fold))
    observed, predicted, train = (
        [each for part in parts for each in getattr(part, name)] for name in ("observed", "predicted", "train")
    )
    return NestedResult(
        folds=tuple(folds[i] for i in order),
        penalties=parts[0].penalties,
        chosen=np.concatenate([part.chosen for part in parts])[order],
        inner_scores=np.concatenate([part.inner_scores for part in parts])[order],
        best_scores=np.concatenate([part.best_scores for part in parts])[order],
        at_edge=np.concatenate([part.at_edge for part in parts])[order],
        observed=tuple(observed[i] for i in order),
        predicted=tuple(predicted[i] for i in order),
        train=tuple(train[i] for i in order),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def join_targets_of(results: Sequence[NestedResult]) -> NestedResult:
    """Put the results of single targets on the same folds side by side."""
    first = results[0]
    folds = range(len(first.folds))
    return NestedResult(
        folds=first.folds,
        penalties=first.penalties,
        chosen=np.hstack([each.chosen for each in results]),
        inner_scores=np.concatenate([each.inner_scores for each in results], axis=2),
        best_scores=np.hstack([each.best_scores for each in results]),
        at_edge=np.hstack([each.at_edge for each in results]),
        observed=tuple(np.hstack([each.observed[i] for each in results]) for i in folds),
        predicted=tuple(np.hstack([each.predicted[i] for each in results]) for i in folds),
        train=tuple(
            Training(
                np.concatenate([each.train[i].mean for each in results]),
                np.concatenate([each.train[i].std for each in results]),
            )
            for i in folds
        ),
        notes=tuple(dict.fromkeys(note for each in results for note in each.notes)),
    )
