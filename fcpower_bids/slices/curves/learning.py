"""Prediction from fewer people and shorter scans."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.cross_validation import make_solver, regress_on_blocks, run_nested_cv
from fcpower_bids.analyses.engine.entries import Entries
from fcpower_bids.analyses.engine.representations import build_representations
from fcpower_bids.analyses.engine.scan_parts import (
    ScanLength,
    choose_minutes,
    length_facts,
    shorten_scans,
)
from fcpower_bids.analyses.engine.study import Study, open_study
from fcpower_bids.analyses.identification.scan_lengths import can_identify
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Analysis
from fcpower_bids.slices.curves.identification import (
    IdentificationCurves,
)

CURVES = TABLES["learning_curves"]
GAINS = TABLES["learning_gains"]
SIZE_FACTS = {
    "SizeRule": (
        "Training people are left out inside the outer folds, the test people stay the same in every cell; the first n "
        "of one random order per fold train, drawn from the seed, the repeat and the fold, so sizes are nested. The "
        "paper's grids instead draw a subsample and cross-validate within it, which also shrinks the test sets."
    ),
    "GainRule": (
        "Corrected resampled t-test on per-fold scores with n_test/n_train of the cell: few training people and large "
        "test sets make it conservative. p_greater is one-sided; cells are not corrected for each other."
    ),
}


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse lengths and sizes that are not possible."""
    choose_minutes(cohort, settings.scan_minutes)
    if len(cohort.phenotypes.columns):
        choose_sizes(open_study(cohort, settings).folds, settings.sample_sizes)


def analyse_learning_curves(
    cohort: Cohort, settings: Analysis, minutes: Sequence[float] = (), sizes: Sequence[int] = ()
) -> dict[str, Table]:
    """Repeat prediction and identification with fewer people and with shorter scans.

    Source: the paper, Figures "curves" and "duration", Tables "gridfull", "grid8m", "gridfp". Raises Unfit.
    """
    sizes = sizes or settings.sample_sizes
    lengths = choose_minutes(cohort, minutes or settings.scan_minutes)
    study = open_study(cohort, settings) if len(cohort.phenotypes.columns) else None
    curves = PredictionCurves(study, sizes) if study else None
    identification = IdentificationCurves(cohort, settings, sizes) if can_identify(cohort) else None
    if curves is None and identification is None:
        raise Unfit("Learning curves need phenotypes to predict, or two people with two sessions to identify.")
    notes: list[str] = []
    for length in shorten_scans(cohort, lengths, settings, notes):
        if curves:
            curves.add(length)
        if identification:
            identification.add(length)
    facts = length_facts(cohort, lengths) | ({"Notes": list(dict.fromkeys(notes))} if notes else {})
    return (curves.tables(facts) if curves else {}) | (identification.tables(facts) if identification else {})


class PredictionCurves:
    """Collects the scores of every scan length, one kernel each, for all numbers of training people."""

    def __init__(self, study: Study, sizes: Sequence[int] = ()) -> None:
        self.study = study
        self.sizes = choose_sizes(study.folds, sizes)
        self.studies = {
            size: study.on_folds(shrink_folds(study.folds, size, study.settings.random_seed)) for size in self.sizes
        }
        self._folds: list[pd.DataFrame] = []
        self._gains: list[pd.DataFrame] = []

    def add(self, length: ScanLength) -> None:
        """Score all representations at one scan length."""
        entries = {size: Entries(study) for size, study in self.studies.items()}
        scans, settings = self.study.people.scans, self.study.settings
        for representation in build_representations(length.cohort, scans, length.names, settings):
            solver = make_solver(representation, self.study.preset)
            kernel = representation.similarity() if representation.kernel == "correlation" else None
            label = f"{representation.name}, {length.minutes:.3g} min"
            for size in track(self.sizes, f"learning curve of {label}", settings):
                result = cross_validate_smaller(solver, kernel, self.studies[size])
                entries[size].add(representation.name, result)
        for size, own in entries.items():
            cell: dict[str, Any] = {"n_people": size, "minutes": length.minutes, "part": length.part}
            self._folds.append(own.folds().assign(**cell))
            self._gains.append(own.compare().assign(**cell))

    def tables(self, facts: dict[str, Any]) -> dict[str, Table]:
        """Return the two tables of prediction."""
        frame = pd.concat(self._folds, ignore_index=True)[list(CURVES.columns)]
        gains = pd.concat(self._gains, ignore_index=True)[list(GAINS.columns)]
        about = self.study.facts() | SIZE_FACTS | facts | {"TrainingPeople": list(self.sizes)}
        return {CURVES.name: Table(frame, CURVES, about), GAINS.name: Table(gains, GAINS, about)}


SIZES = (25, 50, 100, 150, 250, 350, 500, 700, 1000, 1500, 2000, 3500, 5000, 7500, 10000, 20000)
"""Training people, as far as the smallest training set goes."""

WORTH_A_BLOCK = 0.55
"""Share of the people who train, up to which decomposing their block of the kernel in every fold is cheaper."""

STREAM = 20
"""Last part of the seed of a fold's order of people, which no other random stream of the folds has."""


def choose_sizes(folds: Sequence[Fold], asked: Sequence[int] = ()) -> tuple[int, ...]:
    """Numbers of training people: those asked for, else `SIZES`, and at last all, called by the largest training set.

    Raises Unfit.
    """
    sets = [fold.train.size for fold in folds]
    smallest, largest = min(sets), max(sets)
    least = 2 * max(len(fold.inner) for fold in folds)
    for size in asked:
        if not least <= size <= smallest:
            raise Unfit(
                f"{size} training people are not possible: the smallest training set has {smallest}, and the inner "
                f"folds need {least}."
            )
    if smallest < least:
        raise Unfit(
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


def cross_validate_smaller(solver: Solver, kernel: FloatArray | None, study: Study) -> NestedResult:
    """Predict all targets of a study whose folds train on some of the people. Shapes and units: kernel (n, n)."""
    size = max(fold.train.size for fold in study.folds)
    if kernel is not None and size <= WORTH_A_BLOCK * len(kernel):
        solver = regress_on_blocks(solver, kernel, study.preset)
    return run_nested_cv(solver, study.columns, study.folds, study.preset)
