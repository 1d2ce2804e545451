"""Nested cross-validation: every person predicted by a model that has seen neither them nor their relatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.folds import Fold, check_folds
from fcpower_bids.core.regression.ridge import KernelPenalties, Sides, Solver, Split
from fcpower_bids.core.regression.scores import (
    NEEDS_TRAINING,
    Training,
    best_penalty,
    pool_training,
    score_predictions,
    selection_scores,
)
from fcpower_bids.core.regression.targets import TargetBuilder
from fcpower_bids.errors import Unfit

TOGETHER = 2**22
"""Numbers of targets, over all folds in which they are built, up to which all folds are prepared at once."""


@dataclass(frozen=True, eq=False)
class NestedResult:
    """Out-of-fold predictions with the penalty selected inside each training set."""

    folds: tuple[Fold, ...]  # the F outer folds
    penalties: FloatArray  # (n_penalties,): the grid that was searched
    chosen: FloatArray  # (F, m): penalty selected for each fold and target
    # (F, n_penalties, m): selection score of each penalty, more is better, NaN where it is not defined
    inner_scores: FloatArray
    best_scores: FloatArray  # (F, m): selection score of the selected penalty, NaN where no penalty had one
    # (F, m): whether the selected penalty lies at an edge of what was searched: the best may lie outside
    at_edge: NDArray[np.bool_]
    # observed, predicted: (n_test, m): targets of the test rows as this fold defines them (NaN if missing), and their
    # predictions
    observed: tuple[FloatArray, ...]
    predicted: tuple[FloatArray, ...]
    train: tuple[Training, ...]  # mean and standard deviation (m,) of the training targets of each fold
    notes: tuple[str, ...]  # dropped penalties, penalties at the edge of the grid, selections without a score
    # (F, m): slope of the training targets on their inner out-of-fold predictions with the selected penalty; empty
    # where several results were put together
    slopes: FloatArray = field(default_factory=lambda: np.empty(0))

    def fold_scores(self, name: str) -> FloatArray:
        """Score each outer fold: shape (F, m), NaN where a fold has no score (count them)."""
        cells = zip(self.observed, self.predicted, self.train, strict=True)
        return np.stack([score_predictions(name, *cell) for cell in cells])

    def pooled_scores(self, name: str) -> FloatArray:
        """Score the out-of-fold predictions of each repeat together: shape (n_repeats, m)."""
        scores = []
        for repeat in dict.fromkeys(fold.repeat for fold in self.folds):
            cells = [i for i, fold in enumerate(self.folds) if fold.repeat == repeat]
            train = pool_training([self.train[i] for i in cells], [len(self.observed[i]) for i in cells])
            observed = np.concatenate([self.observed[i] for i in cells])
            predicted = np.concatenate([self.predicted[i] for i in cells])
            scores.append(score_predictions(name, observed, predicted, train))
        return np.stack(scores)


class EachFold(Protocol):
    """Whoever goes through the folds."""

    def __call__(self, function: Callable[[Fold], Outcome], items: Sequence[Fold], /) -> Iterable[Outcome]:
        """Return what the function, which depends on nothing else, returns of every fold, in their order."""


def in_turn(function: Callable[[Fold], Outcome], items: Sequence[Fold], /) -> Iterable[Outcome]:
    """Go through the folds one after the other."""
    return map(function, items)


def nested_cv(
    solver: Solver,
    targets: FloatArray | TargetBuilder,
    folds: Sequence[Fold],
    selection: str = "pooled_pearson",
    strict: bool = False,
    each: EachFold = in_turn,
) -> NestedResult:
    """Predict every test row from the others, the penalty selected by an inner cross-validation per fold and target.

    `solver`: a kernel (`factorise_kernel`), or a linear probe.
    `targets` (n, m): a row with NaN trains nothing for that target and is predicted in its test fold; or a builder,
    called once per fold with the training rows. `selection`: see `scores.selection_scores`; the first best penalty is
    taken. `strict`: build the targets anew on the training rows of every inner fold; the default uses those of the
    outer ones, as CBIG does: the test fold informs nothing either way. `each`: who goes through the folds. Raises
    ValueError: if the folds are not sound, the selection score is unknown, or a target has no training rows in some
    fold. Source: the paper, Appendix "Evaluation protocols".
    """
    check_folds(folds, len(targets(folds[0].train) if callable(targets) else targets) if folds else 0)
    outcomes = _go_through(solver, targets, strict, selection, folds, each)
    chosen = np.stack([outcome.chosen for outcome in outcomes])
    inner_scores = np.stack([outcome.scores for outcome in outcomes])
    notes = []
    for name, edge in (("smallest", solver.penalties.min()), ("largest", solver.penalties.max())):
        count = int((chosen == edge).sum())
        if count and solver.penalties.size > 1:
            where = f"was selected in {count} of {chosen.size} fits"
            notes.append(f"The {name} penalty, {edge:g}, {where}: the best may lie outside the grid.")
    return NestedResult(
        folds=tuple(folds),
        penalties=solver.penalties,
        chosen=chosen,
        inner_scores=inner_scores,
        best_scores=_best(inner_scores),
        at_edge=(chosen == solver.penalties.min()) | (chosen == solver.penalties.max()),
        observed=tuple(outcome.observed for outcome in outcomes),
        predicted=tuple(outcome.predicted[0] for outcome in outcomes),
        train=tuple(outcome.train for outcome in outcomes),
        notes=(*solver.notes, *notes, *unscored_notes(inner_scores)),
        slopes=np.stack([outcome.slopes[0] for outcome in outcomes]),
    )


def _go_through(
    solver: Solver,
    targets: FloatArray | TargetBuilder,
    strict: bool,
    selection: str,
    folds: Sequence[Fold],
    each: EachFold,
) -> list[Outcome]:
    """Evaluate all folds, for all penalties together or, as the solver asks, for some after the others; then select."""
    if not isinstance(solver, KernelPenalties):
        source = _TargetSource(solver, targets, strict, folds)
        evaluate = partial(_evaluate, solver, source, selection)
        return [_select([outcome], solver.penalties) for outcome in each(evaluate, folds)]

    def evaluate_one(penalty: float) -> list[Outcome]:
        part = solver.part(penalty)
        source = _TargetSource(part, targets, strict, folds)
        return list(each(partial(_evaluate, part, source, selection), folds))

    passes = [evaluate_one(penalty) for penalty in solver.penalties.tolist()]
    return [_select(of_fold, solver.penalties) for of_fold in zip(*passes, strict=True)]


class _TargetSource:
    """Right-hand sides of a fold, prepared for all folds at once: an inverse is then read from memory once.

    Where the targets are built in every fold that takes as many columns as there are folds; with too many of them
    (`TOGETHER`) each fold is prepared by itself, which costs little more then.
    """

    def __init__(
        self, solver: Solver, targets: FloatArray | TargetBuilder, strict: bool, folds: Sequence[Fold]
    ) -> None:
        self.solver, self.strict = solver, strict
        self.build = targets if callable(targets) else None
        self.places: dict[bytes, slice] = {}
        if not callable(targets):
            self.values = _as_columns(targets)
        elif strict or not self._build_together(targets, folds):
            return
        self.prepared = solver.prepare(np.nan_to_num(self.values))

    def _build_together(self, build: TargetBuilder, folds: Sequence[Fold]) -> bool:
        sets = {fold.train.tobytes(): fold.train for fold in folds}
        first = _as_columns(build(folds[0].train))
        if first.size * len(sets) > TOGETHER:
            return False
        m = first.shape[1]
        self.values = np.hstack([_as_columns(build(train)) for train in sets.values()])
        self.places = {key: slice(i * m, (i + 1) * m) for i, key in enumerate(sets)}
        self.build = None  # no worker needs it
        return True

    def sides(self, fold: Fold) -> tuple[FloatArray, Sides, list[Sides]]:
        """Return the targets with NaN, the right-hand sides of the outer and those of each inner fold."""
        if self.build is None:
            own = self.places.get(fold.train.tobytes(), slice(None))
            outer = self.prepared.columns(own)
            return self.values[:, own], outer, [outer] * len(fold.inner)
        values = _as_columns(self.build(fold.train))
        if not self.strict:
            outer = self.solver.prepare(np.nan_to_num(values))
            return values, outer, [outer] * len(fold.inner)
        again = [_as_columns(self.build(np.setdiff1d(fold.train, rows))) for rows in fold.inner]
        if any((np.isnan(each) != np.isnan(values))[fold.train].any() for each in again):
            raise ValueError("A target that is built in the fold is missing in other rows when built on an inner fold.")
        # One multiplication for all: the inverse, not the right-hand sides, is what has to be read from memory.
        stacked = self.solver.prepare(np.nan_to_num(np.hstack([values, *again])))
        m = values.shape[1]
        blocks = [stacked.columns(slice(i * m, (i + 1) * m)) for i in range(1 + len(again))]
        return values, blocks[0], blocks[1:]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One fold, see `NestedResult`."""

    scores: FloatArray  # (n_penalties, m): selection score of each penalty
    predicted: FloatArray  # (n_penalties, n_test, m): of each penalty; of the selected one alone once that is known
    observed: FloatArray  # (n_test, m)
    train: Training
    slopes: FloatArray  # (n_penalties, m): of the targets on their inner predictions; as `predicted`
    chosen: FloatArray = field(default_factory=lambda: np.empty(0))  # (m,): the selected penalty, once it is known


