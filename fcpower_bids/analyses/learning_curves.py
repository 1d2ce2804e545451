"""Prediction and identification against the number of people and against the minutes scanned, alone and together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fcpower_bids.analyses.comparisons import compare_representations
from fcpower_bids.analyses.cross_validation import SCORE_COLUMNS, fold_rows, make_solver
from fcpower_bids.analyses.identification_curves import IdentificationCurves, can_identify
from fcpower_bids.analyses.learning_columns import (
    CELL_COLUMNS,
    CURVE_COLUMNS,
    GAIN_COLUMNS,
    LAW_CAVEATS,
    LAW_COLUMNS,
    SIZE_FACTS,
)
from fcpower_bids.analyses.progress import track
from fcpower_bids.analyses.protocol import Study, open_study
from fcpower_bids.analyses.representations import build_representations
from fcpower_bids.analyses.shorter_scans import ScanLength, choose_minutes, length_facts, shorten_scans
from fcpower_bids.analyses.training_sizes import build_targets_once, choose_sizes, cross_validate_smaller, shrink_folds
from fcpower_bids.core.scaling_law import fit_scaling_law
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Settings

Rows = list[dict[str, Any]]


def analyse_learning_curves(
    cohort: Cohort, settings: Settings, minutes: Sequence[float] = (), sizes: Sequence[int] = ()
) -> dict[str, Table]:
    """Repeat prediction and identification with fewer people and with shorter scans.

    Source: the paper, Figures "curves" and "duration", Tables "gridfull", "grid8m", "gridfp".

    Parameters
    ----------
    cohort : Cohort
        With series for shorter scans, phenotypes for prediction, two sessions for identification.
    settings : Settings
        Representations, targets, preset, kernel, seed; ``scan_minutes`` and ``sample_sizes``.
    minutes : sequence of float
        Scan lengths besides the full one, in the place of ``scan_minutes``; by default doubling from 1.2 minutes.
    sizes : sequence of int
        Numbers of training people, and of people to identify, besides all, in the place of ``sample_sizes``.

    Returns
    -------
    dict of str to Table
        ``learning_curves`` (one row per target, representation, size, length and fold), ``learning_gains`` (paired
        differences per cell), ``scaling_law``; ``identification_curves`` (one row per subset of people) and
        ``identification_gains``. What the cohort does not allow is left out.

    Raises
    ------
    ValueError
        A length or size that is not possible, or a cohort without phenotypes and without repeated sessions.
    """
    sizes = sizes or settings.sample_sizes
    lengths = choose_minutes(cohort, minutes or settings.scan_minutes)
    study = open_study(cohort, settings) if len(cohort.phenotypes.columns) else None
    curves = PredictionCurves(study, sizes) if study else None
    identification = IdentificationCurves(cohort, settings, sizes) if can_identify(cohort) else None
    if curves is None and identification is None:
        raise ValueError("Learning curves need phenotypes to predict, or two people with two sessions to identify.")
    notes: list[str] = []
    for length in shorten_scans(cohort, lengths, settings, notes):
        if curves:
            curves.add(length)
        if identification:
            identification.add(length)
    facts = length_facts(cohort, lengths) | ({"Notes": list(dict.fromkeys(notes))} if notes else {})
    return (curves.tables(facts) if curves else {}) | (identification.tables(facts) if identification else {})


class PredictionCurves:
    """Collects the scores of every scan length, one kernel each, for all numbers of training people.

    Parameters
    ----------
    study : Study
        Of the full scans: its people, targets and folds hold for every length.
    sizes : sequence of int
        Training people, besides all.
    """

    def __init__(self, study: Study, sizes: Sequence[int] = ()) -> None:
        self.study = study
        self.sizes = choose_sizes(study.folds, sizes)
        self.studies = {
            size: dataclasses.replace(study, folds=shrink_folds(study.folds, size, study.settings.random_seed))
            for size in self.sizes
        }
        self.targets = {size: build_targets_once(own) for size, own in self.studies.items()}
        self._rows: Rows = []
        self._gains: list[pd.DataFrame] = []

    def add(self, length: ScanLength) -> None:
        """Score all representations at one scan length."""
        rows: dict[int, Rows] = {size: [] for size in self.sizes}
        scans, settings = self.study.people.scans, self.study.settings
        for representation in build_representations(length.cohort, scans, length.names, settings):
            solver = make_solver(representation, self.study.preset)
            kernel = representation.similarity() if representation.kernel == "correlation" else None
            label = f"{representation.name}, {length.minutes:.3g} min"
            for size in track(self.sizes, f"learning curve of {label}", settings):
                result = cross_validate_smaller(solver, kernel, self.targets[size], self.studies[size])
                rows[size] += fold_rows(self.studies[size], representation.name, result)
        for size in self.sizes:
            cell: dict[str, Any] = {"n_people": size, "minutes": length.minutes, "part": length.part}
            self._rows += [cell | row for row in rows[size]]
            self._gains.append(self._compare(pd.DataFrame(rows[size]), size).assign(**cell))

    def _compare(self, frame: pd.DataFrame, size: int) -> pd.DataFrame:
        """Paired differences of one cell, with their spread over folds."""
        gains, _ = compare_representations(frame, self.studies[size])
        spread = []
        for pair in gains.itertuples():
            own = frame[frame["target"] == pair.target].pivot_table(
                pair.score, ["repeat", "fold"], "representation", dropna=False
            )
            difference = own[pair.representation] - own[pair.reference]
            spread.append((float(difference.std()), int((difference > 0).sum())))
        gains[["sd_difference", "folds_won"]] = pd.DataFrame(spread, index=gains.index, columns=["sd", "won"])
        return gains

    def tables(self, facts: dict[str, Any]) -> dict[str, Table]:
        """Return the three tables of prediction."""
        frame = pd.DataFrame(self._rows)[list(CURVE_COLUMNS | SCORE_COLUMNS)]
        gains = pd.concat(self._gains, ignore_index=True)[list(GAIN_COLUMNS)]
        laws, law_notes = fit_laws(frame, self.study)
        about = self.study.facts() | SIZE_FACTS | facts | {"TrainingPeople": list(self.sizes)}
        return {
            "learning_curves": Table(frame, CURVE_COLUMNS | SCORE_COLUMNS, about),
            "learning_gains": Table(gains, GAIN_COLUMNS, about),
            "scaling_law": Table(laws, LAW_COLUMNS, about | {"Caveats": LAW_CAVEATS} | law_notes),
        }


def fit_laws(frame: pd.DataFrame, study: Study) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Fit the scaling law to the mean correlation of the cells of every continuous target and representation.

    Parameters
    ----------
    frame : pandas.DataFrame
        Table ``learning_curves``.
    study : Study

    Returns
    -------
    pandas.DataFrame
        `LAW_COLUMNS`; no row where the law cannot be fitted.
    dict
        Why it could not.
    """
    rows, refused = [], {}
    for target in (each.name for each in study.targets if not each.is_binary):
        for name, own in frame[frame["target"] == target].groupby("representation", sort=False):
            cells = own.groupby(list(CELL_COLUMNS), sort=False)[["r", "n_train"]].mean().reset_index()
            try:
                law = fit_scaling_law(cells["r"], cells["n_train"], cells["minutes"])
            except ValueError as error:
                refused[f"{target}, {name}"] = str(error)
                continue
            rows.append({"target": target, "representation": name, **dataclasses.asdict(law)})
    return pd.DataFrame(rows, columns=list(LAW_COLUMNS)), {"NotFitted": refused} if refused else {}
