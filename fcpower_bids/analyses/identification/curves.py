"""Identification against the number of people and the minutes scanned: the same subsets of people everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.comparisons import COMPARISON_COLUMNS
from fcpower_bids.analyses.engine.representations import build_representations, expand_names, scans_without_features
from fcpower_bids.analyses.engine.scan_parts import ScanLength
from fcpower_bids.analyses.identification.fingerprinting import repeated_scans
from fcpower_bids.core.inference.differences import subject_bootstrap
from fcpower_bids.core.inference.identification import Identification, identify
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Settings

FloatArray = NDArray[np.float64]

SIZES = (10, 25, 50, 100, 150, 200, 250, 300, 500, 1000, 2000, 5000)
"""People to identify, as far as there are."""

DRAWS = 20
"""Subsets of each size (the paper's Table "gridfp")."""

STREAM = 21
"""Last part of the seed of the subsets."""


def can_identify(cohort: Cohort) -> bool:
    """Whether two people or more have two sessions each."""
    sessions = cohort.scans.astype({"participant_id": str}).groupby("participant_id")["session"].nunique()
    return bool((sessions > 1).sum() > 1)


class IdentificationCurves:
    """Collects the accuracy of every scan length, one similarity matrix each, for all numbers of people.

    Parameters
    ----------
    cohort : Cohort
        Of the full scans.
    settings : Settings
        Representations and seed.
    sizes : sequence of int
        People, besides all; by default `SIZES`. Those that are more than there are, are left out.
    """

    def __init__(self, cohort: Cohort, settings: Settings, sizes: Sequence[int] = ()) -> None:
        usable = ~scans_without_features(cohort, expand_names(cohort, settings))
        self.scans, self.settings = repeated_scans(cohort, usable), settings
        self.persons, self.sessions = (
            cohort.scans[key].astype(str).to_numpy()[self.scans] for key in ("participant_id", "session")
        )
        everyone = np.unique(self.persons)
        self.subsets = {size: _draw(everyone, size, settings.random_seed) for size in _fit(sizes, len(everyone))}
        self.subsets[len(everyone)] = [everyone]
        self._rows: list[dict[str, Any]] = []
        self._gains: list[dict[str, Any]] = []

    def add(self, length: ScanLength) -> None:
        """Identify with all representations at one scan length."""
        found: dict[int, dict[str, list[Identification]]] = {size: {} for size in self.subsets}
        groups = [np.array([row]) for row in self.scans]
        for representation in build_representations(length.cohort, groups, length.names, self.settings):
            similarity = representation.similarity()
            for size, subsets in self.subsets.items():
                found[size][representation.name] = [self._identify(similarity, people) for people in subsets]
        for size, by_name in found.items():
            cell = {"n_people": size, "minutes": length.minutes, "part": length.part}
            self._rows += [
                {"representation": name, **cell, "draw": draw, "accuracy": each.accuracy, "chance": each.chance}
                for name, draws in by_name.items()
                for draw, each in enumerate(draws)
            ]
            self._gains += [
                {**cell, "representation": later, "reference": earlier}
                | compare_draws(by_name[later], by_name[earlier], self.settings.random_seed)
                for earlier, later in combinations(by_name, 2)
            ]

    def _identify(self, similarity: FloatArray, people: NDArray[Any]) -> Identification:
        kept = np.flatnonzero(np.isin(self.persons, people))
        return identify(similarity[np.ix_(kept, kept)], self.persons[kept], self.sessions[kept])

    def tables(self, facts: dict[str, Any]) -> dict[str, Table]:
        """Return the two tables of identification."""
        about = IDENTIFICATION_CURVE_FACTS | facts | {"NumberOfPeople": max(self.subsets), "Draws": DRAWS}
        about["Alpha"] = self.settings.exponent
        rows = pd.DataFrame(self._rows, columns=list(IDENTIFICATION_CURVE_COLUMNS))
        gains = pd.DataFrame(self._gains, columns=list(IDENTIFICATION_GAIN_COLUMNS))
        return {
            "identification_curves": Table(rows, IDENTIFICATION_CURVE_COLUMNS, about),
            "identification_gains": Table(gains, IDENTIFICATION_GAIN_COLUMNS, about),
        }


def compare_draws(first: Sequence[Identification], second: Sequence[Identification], seed: int) -> dict[str, Any]:
    """Compare two representations on the same subsets of people, with people as the unit.

    Parameters
    ----------
    first, second : sequence of Identification
        One per subset; the searches are in the same order.
    seed : int
        Seed of the resampling of people.
    """
    differences = [one.credit - two.credit for one, two in zip(first, second, strict=True)]
    by_draw = np.array([each.mean() for each in differences])
    people = np.concatenate([one.person for one in first])
    names, numbers = np.unique(people, return_inverse=True)
    mean = np.bincount(numbers, np.concatenate(differences)) / np.bincount(numbers)
    spread = subject_bootstrap(mean, names, seed=seed)
    return {
        "mean_difference": float(by_draw.mean()),
        "sd_difference": float(by_draw.std(ddof=1)) if len(by_draw) > 1 else np.nan,
        "ci_low": float(spread.low),
        "ci_high": float(spread.high),
        "p_greater": float((1 + (spread.draws <= 0).sum()) / (1 + len(spread.draws))),
        "n_draws": len({frozenset(one.person.tolist()) for one in first}),
    }


def _fit(sizes: Sequence[int], n_people: int) -> list[int]:
    return sorted({size for size in (sizes or SIZES) if 2 <= size < n_people})


def _draw(everyone: NDArray[Any], size: int, seed: int) -> list[NDArray[Any]]:
    """Subsets of one size."""
    orders = (np.random.default_rng((seed, draw, STREAM)) for draw in range(DRAWS))
    return [rng.permutation(everyone)[:size] for rng in orders]


CELL_COLUMNS = {
    "n_people": "Training people of each fold, before those without the target are left out",
    "minutes": "Cleaned minutes from the start of each scan; for full scans their median",
    "part": "first: the first minutes; full: all of each scan",
}
CURVE_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "What predicts it",
    **CELL_COLUMNS,
    "repeat": "Repetition of the cross-validation, from 0",
    "fold": "Fold of the repetition, from 0",
    "n_train": "People who train, with a known target",
    "n_test": "People who are tested, with a known target; the same for every cell",
    "penalty": "Ridge penalty that the inner folds selected",
    "at_grid_edge": "Whether that is the smallest or the largest of the grid",
}
GAIN_COLUMNS = {
    "target": COMPARISON_COLUMNS["target"],
    **CELL_COLUMNS,
    **{name: text for name, text in COMPARISON_COLUMNS.items() if name != "target"},
    "sd_difference": "Standard deviation of the paired differences over folds",
    "folds_won": "Folds in which the representation is better than the reference",
}
LAW_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "What predicts it",
    "w0": "Correlation at infinitely many people and minutes",
    "w1": "Training people that halve the squared correlation even with endless scans",
    "w2": "The same in people times minutes",
    "se_w0": "Standard error of w0, see Caveats; n/a where a parameter is at its limit",
    "se_w1": "Standard error of w1, see Caveats",
    "se_w2": "Standard error of w2, see Caveats",
    "rmse": "Root mean squared difference between law and mean correlations of the cells",
    "at_bound": "Whether a parameter lies at the limit of its range, so that the data do not determine it",
    "n_cells": "Cells that entered",
}
LAW_CAVEATS = [
    "r = w0 / sqrt(1 + w1/N + w2/(N T)), N training people, T minutes (Ooi et al. 2025, "
    "doi:10.1038/s41586-025-09250-1), by least squares on the mean per-fold correlation of each cell.",
    "The cells share people and folds, so they are not independent: the standard errors are too small.",
    "Beyond the largest N and T of the table the law is an extrapolation.",
    "Minutes from the start of a scan differ from minutes over several days, and people here are of one study.",
    "Where at_bound is true, or w1 and w2 have large errors, the grid does not tell people from minutes.",
]
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
IDENTIFICATION_CURVE_COLUMNS = {
    "representation": "What identifies",
    "n_people": "People of the subset",
    "minutes": CELL_COLUMNS["minutes"],
    "part": CELL_COLUMNS["part"],
    "draw": "Random subset of people, from 0; the same for every representation and length",
    "accuracy": "Share of the searches that find the own person among the people of the subset",
    "chance": "Expected accuracy of guessing",
}
IDENTIFICATION_GAIN_COLUMNS = {
    "n_people": "People of each subset",
    "minutes": CELL_COLUMNS["minutes"],
    "part": CELL_COLUMNS["part"],
    "representation": "The one whose accuracy comes first in the difference",
    "reference": "The one whose accuracy is subtracted",
    "mean_difference": "Mean difference of accuracy over the subsets",
    "sd_difference": "Standard deviation over the subsets, which share people",
    "ci_low": "Lower 95 % limit over resampled people",
    "ci_high": "Upper 95 % limit over resampled people",
    "p_greater": "p of the representation being better, over resampled people",
    "n_draws": "Distinct subsets of people",
}
IDENTIFICATION_CURVE_FACTS = {
    "Rule": (
        "Every scan looks for the most similar scan (Pearson correlation of the features) of the other session among "
        "the people of the subset who have both. Subsets are drawn from the seed; all people are one subset."
    ),
    "GainRule": (
        "People are the unit: the difference of each person's searches is averaged over the subsets that hold them, "
        "and people are resampled; p_greater = (1 + resamples of at most 0) / (1 + resamples). A t-test over subsets "
        "that share people, as in the paper, takes the same people for new evidence."
    ),
}
