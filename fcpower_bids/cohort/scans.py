"""Scans: all included runs of one person in one session, their connectome, embeddings and series."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.cohort.edges import Edges
from fcpower_bids.cohort.features import Connectome
from fcpower_bids.cohort.inclusion import RECORDING, VALUE, Exclusion, Quality
from fcpower_bids.core.connectome.connectivity import ParcelError, average_connectivity
from fcpower_bids.core.connectome.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.regression.presets import PRESETS
from fcpower_bids.encoders.training_people import HELD_OUT, NO, STATE, TRAINED, UNKNOWN
from fcpower_bids.errors import DatasetError
from fcpower_bids.imaging.atlas.files import network_of
from fcpower_bids.imaging.table_checks import table_fault
from fcpower_bids.outputs.dataset import describe_without_folders
from fcpower_bids.outputs.names import TIMESERIES
from fcpower_bids.outputs.tables import read_json, read_matrix, read_table, series_file
from fcpower_bids.outputs.tables import read_series as read_whole
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


SCANS, DEGREES = TABLES["scans"], "degrees_of_freedom"


def tabulate_scans(scans: Sequence[Scan], settings: Assembly) -> pd.DataFrame:
    """Return one row per scan; motion is averaged over runs by their length."""
    rows = []
    for scan in scans:
        runs = [run.quality for run in scan]
        motion, volumes = (np.array([getattr(one, name) for one in runs]) for name in ("mean_fd", "volumes"))
        known = np.isfinite(volumes).all()
        row: dict[str, Any] = {"participant_id": scan[0].connectome.participant, "session": scan[0].connectome.session}
        row |= {name: float(sum(getattr(one, name) for one in runs)) for name in ("seconds", "volumes", DEGREES)}
        row |= {"mean_fd": float(motion @ volumes / volumes.sum() if known else motion.mean()), "n_runs": len(scan)}
        row |= {"combination": combination_of(settings) if len(scan) > 1 else "none"}
        rows.append(row)
    return pd.DataFrame(rows)


def missing_parcels(scans: Sequence[Scan], edges: Edges) -> NDArray[np.bool_]:
    """Which parcels each scan lacks, shape (n_scans, P): those that one of its runs lacks."""
    return np.stack([edges.missing[[run.place for run in scan]].any(axis=0) for scan in scans])


def assemble_edges(
    scans: Sequence[Scan], edges: Edges, kept: NDArray[np.bool_], settings: Assembly
) -> NDArray[np.floating]:
    """Return the edges (n, E) of the scans among the kept parcels (P,). Raises DatasetError."""
    places = [run.place for scan in scans for run in scan]
    if kept.all() and len(places) == len(scans) and places == list(range(len(edges.array))):
        return edges.array
    among_kept = np.flatnonzero(vectorise_edges(np.outer(kept, kept).astype(float), weighted=False))
    assembled = np.empty((len(scans), among_kept.size))
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


# --- Embeddings, series and parcels ---------------------------------------------------------------------------------


STATES = (TRAINED, HELD_OUT, UNKNOWN, NO)
IDENTITY = ("sha256", "aux_sha256", "weights", "seed", "read", "protocol")
"""Facts of a sidecar that must agree, with the atlas, for embeddings to be comparable; ``weights`` only where there is
no sha256."""


def read_embeddings(scans: Sequence[Scan]) -> tuple[dict[str, NDArray[np.float64]], list[Exclusion]]:
    """Read the embeddings of all encoders, averaged over the runs of a scan that have one. Raises DatasetError."""
    labels = sorted({label for scan in scans for run in scan for label in run.connectome.encoders})
    embeddings = {}
    rows: list[Exclusion] = []
    for label in labels:
        vectors, faults = zip(*(_embed(scan, label) for scan in scans), strict=True)
        _check_encoder(scans, label)
        sizes = sorted({len(vector) for vector in vectors if vector is not None})
        if len(sizes) > 1:
            raise DatasetError(f"The embeddings '{label}' have {' and '.join(map(str, sizes))} dimensions. {_AGAIN}")
        if sizes:
            empty = np.full(sizes[0], np.nan)
            embeddings[label] = np.stack([empty if vector is None else vector for vector in vectors])
        rows += [
            Exclusion(
                scan[0].connectome.participant, scan[0].connectome.session, VALUE, f"no embedding '{label}'{fault}"
            )
            for scan, vector, fault in zip(scans, vectors, faults, strict=True)
            if vector is None
        ]
    return embeddings, rows


_AGAIN = "Run the participant level for all with the same --encoder, --encoder-weights and encoder_read."


def _embed(scan: Scan, label: str) -> tuple[NDArray[np.float64] | None, str]:
    """Return the embedding of a scan, or none and what is wrong with that of a run."""
    runs = [run.connectome for run in scan if label in run.connectome.encoders]
    paths = [one.embedding(label) for one in runs]
    if any(one.is_embedding_outdated(label) for one in runs):
        return None, ": its series has been cleaned otherwise since; run the participant level again with --encoder"
    try:
        vectors = [read_matrix(path)[0].mean(axis=0) for path in paths]
    except DatasetError as error:
        return None, f": {describe_without_folders(str(error), [str(path.parent) for path in paths])}"
    sizes = {len(vector) for vector in vectors}
    if len(sizes) > 1:
        raise DatasetError(f"The embeddings '{label}' of {scan[0].connectome.participant} differ in size. {_AGAIN}")
    return (np.mean(vectors, axis=0) if vectors else None), ""


def _sidecars(scan: Scan, label: str) -> list[Path]:
    """Sidecars of the embeddings of its runs, as far as they are there."""
    own = (run.connectome for run in scan if label in run.connectome.encoders)
    return [path for path in (one.embedding(label).with_suffix(".json") for one in own) if path.is_file()]


def _check_encoder(scans: Sequence[Scan], label: str) -> None:
    first: dict[str, Path] = {}
    for sidecar in (path for scan in scans for path in _sidecars(scan, label)):
        facts = read_json(sidecar)
        known = {key: facts.get(key) for key in IDENTITY} | {"of": facts.get("Atlas", {}).get("Name")}
        if known["sha256"]:
            del known["weights"]  # the same weights may lie in different places
        first.setdefault(repr(known), sidecar)
    if len(first) > 1:
        one, other, *_ = first.values()
        raise DatasetError(f"{one} and {other} are of different weights or were read differently. {_AGAIN}")


def read_seen(scans: Sequence[Scan], labels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Training facts of encoders from the sidecars of embeddings; several runs have the first of `STATES` of any."""

    def seen(scan: Scan, label: str) -> str:
        said = {str(read_json(path).get(STATE, UNKNOWN)) for path in _sidecars(scan, label)}
        return next((state for state in STATES if state in said), UNKNOWN)

    return {label: tuple(seen(scan, label) for scan in scans) for label in labels}