def _evaluate(solver: Solver, source: _TargetSource, selection: str, fold: Fold) -> Outcome:
    values, outer, inner = source.sides(fold)
    m, n_penalties = values.shape[1], solver.penalties.size
    outcome = Outcome(
        scores=np.empty((n_penalties, m)),
        predicted=np.empty((n_penalties, fold.test.size, m)),
        observed=values[fold.test],
        train=Training(np.empty(m), np.empty(m)),
        slopes=np.empty((n_penalties, m)),
    )
    for columns, split, used in _splits(fold, values):
        sides = outer.columns(columns)
        own = [sides if inner[i] is outer else inner[i].columns(columns) for i in used]
        test, validation = solver.predict(split, sides, own)
        scores = _score_inner(selection, split, own, validation)
        outcome.scores[:, columns], outcome.predicted[:, :, columns] = scores, test
        outcome.slopes[:, columns] = _slopes(
            [each.values[rows] for each, rows in zip(own, split.inner, strict=True)], validation
        )
        outcome.train.mean[columns], outcome.train.std[columns] = Training.of(sides.values[split.train])
    return outcome


def _select(parts: Sequence[Outcome], penalties: FloatArray) -> Outcome:
    """Select the penalty of every target of a fold, from its outcomes for parts of the grid."""
    scores = np.concatenate([part.scores for part in parts])
    best = best_penalty(scores, penalties)
    predicted = np.empty((1, *parts[0].observed.shape))
    slopes = np.concatenate([part.slopes for part in parts])
    start = 0
    for part in parts:
        own = np.flatnonzero((best >= start) & (best < start + len(part.scores)))
        predicted[0, :, own] = part.predicted[best[own] - start, :, own]
        start += len(part.scores)
    slopes = np.take_along_axis(slopes, best[None], axis=0)
    return dataclasses.replace(parts[0], scores=scores, predicted=predicted, slopes=slopes, chosen=penalties[best])


