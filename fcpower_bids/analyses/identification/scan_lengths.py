"""Identification from the first minutes of each scan."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.representations import FC, FC_POWER, build_representations
from fcpower_bids.analyses.engine.scan_parts import connect_parts, first_minutes
from fcpower_bids.analyses.engine.series import has_series
from fcpower_bids.core.inference.identification import identifiability, identify
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Cohort
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Analysis

LENGTHS = (1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)
"""Minutes, as far as the shortest scan goes."""


def length_rows(
    cohort: Cohort, rows: NDArray[np.intp], settings: Analysis
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One row per length and representation of connectomes, and what the sidecar says."""
    if not has_series(cohort):
        return [], {"LeftOut": "The series of the scans are not there, so shorter scans cannot be made."}
    part = dataclasses.replace(
        cohort,
        scans=cohort.scans.iloc[rows].reset_index(drop=True),
        edges=np.empty((len(rows), cohort.edges.shape[1]), dtype=bool),
        embeddings={},
        series=tuple(cohort.series[row] for row in rows),
        repetition_times=tuple(cohort.repetition_times[row] for row in rows),
    )
    lengths = choose_lengths(float(part.scans["seconds"].min()) / 60, len(rows) * cohort.edges.shape[1])
    if not lengths:
        return [], {"LeftOut": "The shortest scan has less than a minute."}
    try:
        edges = connect_parts(part, [first_minutes(minutes) for minutes in lengths], "FC of short scans", settings)
    except Unfit as error:
        return [], {"LeftOut": str(error)}
    names = [name for name in (FC, FC_POWER) if name in settings.representations]
    persons, sessions = (part.scans[key].astype(str).to_numpy() for key in ("participant_id", "session"))
    groups = [np.array([row]) for row in range(len(rows))]
    result = []
    for minutes, shorter in zip(lengths, edges, strict=True):
        for each in build_representations(dataclasses.replace(part, edges=shorter), groups, names, settings):
            similarity = each.similarity()
            stands_out = identifiability(similarity, persons, sessions)
            result.append(
                {
                    "representation": each.name,
                    "minutes": minutes,
                    "n_people": len(set(persons.tolist())),
                    "accuracy": identify(similarity, persons, sessions).accuracy,
                    "d_prime": stands_out.d_prime,
                    "i_diff": stands_out.i_diff,
                }
            )
    return result, {
        "Lengths": "First minutes of each cleaned scan, up to the shortest; censored volumes are not counted."
    }


def choose_lengths(shortest: float, n_values: int) -> tuple[float, ...]:
    """Lengths in minutes up to that of the shortest scan, which is always the last; fewer where memory is short."""
    lengths = [minutes for minutes in LENGTHS if minutes < shortest - 1e-9]
    lengths = [*lengths, shortest] if shortest >= LENGTHS[0] else []
    most = max(1, int(available_bytes() // (4 * n_values)))
    if len(lengths) > most:
        lengths = [lengths[i] for i in np.unique(np.linspace(len(lengths) - 1, 0, most).round().astype(int))]
    return tuple(lengths)


def can_identify(cohort: Cohort) -> bool:
    """Whether two people or more have two sessions each."""
    sessions = cohort.scans.astype({"participant_id": str}).groupby("participant_id")["session"].nunique()
    return bool((sessions > 1).sum() > 1)
