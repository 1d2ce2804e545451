"""FC of a part of each scan: its halves, or its first minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.connectomes import precision
from fcpower_bids.analyses.progress import track
from fcpower_bids.core.connectivity import pearson_connectivity
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings

FloatArray = NDArray[np.float64]
Part = Callable[[FloatArray, float], FloatArray]
"""From a series (T, P) and seconds between volumes to some of its volumes."""


def first_half(series: FloatArray, repetition_time: float) -> FloatArray:
    """The volumes before the middle of the scan."""
    return series[: len(series) // 2]


def second_half(series: FloatArray, repetition_time: float) -> FloatArray:
    """The volumes from the middle of the scan on."""
    return series[len(series) // 2 :]


def first_minutes(minutes: float) -> Part:
    """Return a function that takes the volumes of the first minutes."""
    return lambda series, repetition_time: series[: round(60 * minutes / repetition_time)]


def has_series(cohort: Cohort) -> bool:
    """Whether every scan of the cohort comes with its series."""
    return bool(len(cohort.scans)) and len(cohort.series) == len(cohort.scans) == len(cohort.repetition_times)


def connect_parts(cohort: Cohort, parts: Sequence[Part], label: str, settings: Settings) -> NDArray[np.floating]:
    """Pearson FC of parts of every scan; each scan is read once.

    Returns
    -------
    ndarray, shape (len(parts), n_scans, E)

    Raises
    ------
    ValueError
        A series does not have the parcels of the cohort, or a part of it is too short or constant.
    """
    n_scans, n_edges = len(cohort.scans), cohort.edges.shape[1]
    edges = np.empty((len(parts), n_scans, n_edges), precision((len(parts) * n_scans, n_edges)))
    for scan in track(range(n_scans), label, settings):
        series = np.concatenate([np.asarray(run, dtype=float) for run in cohort.series[scan]()])
        person = cohort.scans["participant_id"].iloc[scan]
        if series.shape[1] != len(cohort.parcels):
            raise ValueError(f"A series of {person} has {series.shape[1]} parcels, the cohort {len(cohort.parcels)}.")
        for i, part in enumerate(parts):
            try:
                connectome = pearson_connectivity(part(series, cohort.repetition_times[scan]))
            except ValueError as error:
                raise ValueError(f"A part of a scan of {person} has no connectome. {error}") from error
            edges[i, scan] = vectorise_edges(connectome, weighted=False)
    return edges
