"""Fewer training people in the same outer folds: nested subsets of each training set, tested on the same people."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.cross_validation import run_nested_cv
from fcpower_bids.analyses.protocol import Study
from fcpower_bids.analyses.targets import join_target_builders
from fcpower_bids.core.folds import Fold, Rows
from fcpower_bids.core.nested import NestedResult
from fcpower_bids.core.ridge import Solver
from fcpower_bids.core.ridge_subset import SubsetSolver
from fcpower_bids.core.targets import TargetBuilder

FloatArray = NDArray[np.float64]

SIZES = (25, 50, 100, 150, 250, 350, 500, 700, 1000, 1500, 2000, 3500, 5000, 7500, 10000, 20000)
"""Training people, as far as the smallest training set goes."""

WORTH_A_BLOCK = 0.55
"""Share of the people who train, up to which decomposing their block of the kernel in every fold is cheaper."""

STREAM = 20
"""Last part of the seed of a fold's order of people, which no other random stream of the folds has."""


def choose_sizes(folds: Sequence[Fold], asked: Sequence[int] = ()) -> tuple[int, ...]:
    """Numbers of training people: those asked for, else `SIZES`, and at last all, called by the largest training set.

    Raises
    ------
    ValueError
        A number is larger than a training set, or smaller than two people per inner fold.
    """
    sets = [fold.train.size for fold in folds]
    smallest, largest = min(sets), max(sets)
    least = 2 * max(len(fold.inner) for fold in folds)
    for size in asked:
        if not least <= size <= smallest:
            raise ValueError(
                f"{size} training people are not possible: the smallest training set has {smallest}, and the inner "
                f"folds need {least}."
            )
    if smallest < least:
        raise ValueError(
            f"The folds train on {smallest} people, which is fewer than two per inner fold ({least}); use fewer folds."
        )
    chosen = asked or [size for size in SIZES if least <= size < smallest]
    return tuple(sorted({*chosen, largest}))


def shrink_folds(folds: Sequence[Fold], size: int, seed: int) -> tuple[Fold, ...]:
    """Keep some of the training people of every fold, and all of its test people.

    Each fold has one random order of its training people, drawn from ``(seed, repeat, fold)``; the first `size` train.
    A larger size therefore adds people to a smaller one. Families stay whole in the inner loop.
    """
    return tuple(_shrink(fold, size, seed) for fold in folds)


def _shrink(fold: Fold, size: int, seed: int) -> Fold:
    if size >= fold.train.size:
        return fold
    # Drawn inner fold by inner fold in turn, so that no inner fold runs empty.
    rng = np.random.default_rng((seed, fold.repeat, fold.fold + 1, STREAM))
    turns = np.concatenate([np.arange(rows.size) for rows in fold.inner])
    orders = np.concatenate([rng.permutation(rows) for rows in fold.inner])
    ties = rng.permutation(turns.size)
    kept = np.sort(orders[np.lexsort((ties, turns))][:size])
    inner = tuple(rows[np.isin(rows, kept)] for rows in fold.inner)
    return dataclasses.replace(fold, train=kept, inner=tuple(rows for rows in inner if rows.size))


def build_targets_once(study: Study) -> FloatArray | TargetBuilder:
    """Targets of a study, built once per training set however many representations are fitted to them."""
    targets = join_target_builders(study.targets, study.people.covariates)
    if not callable(targets):
        return targets
    build = targets
    known: dict[bytes, FloatArray] = {}

    def remember(train: Rows) -> FloatArray:
        key = train.tobytes()
        if key not in known:
            known[key] = build(train)
        return known[key]

    return remember


def cross_validate_smaller(
    solver: Solver, kernel: FloatArray | None, targets: FloatArray | TargetBuilder, study: Study
) -> NestedResult:
    """Predict all targets of a study whose folds train on some of the people.

    Parameters
    ----------
    solver : Solver
        Of all people.
    kernel : ndarray, shape (n, n), or None
        What `solver` was factorised from. Where few people train, decomposing their block of it in every
        fold is cheaper than leaving the others out of the large inverse; the predictions are the same.
    targets : ndarray or TargetBuilder
        Of `build_targets_once`.
    study : Study
        With the folds of `shrink_folds`.
    """
    size = max(fold.train.size for fold in study.folds)
    if kernel is not None and size <= WORTH_A_BLOCK * len(kernel):
        solver = SubsetSolver(kernel, solver.penalties, study.preset.intercept, solver.notes)
    return run_nested_cv(solver, targets, study.folds, study.preset)
