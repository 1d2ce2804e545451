"""Identification against the number of people and the minutes scanned: the same subsets of people everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.protocol import plan_scan_blocks
from fcpower_bids.analyses.engine.representations import build_representations, expand_names, scans_without_features
from fcpower_bids.analyses.engine.scan_parts import ScanLength
from fcpower_bids.analyses.identification.fingerprinting import repeated_scans
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.inference.differences import subject_bootstrap
from fcpower_bids.core.inference.identification import Identification, identify, units_of
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Analysis

SIZES = (10, 25, 50, 100, 150, 200, 250, 300, 500, 1000, 2000, 5000)
"""People to identify, as far as there are."""

DRAWS = 20
"""Subsets of each size (the paper's Table "gridfp")."""

STREAM = 21
"""Last part of the seed of the subsets."""


CELL = ("n_people", "minutes", "part")
IDENTIFICATION_CURVES = TABLES["identification_curves"]
IDENTIFICATION_GAINS = TABLES["identification_gains"]
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


class IdentificationCurves:
    """Collects the accuracy of every scan length, one similarity matrix each, for all numbers of people."""

    def __init__(self, cohort: Cohort, settings: Analysis, sizes: Sequence[int] = ()) -> None:
        usable = ~scans_without_features(cohort, expand_names(cohort, settings))
        self.scans, self.settings = repeated_scans(cohort, usable), settings
        self.persons, self.sessions = (
            cohort.scans[key].astype(str).to_numpy()[self.scans] for key in ("participant_id", "session")
        )
        self.families = plan_scan_blocks(cohort, self.persons.tolist(), settings).families
        everyone = np.unique(self.persons)
        self.subsets = {
            size: _draw(everyone, size, settings.random_seed)
            for size in sorted({size for size in sizes or SIZES if 2 <= size < len(everyone)})
        }
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
                | compare_draws(by_name[later], by_name[earlier], self.settings.random_seed, self.families)
                for earlier, later in combinations(by_name, 2)
            ]

    def _identify(self, similarity: FloatArray, people: NDArray[Any]) -> Identification:
        kept = np.flatnonzero(np.isin(self.persons, people))
        return identify(similarity[np.ix_(kept, kept)], self.persons[kept], self.sessions[kept])

    def tables(self, facts: dict[str, Any]) -> dict[str, Table]:
        """Return the two tables of identification."""
        about = IDENTIFICATION_CURVE_FACTS | facts | {"NumberOfPeople": max(self.subsets), "Draws": DRAWS}
        about["Alpha"] = self.settings.alpha
        rows = pd.DataFrame(self._rows, columns=list(IDENTIFICATION_CURVES.columns))
        gains = pd.DataFrame(self._gains, columns=list(IDENTIFICATION_GAINS.columns))
        return {
            IDENTIFICATION_CURVES.name: Table(rows, IDENTIFICATION_CURVES, about),
            IDENTIFICATION_GAINS.name: Table(gains, IDENTIFICATION_GAINS, about),
        }


def compare_draws(
    first: Sequence[Identification],
    second: Sequence[Identification],
    seed: int,
    families: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Compare two representations on the same subsets of people, with people, or families, as the unit."""
    differences = [one.credit - two.credit for one, two in zip(first, second, strict=True)]
    by_draw = np.array([each.mean() for each in differences])
    people = np.concatenate([one.person for one in first])
    names, numbers = np.unique(people, return_inverse=True)
    mean = np.bincount(numbers, np.concatenate(differences)) / np.bincount(numbers)
    spread = subject_bootstrap(mean, units_of(names, families), seed=seed)
    return {
        "mean_difference": float(by_draw.mean()),
        "sd_difference": float(by_draw.std(ddof=1)) if len(by_draw) > 1 else np.nan,
        "ci_low": float(spread.low),
        "ci_high": float(spread.high),
        "p_greater": float((1 + (spread.draws <= 0).sum()) / (1 + len(spread.draws))),
        "n_draws": len({frozenset(one.person.tolist()) for one in first}),
    }


def _draw(everyone: NDArray[Any], size: int, seed: int) -> list[NDArray[Any]]:
    """Subsets of one size."""
    orders = (np.random.default_rng((seed, draw, STREAM)) for draw in range(DRAWS))
    return [rng.permutation(everyone)[:size] for rng in orders]
