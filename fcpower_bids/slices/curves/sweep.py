"""Prediction under several parcellations: the same people on the same folds, so that only the parcels differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.comparisons import RULE, compare_pairs, comparison_facts
from fcpower_bids.analyses.engine.entries import Entries
from fcpower_bids.analyses.engine.representations import EMBEDDING
from fcpower_bids.analyses.engine.study import Study, open_study
from fcpower_bids.errors import Unfit
from fcpower_bids.ondisk import RowsOnDisk
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Analysis

SHARED, OWN = "shared", "own"

SWEEP = TABLES["parcellation_sweep"]
GAINS = TABLES["parcellation_gains"]
COMPARISONS = TABLES["parcellation_comparisons"]
FACTS = {
    "Rule": RULE,
    "People": (
        "Rows of shared people hold the people and scans that every parcellation has, on one set of folds. Where a "
        "parcellation has more people, its rows of own people are the bridge to what 'prediction' gives for it alone."
    ),
}


def check_choices(cohorts: Mapping[str, Cohort], settings: Analysis) -> None:
    """Refuse a single parcellation, parcellations without a scan in common, and what allows no prediction."""
    shared, settings = _share(cohorts, settings)
    for cohort in shared.values():
        open_study(cohort, settings)


def _share(cohorts: Mapping[str, Cohort], settings: Analysis) -> tuple[dict[str, Cohort], Analysis]:
    """Return the scans that every parcellation has, and the choices without embeddings."""
    if len(cohorts) < 2:
        raise Unfit(
            f"The sweep needs two parcellations or more, and there is {', '.join(cohorts) or 'none'}; run the "
            "participant level with several names after --atlas."
        )
    names = tuple(name for name in settings.representations if EMBEDDING not in name)
    if not names:
        raise Unfit("The sweep compares connectomes; add fc or fc_power to --representations.")
    return share_scans(cohorts), dataclasses.replace(settings, representations=names)


def analyse_parcellations(cohorts: Mapping[str, Cohort], settings: Analysis) -> dict[str, Table]:
    """Predict under every parcellation (Table "mainfull", Appendix "AOMIC parcellation sweep"). Raises Unfit."""
    shared, settings = _share(cohorts, settings)
    sweep = _Sweep()
    for atlas, cohort in cohorts.items():
        sweep.add(atlas, SHARED, open_study(shared[atlas], settings))
        if len(shared[atlas].scans) < len(cohort.scans):
            own = open_study(cohort, settings)
            if own.people.names != sweep.studies[atlas, SHARED].people.names:
                sweep.add(atlas, OWN, own)
    return sweep.tables()


def share_scans(cohorts: Mapping[str, Cohort]) -> dict[str, Cohort]:
    """Keep the scans (person and session) that every cohort has. Raises Unfit."""
    keys = {
        atlas: pd.MultiIndex.from_frame(one.scans[["participant_id", "session"]].astype(str))
        for atlas, one in cohorts.items()
    }
    common = set.intersection(*(set(key) for key in keys.values()))
    if not common:
        raise Unfit(f"No scan is described by all of the parcellations {', '.join(cohorts)}.")
    return {atlas: _keep(cohort, np.flatnonzero(keys[atlas].isin(common))) for atlas, cohort in cohorts.items()}


def _keep(cohort: Cohort, rows: np.ndarray) -> Cohort:
    if len(rows) == len(cohort.scans):
        return cohort
    return dataclasses.replace(
        cohort,
        scans=cohort.scans.iloc[rows].reset_index(drop=True),
        edges=cohort.edges.only(rows) if isinstance(cohort.edges, RowsOnDisk) else cohort.edges[rows],
        embeddings={},
        series=tuple(cohort.series[row] for row in rows) if cohort.series else (),
        repetition_times=tuple(cohort.repetition_times[row] for row in rows) if cohort.repetition_times else (),
    )


class _Sweep:
    """Collects the scores of one parcellation after the other."""

    def __init__(self) -> None:
        self.studies: dict[tuple[str, str], Study] = {}
        self._frames: list[pd.DataFrame] = []
        self._gains: list[pd.DataFrame] = []
        self._facts: dict[str, Any] = {}

    def add(self, atlas: str, people: str, study: Study) -> None:
        """Cross-validate all representations of one parcellation."""
        first = next((one for (_, whose), one in self.studies.items() if whose == SHARED), study)
        if people == SHARED and first.people.names != study.people.names:
            raise Unfit(f"The people of {atlas} have other phenotypes than those of the first parcellation.")
        entries = Entries(study).score_all(study.representations(), f"{atlas}, {{}}")
        self._take(entries, atlas, people, len(study.cohort.parcels))
        if people == SHARED:
            self._facts |= study.facts() | comparison_facts(study)
        self.studies[atlas, people] = study

    def _take(self, entries: Entries, atlas: str, people: str, n_parcels: int) -> None:
        label = {"atlas": atlas, "people": people}
        size = {"n_parcels": n_parcels, "n_people": len(entries.study.people.names)}
        self._frames.append(entries.folds().assign(**label, **size))
        self._gains.append(entries.compare().assign(**label))

    def tables(self) -> dict[str, Table]:
        """Return the three tables."""
        frame = pd.concat(self._frames, ignore_index=True)[list(SWEEP.columns)]
        gains = pd.concat(self._gains, ignore_index=True)[list(GAINS.columns)]
        facts = self._facts | FACTS
        return {
            SWEEP.name: Table(frame, SWEEP, facts),
            GAINS.name: Table(gains, GAINS, facts),
            COMPARISONS.name: Table(self._compare_atlases(frame), COMPARISONS, facts),
        }

    def _compare_atlases(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Compare parcellations as representations are compared: on shared folds."""
        study = next(one for (_, people), one in self.studies.items() if people == SHARED)
        parts = [
            compare_pairs(own, study, column="atlas")
            .rename(columns={"representation": "atlas"})
            .assign(representation=name)
            for name, own in frame[frame["people"] == SHARED].groupby("representation", sort=False)
        ]
        return pd.concat(parts, ignore_index=True)[list(COMPARISONS.columns)]