def series_of(
    scans: Sequence[Scan], parcels: Sequence[str]
) -> tuple[tuple[Callable[[], list[np.ndarray]], ...], list[str]]:
    """Return one function per scan that reads its series, and a note; none where a scan has no series."""
    paths = [tuple(series_file(run.connectome.beside(TIMESERIES)) for run in scan) for scan in scans]
    lacking = [path for of_scan in paths for path in of_scan if not path.is_file()]
    if lacking:
        note = (
            f"Analyses of scan length are not possible: {len(lacking)} series are not there, such as {lacking[0].name}."
        )
        return (), [note]
    return tuple(partial(read_series, of_scan, tuple(parcels)) for of_scan in paths), []


def read_series(paths: Sequence[Path], parcels: Sequence[str]) -> list[np.ndarray]:
    """Read the cleaned series of the runs of one scan. Returns (T, P). Raises DatasetError."""
    series = []
    for path in paths:
        values, names = read_whole(path)
        place = {name: column for column, name in enumerate(names)}
        lacking = [name for name in parcels if name not in place]
        if lacking:
            raise DatasetError(f"{path} has no parcel {lacking[0]}. Run the participant level again.")
        series.append(values[:, [place[name] for name in parcels]])
    return series


class ParcelFacts(NamedTuple):
    """Table of the P parcels of a cohort, from the copy of the atlas."""

    networks: tuple[str, ...]  # ``n/a`` where it says nothing
    centroids: NDArray[np.float64] | None = None  # (P, 3), or None: in mm; None where no parcel has a place
    notes: tuple[str, ...] = ()  # unknown facts


def read_parcel_facts(output_dir: Path, one: Connectome, parcels: Sequence[str]) -> ParcelFacts:
    """Return networks and places of the parcels from the copy of the atlas; without one, networks by their names.

    The copy may have been damaged since. Raises DatasetError.
    """
    template = f"tpl-{one.space}"
    path = output_dir / "sourcedata" / "atlases" / template / f"{template}_{one.atlas_name}_dseg.tsv"
    if not path.is_file():
        networks = tuple(map(network_of, parcels))
        unknown = f"The networks of the parcels are not known: {path.relative_to(output_dir)} is not there."
        return ParcelFacts(networks, notes=(unknown,) if {*networks} == {"n/a"} else ())
    fault = table_fault(path)
    table = pd.DataFrame() if fault else read_table(path)
    lacking = [name for name in ("name", "network") if name not in table]
    words = [name for name in "xyz" if name in table and not pd.api.types.is_numeric_dtype(table[name])]
    if not fault and lacking:
        fault = f"has no column '{lacking[0]}'"
    elif not fault and table["name"].duplicated().any():
        fault = f"has the parcel {table['name'][table['name'].duplicated()].iloc[0]} twice"
    elif not fault and words:
        fault = f"holds words in its column {words[0]}"
    if fault:
        said = fault.partition(":")[0]
        raise DatasetError(f"The atlas table {path} {said}. Remove it and run the participant level again.")
    table = table.set_index(table["name"].astype(str)).reindex(list(parcels))
    networks = tuple(table["network"].fillna("n/a").astype(str))
    placed = {*"xyz"} <= set(table.columns) and not table["x"].isna().all()
    return ParcelFacts(networks, table[list("xyz")].to_numpy(dtype=float) if placed else None)
