"""The series of a cohort: read from disk on access, cut, and turned into features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.connectomes import precision
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.connectivity import standardise
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.regression.kernels import FeatureSource
from fcpower_bids.errors import Unfit
from fcpower_bids.ondisk import make_room
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Messages
from fcpower_bids.transforms.contract import Transform

Part = Callable[[int, float], slice]
"""From the number of volumes and the repetition time in seconds to the volumes that are wanted."""
Runs = Callable[[], list[NDArray[Any]]]


def has_series(cohort: Cohort) -> bool:
    """Whether every scan of the cohort comes with its series."""
    return bool(len(cohort.scans)) and len(cohort.series) == len(cohort.scans) == len(cohort.repetition_times)


def cut_series(cohort: Cohort, part: Part) -> tuple[Runs, ...]:
    """Return the series of a part of every scan, whose runs are put end to end: they go with its connectomes."""
    return tuple(
        partial(_cut, runs, part, time) for runs, time in zip(cohort.series, cohort.repetition_times, strict=True)
    )


def _cut(runs: Runs, part: Part, repetition_time: float) -> list[NDArray[Any]]:
    series = join_runs(runs)
    return [series[part(len(series), repetition_time)]]


def join_runs(runs: Runs) -> FloatArray:
    """Read the runs of a scan, end to end: shape (T, P)."""
    return np.concatenate([np.asarray(run, dtype=float) for run in runs()])


def series_features(cohort: Cohort, groups: Sequence[Rows], transform: Transform, settings: Messages) -> FeatureSource:
    """Edges (n, E) of a transform of the series times sqrt(2), over scans; runs are put end to end. Raises Unfit."""
    if not has_series(cohort):
        raise Unfit("This needs the series of every scan, which this cohort does not have.")
    n_parcels = len(cohort.parcels)
    shape, diagonal = (len(groups), cohort.edges.shape[1]), n_parcels * transform.diagonal
    features = make_room((shape[0], shape[1] + diagonal), precision(shape))
    for unit, scans in enumerate(track(groups, f"{transform.label} of the series", settings)):
        own = np.zeros(features.shape[1], features.dtype)
        for scan in scans:
            series = np.concatenate([standardise(run) for run in cohort.series[scan]()])
            if series.shape[1] != n_parcels:
                who = cohort.scans["participant_id"].iloc[scan]
                raise ValueError(f"A series of {who} has {series.shape[1]} parcels, the cohort {n_parcels}.")
            matrix = transform.transform([series])[0]
            own += np.hstack([vectorise_edges(matrix), np.diag(matrix)[:diagonal]]) / len(scans)
        features[unit] = own
    return features
