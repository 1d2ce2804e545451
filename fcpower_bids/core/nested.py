"""Nested cross-validation: every person predicted by a model that has seen neither them nor their relatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.folds import Fold, check_folds
from fcpower_bids.core.krr import DECADES, LAST_DECADE, Regression, Sides, Split, decades
from fcpower_bids.core.scores import (
    NEEDS_TRAINING,
    Training,
    best_penalty,
    pool_training,
    score_predictions,
    selection_scores,
)
from fcpower_bids.core.targets import TargetBuilder
from fcpower_bids.errors import Unfit

GAIN = 1e-4
"""Gain of the selection score below which the next penalty is no better: without it a plateau never ends."""
TOGETHER = 2**22
"""Numbers of targets, over all folds in which they are built, up to which all folds are prepared at once."""
BEYOND = tuple(range(DECADES[-1] + 1, LAST_DECADE + 1)), tuple(range(DECADES[0] - 1, -LAST_DECADE - 1, -1))
"""Decades that lie beyond the largest and the smallest penalty of a grid that goes on."""


@dataclass(frozen=True, eq=False)
class NestedResult:
    """Out-of-fold predictions with the penalty selected inside each training set."""

    folds: tuple[Fold, ...]  # the F outer folds
    penalties: FloatArray  # (n_penalties,): the grid that every fold searched
    chosen: FloatArray  # (F, m): penalty selected for each fold and target
    # (F, n_penalties, m): selection score of each penalty, more is better, NaN where it is not defined
    inner_scores: FloatArray
    best_scores: FloatArray  # (F, m): selection score of the selected penalty, NaN where no penalty had one
    # (F, m): whether the selected penalty lies at an edge of what was searched: the best may lie outside
    at_edge: NDArray[np.bool_]
    observed: tuple[FloatArray, ...]  # (n_test, m): targets of the test rows as this fold defines them (NaN if missing)
    predicted: tuple[FloatArray, ...]  # (n_test, m): their predictions
    train: tuple[Training, ...]  # mean and standard deviation (m,) of the training targets of each fold
    notes: tuple[str, ...]  # dropped penalties, penalties at the edge of the grid, selections without a score
    # (F, m): slope of the training targets on their inner out-of-fold predictions with the selected penalty; empty
    # where several results were put together
    slopes: FloatArray = field(default_factory=lambda: np.empty(0))

    def fold_scores(self, name: str) -> FloatArray:
        """Score each outer fold: shape (F, m), NaN where a fold has no score (count them)."""
        cells = zip(self.observed, self.predicted, self.train, strict=True)
        return np.stack([score_predictions(name, *cell) for cell in cells])

    def repeats(self) -> Iterator[tuple[int, tuple[FloatArray, FloatArray, Training]]]:
        """Each repeat with all its targets, predictions and training statistics together."""
        for repeat in dict.fromkeys(fold.repeat for fold in self.folds):
            cells = [i for i, fold in enumerate(self.folds) if fold.repeat == repeat]
            observed, predicted = (
                np.concatenate([arrays[i] for i in cells]) for arrays in (self.observed, self.predicted)
            )
            train = pool_training([self.train[i] for i in cells], [len(self.observed[i]) for i in cells])
            yield repeat, (observed, predicted, train)

    def pooled_scores(self, name: str) -> FloatArray:
        """Score the out-of-fold predictions of each repeat together: shape (n_repeats, m)."""
        return np.stack([score_predictions(name, *cell) for _, cell in self.repeats()])


@dataclass(eq=False)
class Outcome:
    """One fold."""

    observed: FloatArray  # (n_test, m)
    train: Training
    scores: FloatArray  # (n_penalties, m): selection score of each penalty
    predicted: FloatArray  # (n_penalties, n_test, m)
    slopes: FloatArray  # (n_penalties, m): of the targets on their inner predictions


MapFolds = Callable[[Callable[[Fold], Outcome], Sequence[Fold]], Iterable[Outcome]]
"""Goes through the folds, in their order; a fold depends on nothing else."""


def nested_cv(
    regression: Regression,
    targets: FloatArray | TargetBuilder,
    folds: Sequence[Fold],
    selection: str = "pooled_pearson",
    map_folds: MapFolds = map,
) -> NestedResult:
    """Predict every test row from the others, the penalty selected by an inner cross-validation per fold and target.

    The first best penalty of the grid is taken. Where the grid goes on and the best lies at its edge, each fold and
    target continues by decades for itself, as far as its own inner folds gain: the choices of others change nothing, so
    the choice stays nested; it is `at_edge` only where even the last decade still gained. The inner folds use the
    targets that were built on the training rows of the outer one, as CBIG does: the test fold informs nothing.

    `targets` (n, m): a row with NaN trains nothing for that target and is predicted in its test fold; or a builder,
    called with the training rows of each fold. `selection`: see `scores.selection_scores`. Source: the paper, Appendix
    "Evaluation protocols". Raises ValueError: the folds are not sound, or the selection score is unknown; Unfit: a
    target has no training rows in some fold.
    """
    folds = tuple(folds)
    check_folds(folds, len(targets(folds[0].train) if callable(targets) else targets) if folds else 0)

    def evaluate(penalties: FloatArray, some: Sequence[Fold]) -> list[Outcome]:
        """Evaluate penalties on folds: together, or one after the other as the regression asks."""
        passes = []
        for few in regression.passes(penalties):
            part = regression.at(few)
            passes.append(
                list(map_folds(partial(_evaluate, part, targets, _prepare_all(part, targets, some), selection), some))
            )
        outcomes, *more = passes
        for name in ("scores", "predicted", "slopes") if more else ():
            for outcome, *rest in zip(outcomes, *more, strict=True):
                setattr(outcome, name, np.concatenate([getattr(result, name) for result in (outcome, *rest)]))
        return outcomes

    grid = regression.penalties
    outcomes = evaluate(grid, folds)
    inner_scores = np.stack([outcome.scores for outcome in outcomes])
    best = np.stack([best_penalty(outcome.scores, grid) for outcome in outcomes])
    chosen, predicted = grid[best], [_take(result.predicted, at) for result, at in zip(outcomes, best, strict=True)]
    slopes = np.stack([_take(result.slopes, at) for result, at in zip(outcomes, best, strict=True)])
    best_scores = np.take_along_axis(inner_scores, best[:, None], axis=1)[:, 0]
    at_edge = (chosen == grid.min()) | (chosen == grid.max())
    notes = list(regression.notes)
    if regression.unit:

        def further(penalty: FloatArray, some: list[int]) -> list[tuple[FloatArray, Outcome]]:
            return [(result.scores[0], result) for result in evaluate(penalty, [folds[i] for i in some])]

        for i, gained, outcome in _go_on(regression, chosen, best_scores, further):
            predicted[i][:, gained], slopes[i, gained] = outcome.predicted[0][:, gained], outcome.slopes[0, gained]
        at_edge = np.isin(chosen, decades(regression.unit, (-LAST_DECADE, LAST_DECADE)))
        if at_edge.any():
            where = f"In {int(at_edge.sum())} of {at_edge.size} fits"
            notes.append(f"{where} the selection score still rose at the last penalty of all.")
    for name, edge in (("smallest", grid.min()), ("largest", grid.max())):
        if (count := int((chosen == edge).sum())) and grid.size > 1 and not regression.unit:
            where = f"was selected in {count} of {chosen.size} fits"
            notes.append(f"The {name} penalty, {edge:g}, {where}: the best may lie outside the grid.")
    if (lacking := np.isnan(inner_scores).all(axis=1)).any():
        where = f"In {int(lacking.sum())} of {lacking.size} fits"
        notes.append(f"{where} no penalty had a score (constant target); the largest was taken.")
    observed, train = tuple(result.observed for result in outcomes), tuple(result.train for result in outcomes)
    results = folds, grid, chosen, inner_scores, best_scores, at_edge, observed, tuple(predicted), train
    return NestedResult(*results, tuple(notes), slopes)


def _go_on(
    regression: Regression,
    chosen: FloatArray,
    scores: FloatArray,
    evaluate: Callable[[FloatArray, list[int]], Sequence[tuple[FloatArray, Any]]],
) -> Iterator[tuple[int, NDArray[np.bool_], Any]]:
    """Go on by decades where the best penalty lies at an edge of the grid, as far as the score gains by `GAIN`.

    The choices and their scores (F, m) are changed in place; yields each fold, which of its targets gained, and what
    `evaluate` said of it beside their scores.
    """
    grid, first = regression.penalties, chosen.copy()
    for edge, beyond in zip((grid.max(), grid.min()), BEYOND, strict=True):
        going = (first == edge) & np.isfinite(scores)
        for decade in beyond:
            some = np.flatnonzero(going.any(axis=1)).tolist()
            if not some:
                break
            penalty = decades(regression.unit, (decade,))
            try:
                tried = evaluate(penalty, some)
            except Unfit:  # the kernel cannot be inverted so far out
                break
            for i, (reached, more) in zip(some, tried, strict=True):
                going[i] &= reached > scores[i] + GAIN
                scores[i, going[i]], chosen[i, going[i]] = reached[going[i]], penalty[0]
                yield i, going[i], more


def _take(values: FloatArray, best: NDArray[np.intp]) -> FloatArray:
    """Of each target (last axis) the entry of its penalty (first axis)."""
    return np.stack([values[at, ..., j] for j, at in enumerate(best)], axis=-1)


Known = tuple[FloatArray, Sides]
"""Targets as columns (n, m), NaN where missing, and their right-hand sides."""


def _as_columns(targets: FloatArray) -> FloatArray:
    values = np.asarray(targets, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or np.isinf(values).any():
        raise ValueError("Targets must be finite numbers (or NaN where missing), one column per target.")
    return values


def _prepare_all(part: Regression, targets: FloatArray | TargetBuilder, folds: Sequence[Fold]) -> dict[bytes, Known]:
    """Prepare the targets of all training sets at once, an inverse being read once for all; none if they are many."""
    sets = {fold.train.tobytes(): fold.train for fold in folds}
    if not callable(targets):
        values = _as_columns(targets)
        return dict.fromkeys(sets, (values, part.prepare(np.nan_to_num(values))))
    first = _as_columns(targets(folds[0].train))
    if first.size * len(sets) > TOGETHER:
        return {}
    built, m = [_as_columns(targets(train)) for train in sets.values()], first.shape[1]
    sides = part.prepare(np.nan_to_num(np.hstack(built)))
    return {key: (built[i], sides.columns(slice(i * m, (i + 1) * m))) for i, key in enumerate(sets)}


def _evaluate(
    part: Regression, targets: FloatArray | TargetBuilder, prepared: dict[bytes, Known], selection: str, fold: Fold
) -> Outcome:
    if known := prepared.get(fold.train.tobytes()):
        values, sides = known
    else:
        values = _as_columns(targets(fold.train))  # type: ignore[operator]
        sides = part.prepare(np.nan_to_num(values))
    m, n_penalties = values.shape[1], part.penalties.size
    outcome = Outcome(
        observed=values[fold.test],
        train=Training(np.empty(m), np.empty(m)),
        scores=np.empty((n_penalties, m)),
        predicted=np.empty((n_penalties, fold.test.size, m)),
        slopes=np.empty((n_penalties, m)),
    )
    for columns, split in _splits(fold, values):
        block = sides.columns(columns)
        test, validation = part.predict(split, block)
        observed = [block.values[rows] for rows in split.inner]
        train = None
        if selection.partition("_")[2] in NEEDS_TRAINING:
            rest = [np.concatenate([*split.inner[:v], *split.inner[v + 1 :]]) for v in range(len(split.inner))]
            train = [Training.of(block.values[rows]) for rows in rest]
        outcome.scores[:, columns] = selection_scores(selection, observed, validation, train)
        outcome.predicted[:, :, columns] = test
        both, size = np.zeros((2, n_penalties, block.values.shape[1]))
        for truth, guess in zip(observed, validation, strict=True):  # each inner fold about its own means
            about, beside = truth - truth.mean(axis=0), guess - guess.mean(axis=1, keepdims=True)
            both, size = both + (about * beside).sum(axis=1), size + (beside * beside).sum(axis=1)
        outcome.slopes[:, columns] = np.divide(both, size, out=np.zeros_like(both), where=size > 0)
        outcome.train.mean[columns], outcome.train.std[columns] = Training.of(block.values[split.train])
    return outcome


def _splits(fold: Fold, values: FloatArray) -> Iterator[tuple[slice | NDArray[np.bool_], Split]]:
    """Group the targets (n, m) by the training rows in which they are missing."""

    def others(train: Rows) -> Rows:
        rest = np.ones(len(values), dtype=bool)
        rest[np.concatenate([train, fold.test])] = False
        return np.flatnonzero(rest)

    missing = np.isnan(values[fold.train])
    if not missing.any():
        yield slice(None), Split(fold.test, fold.train, fold.inner, others(fold.train))
        return
    patterns, members = np.unique(missing, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        columns, train = members.ravel() == number, fold.train[~pattern]
        inner = tuple(rows for rows in (rows[np.isin(rows, train)] for rows in fold.inner) if rows.size)
        if len(inner) < 2:
            raise Unfit(
                f"Target {np.flatnonzero(columns)[0]} is known for only {train.size} training rows of repeat "
                f"{fold.repeat}, fold {fold.fold}: too few for an inner cross-validation."
            )
        yield columns, Split(fold.test, train, inner, others(train))


MERGED = ("folds", "chosen", "inner_scores", "best_scores", "at_edge", "observed", "predicted", "train")


def merge_folds(results: Sequence[NestedResult]) -> NestedResult:
    """Put the results of several sets of folds together, in the order of repeats and folds."""
    folds = [fold for result in results for fold in result.folds]
    order = sorted(range(len(folds)), key=lambda i: (folds[i].repeat, folds[i].fold))
    merged: dict[str, Any] = {}
    for name in MERGED:
        parts = [part for result in results for part in getattr(result, name)]
        ordered = tuple(parts[i] for i in order)
        merged[name] = np.array(ordered) if isinstance(getattr(results[0], name), np.ndarray) else ordered
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    return replace(results[0], **merged, notes=notes, slopes=np.empty(0))


def merge_targets(results: Sequence[NestedResult]) -> NestedResult:
    """Put the results of single targets on the same folds side by side."""
    merged: dict[str, Any] = {}
    for name in MERGED[1:-1]:
        parts = zip(*(getattr(result, name) for result in results), strict=True)
        joined = tuple(np.concatenate(values, axis=-1) for values in parts)
        merged[name] = np.array(joined) if isinstance(getattr(results[0], name), np.ndarray) else joined
    train = tuple(
        Training(*(np.concatenate(values) for values in zip(*parts, strict=True)))
        for parts in zip(*(result.train for result in results), strict=True)
    )
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    return replace(results[0], **merged, train=train, notes=notes, slopes=np.empty(0))


def score_penalties(
    regression: Regression, penalties: FloatArray, targets: FloatArray, validation: Sequence[Rows], selection: str
) -> FloatArray:
    """Score penalties on folds that are each predicted from the rows of all others: (n_penalties, m), more is better.

    `targets` (n, m): known for all rows of the folds; the values of other rows take no part. `validation`: the rows of
    each fold. `selection`: see `scores.selection_scores`. NaN where a score is not defined.
    """
    everyone = np.concatenate(validation)
    others = np.setdiff1d(np.arange(len(targets)), everyone)
    splits = [Split(test, np.setdiff1d(everyone, test), (), others) for test in validation]
    train = [Training.of(targets[split.train]) for split in splits]
    scores = []
    for some in regression.passes(penalties):
        part = regression.at(some)
        sides = part.prepare(np.nan_to_num(targets))
        predicted = [part.predict(split, sides)[0] for split in splits]
        scores.append(selection_scores(selection, [targets[test] for test in validation], predicted, train))
    return np.concatenate(scores)


def select_penalties(
    regression: Regression, targets: FloatArray, validation: Sequence[Rows], selection: str
) -> tuple[FloatArray, FloatArray]:
    """Choose a penalty for each target, and its selection score, (m,) each; parameters as in `score_penalties`.

    A grid that goes on does so as in `nested_cv`: on the training rows of a fold of a nested cross-validation this is
    the penalty that it selects there.
    """
    base = regression.penalties
    grid = score_penalties(regression, base, targets, validation, selection)
    best = best_penalty(grid, base)[None]
    chosen, scores = base[best], np.take_along_axis(grid, best, axis=0)

    def further(penalty: FloatArray, some: list[int]) -> list[tuple[FloatArray, None]]:
        return [(score_penalties(regression, penalty, targets, validation, selection)[0], None)]

    for _ in _go_on(regression, chosen, scores, further) if regression.unit else ():
        pass
    return chosen[0], scores[0]