def _slopes(observed: Sequence[FloatArray], predicted: Sequence[FloatArray]) -> FloatArray:
    """Slope of targets (rows, m) on predictions (n_penalties, rows, m), each inner fold about its own means."""
    pairs = [
        (own - own.mean(axis=0), guess - guess.mean(axis=1, keepdims=True))
        for own, guess in zip(observed, predicted, strict=True)
    ]
    both, size = (sum((one * guess).sum(axis=1) for one, guess in each) for each in (pairs, [(g, g) for _, g in pairs]))
    return np.divide(both, size, out=np.zeros_like(both), where=size > 0)


def _score_inner(selection: str, split: Split, sides: Sequence[Sides], validation: Sequence[FloatArray]) -> FloatArray:
    observed = [each.values[rows] for each, rows in zip(sides, split.inner, strict=True)]
    train = None
    if selection.partition("_")[2] in NEEDS_TRAINING:
        rest = [np.concatenate([*split.inner[:v], *split.inner[v + 1 :]]) for v in range(len(split.inner))]
        train = [Training.of(each.values[rows]) for each, rows in zip(sides, rest, strict=True)]
    return selection_scores(selection, observed, validation, train)


def _splits(fold: Fold, values: FloatArray) -> Iterator[tuple[slice | NDArray[np.bool_], Split, list[int]]]:
    """Group the targets by the training rows in which they are missing; name the inner folds that keep any row."""
    missing = np.isnan(values[fold.train])
    if not missing.any():
        others = _others(len(values), fold.train, fold.test)
        yield slice(None), Split(fold.test, fold.train, fold.inner, others), list(range(len(fold.inner)))
        return
    patterns, members = np.unique(missing, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        columns = members.ravel() == number
        train = fold.train[~pattern]
        inner = [rows[np.isin(rows, train)] for rows in fold.inner]
        used = [i for i, rows in enumerate(inner) if rows.size]
        if len(used) < 2:
            raise Unfit(
                f"Target {np.flatnonzero(columns)[0]} is known for only {train.size} training rows of repeat "
                f"{fold.repeat}, fold {fold.fold}: too few for an inner cross-validation."
            )
        others = _others(len(values), train, fold.test)
        yield columns, Split(fold.test, train, tuple(inner[i] for i in used), others), used


def _others(n: int, *rows: Rows) -> Rows:
    """Return all of n rows but these."""
    others = np.ones(n, dtype=bool)
    others[np.concatenate(rows)] = False
    return np.flatnonzero(others)


def _as_columns(targets: FloatArray) -> FloatArray:
    values = np.asarray(targets, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or np.isinf(values).any():
        raise ValueError("Targets must be finite numbers (or NaN where missing), one column per target.")
    return values


def _best(inner_scores: FloatArray) -> FloatArray:
    best = np.where(np.isnan(inner_scores), -np.inf, inner_scores).max(axis=1)
    return np.asarray(np.where(np.isinf(best), np.nan, best))


def unscored_notes(inner_scores: FloatArray) -> Iterator[str]:
    """Count the fits without a selection score, (F, n_penalties, m)."""
    lacking = np.isnan(inner_scores).all(axis=1)
    if lacking.any():
        yield (
            f"In {int(lacking.sum())} of {lacking.size} fits no penalty had a score (constant target); the largest was "
            "taken."
        )
