"""Scans: all included runs of one person in one session, and their connectome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.cohort.edges import Edges
from fcpower_bids.cohort.features import Connectome
from fcpower_bids.cohort.inclusion import DAMAGE, RECORDING, Exclusion, Quality
from fcpower_bids.core.connectome.connectivity import ParcelError, average_connectivity
from fcpower_bids.core.connectome.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.regression.presets import PRESETS
from fcpower_bids.errors import DatasetError
from fcpower_bids.ondisk import RowsOnDisk, make_room
from fcpower_bids.progress import track
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Assembly


@dataclass(frozen=True, eq=False)
class Run:
    """One included recording."""

    connectome: Connectome  # its FC file
    quality: Quality  # its figures
    place: int  # its position among the `Edges`

    @property
    def repetition_time(self) -> float:
        """Seconds between volumes; the quotient is exact to rounding, so the last digits are dropped."""
        return round(self.quality.seconds / self.quality.volumes, 9) if self.quality.volumes > 0 else math.nan


Scan = tuple[Run, ...]


def group_scans(runs: Sequence[Run]) -> tuple[list[Scan], list[Exclusion]]:
    """Group runs by person and session; a scan whose runs have different repetition times is left out."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.connectome.participant, run.connectome.session), []).append(run)
    scans: list[Scan] = []
    rows = []
    for (participant, session), members in groups.items():
        times = sorted({run.repetition_time for run in members if math.isfinite(run.repetition_time)})
        if len(times) > 1:
            each = ", ".join(f"{one:g} s" for one in times)
            reason = f"its runs have the repetition times {each}; choose with --bids-filter-file"
            rows.append(Exclusion(participant, session, RECORDING, reason))
        else:
            scans.append(tuple(members))
    return scans, rows


def combination_of(settings: Assembly) -> str:
    """How the runs of a scan become one connectome."""
    return PRESETS[settings.preset].combination


SCANS = TABLES["scans"]


def tabulate_scans(scans: Sequence[Scan], settings: Assembly) -> pd.DataFrame:
    """Return one row per scan; motion is averaged over runs by their length."""
    rows = []
    for scan in scans:
        motion = np.array([run.quality.mean_fd for run in scan])
        volumes = np.array([run.quality.volumes for run in scan])
        rows.append(
            {
                "participant_id": scan[0].connectome.participant,
                "session": scan[0].connectome.session,
                "seconds": float(sum(run.quality.seconds for run in scan)),
                "volumes": float(sum(run.quality.volumes for run in scan)),
                "degrees_of_freedom": float(sum(run.quality.degrees_of_freedom for run in scan)),
                "mean_fd": float(motion @ volumes / volumes.sum())
                if np.isfinite(volumes).all()
                else float(motion.mean()),
                "n_runs": len(scan),
                "combination": combination_of(settings) if len(scan) > 1 else "none",
                "damage": ", ".join(part for part in DAMAGE if any(part in run.quality.damage for run in scan)) or None,
            }
        )
    return pd.DataFrame(rows)


def missing_parcels(scans: Sequence[Scan], edges: Edges) -> NDArray[np.bool_]:
    """Which parcels each scan lacks, shape (n_scans, P): those that one of its runs lacks."""
    return np.stack([edges.missing[[run.place for run in scan]].any(axis=0) for scan in scans])


def assemble_edges(
    scans: Sequence[Scan], edges: Edges, kept: NDArray[np.bool_], settings: Assembly
) -> NDArray[np.floating] | RowsOnDisk:
    """Return the edges (n, E) of the scans among the kept parcels (P,). Raises DatasetError."""
    places = [run.place for scan in scans for run in scan]
    if kept.all() and len(places) == len(scans) and places == list(range(len(edges.array))):
        return edges.array
    among_kept = np.flatnonzero(vectorise_edges(np.outer(kept, kept).astype(float), weighted=False))
    assembled = make_room((len(scans), among_kept.size), np.float64)
    for row, scan in enumerate(track(scans, "scans", settings, len(scans))):
        assembled[row] = combine_edges(scan, edges, settings)[among_kept]
    return assembled


def weights_of(scan: Scan, settings: Assembly) -> list[float]:
    """Weights of runs: degrees of freedom for the average of Fisher z, T - 1 for runs put one after the other.

    Other programs may state neither: the next of degrees of freedom, T - 1 and seconds that all runs have is taken.
    """
    each = [run.quality for run in scan]
    known = [[one.degrees_of_freedom for one in each], [one.volumes - 1 for one in each], [one.seconds for one in each]]
    known = known[combination_of(settings) == "concat" :]
    return next((weights for weights in known if not np.isnan(weights).any()), known[-1])


def combine_edges(scan: Scan, edges: Edges, settings: Assembly) -> np.ndarray:
    """Edges of a scan (P (P - 1) / 2,): of its runs put end to end, or their mean Fisher z. Raises DatasetError."""
    rows = edges.array[[run.place for run in scan]]
    if len(scan) == 1:
        return rows[0]
    weights = np.array(weights_of(scan, settings))
    names = f"{scan[0].connectome.recording} and the other runs of its session"
    if not (weights > 0).all():
        raise DatasetError(
            f"{names} have no known length. Run the participant level again, state minutes in the list of "
            "another program's files, or choose with --bids-filter-file."
        )
    if combination_of(settings) == "concat":
        return weights @ rows / weights.sum()
    diagonals = np.where(edges.missing[[run.place for run in scan]], np.nan, 1.0)
    try:
        average = average_connectivity(rebuild_matrix(rows, diagonals, weighted=False), weights)
    except ParcelError as error:
        parcels = ", ".join(edges.parcels[parcel] for parcel in error.parcels[:5])
        raise DatasetError(
            f"{names} cannot be averaged: {error.reason} ({parcels}). Use --preset recommended."
        ) from error
    return vectorise_edges(average, weighted=False)
