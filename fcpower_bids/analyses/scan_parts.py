"""FC of a part of each scan: its halves, or its first minutes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.features import (
    EMBEDDING,
    Part,
    Runs,
    expand_names,
    has_series,
    join_runs,
    join_whole,
    precision,
)
from fcpower_bids.core.connectome import MINIMUM_VOLUMES, pearson_connectivity
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.errors import FcPowerError, Unfit
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Settings

HALVES: tuple[Part, Part] = (
    lambda volumes, repetition_time: slice(0, volumes // 2),
    lambda volumes, repetition_time: slice(volumes // 2, volumes),
)
"""The volumes before the middle of a scan, and those from it on."""


def first_minutes(minutes: float) -> Part:
    """Return a function that takes the volumes of the first minutes."""
    return lambda volumes, repetition_time: slice(0, min(round(60 * minutes / repetition_time), volumes))


def cut_scans(cohort: Cohort, parts: Sequence[Part], label: str, settings: Settings) -> list[Cohort]:
    """The cohort of each part of every scan: its volumes, Pearson FC (n_scans, E) and series. Raises Unfit.

    Each scan is read once, its runs end to end; its seconds and embeddings stay those of the whole.
    """
    n_scans, n_edges = len(cohort.scans), cohort.edges.shape[1]
    edges = [np.empty((n_scans, n_edges), precision((len(parts) * n_scans, n_edges))) for _ in parts]
    volumes = np.empty((len(parts), n_scans))
    for scan in track(range(n_scans), label, settings):
        series, person = join_runs(cohort.series[scan]), cohort.scans["participant_id"].iloc[scan]
        cuts = [part(len(series), cohort.repetition_times[scan]) for part in parts]
        volumes[:, scan] = [cut.stop - cut.start for cut in cuts]
        if (fewest := int(volumes[:, scan].min())) < MINIMUM_VOLUMES:
            raise Unfit(f"A part of a scan of {person} has {fewest} volumes, too few for a connectome.")
        try:
            for of_part, cut in zip(edges, cuts, strict=True):
                of_part[scan] = vectorise_edges(pearson_connectivity(series[cut]), weighted=False)
        except Unfit as error:
            raise Unfit(f"A part of a scan of {person} has no connectome. {error}") from error

    def cut_runs(runs: Runs, part: Part, repetition_time: float) -> list[NDArray[Any]]:
        series = join_runs(runs)
        return [series[part(len(series), repetition_time)]]

    cohorts, sources = [], list(zip(cohort.series, cohort.repetition_times, strict=True))
    for part, of_part, connectomes in zip(parts, volumes, edges, strict=True):
        scans = cohort.scans.assign(volumes=of_part, n_runs=1)
        series_of_part = tuple(partial(cut_runs, runs, part, time) for runs, time in sources)
        cohorts.append(dataclasses.replace(cohort, scans=scans, edges=connectomes, series=series_of_part))
    return cohorts


LENGTHS = (1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 76.8)
"""Minutes, each twice the one before (the paper's Table "gridfull"), as far as the shortest scan goes."""
FULL, FIRST = "full", "first"
EQUAL = 1e-6
"""Minutes by which two lengths differ that are the same."""


@dataclass(frozen=True, eq=False)
class ScanLength:
    """The cohort at one scan length."""

    minutes: float  # from the start of each scan; for full scans their median
    part: str  # `FIRST` or `FULL`
    cohort: Cohort  # the scans that have this length, with the connectomes and embeddings of it
    rows: NDArray[np.intp]  # of these scans in the whole cohort
    names: tuple[str, ...]  # representations that are known at this length


def choose_minutes(cohort: Cohort, asked: Sequence[float] = ()) -> tuple[float, ...]:
    """Lengths as asked, else those of `LENGTHS` that every scan has; fewer if memory is short. Raises Unfit."""
    if cohort.scans.empty:
        raise Unfit("No scan is left, so none can be shortened.")
    minutes = cohort.scans["seconds"].to_numpy(dtype=float) / 60
    longest = float(minutes.max())
    for length in asked:
        if not has_series(cohort):
            raise Unfit("Shorter scans cannot be made: the series of the scans are not there.")
        if not 0 < length <= longest + EQUAL:
            whose = cohort.scans["participant_id"].iloc[int(minutes.argmax())]
            raise Unfit(
                f"A scan cannot be cut to {length:g} minutes: give numbers above 0 and up to the longest scan, "
                f"{longest:.2f} min of {whose}."
            )
    if not has_series(cohort):
        return ()
    chosen = sorted(set(asked)) or [length for length in LENGTHS if length < minutes.min() - EQUAL]
    chosen = [length for length in chosen if np.ptp([*minutes, length]) > EQUAL]  # that of all scans is `FULL`
    most = max(1, int(available_bytes() // (4 * cohort.edges.shape[0] * cohort.edges.shape[1])))
    if len(chosen) > most:
        chosen = [chosen[i] for i in np.unique(np.linspace(len(chosen) - 1, 0, most).round().astype(int))]
    return tuple(chosen)


def long_enough(cohort: Cohort, minutes: float) -> NDArray[np.intp]:
    """Rows of the scans of so many minutes or more."""
    return np.flatnonzero(cohort.scans["seconds"].to_numpy(dtype=float) / 60 >= minutes - EQUAL)


def shorten_scans(
    cohort: Cohort, minutes: Sequence[float], settings: Settings, notes: list[str]
) -> Iterator[ScanLength]:
    """Yield the scans of each length, then all at full length, series read once; `notes` say what is left out."""
    names = expand_names(cohort, settings)
    labels = [name.partition(":")[2] for name in names if name.startswith(EMBEDDING + ":")]
    parts = [first_minutes(length) for length in minutes]
    cut = cut_scans(cohort, parts, "FC of short scans", settings) if parts else []
    missing = [label for label in labels if label not in cohort.encoders]
    if minutes and missing:
        notes.append(f"Embeddings known of the full scan only, as their encoder was not given: {', '.join(missing)}.")
    for length, shorter in zip(minutes, cut, strict=True):
        embeddings = {}
        for label in labels:
            embedding = _embed(cohort, label, length, settings, notes)
            if embedding is not None:
                embeddings[label] = embedding
        known = {f"{EMBEDDING}:{label}" for label in embeddings}
        there = tuple(name for name in names if not name.startswith(EMBEDDING + ":") or name in known)
        part = dataclasses.replace(shorter, scans=shorter.scans.assign(seconds=60 * length), embeddings=embeddings)
        rows = long_enough(cohort, length)
        yield ScanLength(length, FIRST, part.keep(rows), rows, there)
    yield ScanLength(float(np.median(cohort.scans["seconds"])) / 60, FULL, cohort, np.arange(len(cohort.scans)), names)


def equalise_scans(cohort: Cohort, settings: Settings) -> Cohort:
    """Cut every scan to the length of the shortest one (``--equal-minutes``), its runs put end to end. Raises Unfit."""
    times = np.asarray(cohort.repetition_times, dtype=float)
    if not has_series(cohort) or not np.isfinite(times).all():
        raise Unfit(
            "--equal-minutes needs the cleaned series of every scan and their repetition times, which are not all "
            "there. Run the participant level for them, or take --covariates minutes instead."
        )
    seconds = cohort.scans["seconds"].to_numpy(dtype=float)
    shortest = float(seconds.min())

    def first_volumes(volumes: int, repetition_time: float) -> slice:
        return slice(0, min(int(np.floor(shortest / repetition_time + 1e-6)), volumes))

    (cut,) = cut_scans(cohort, [first_volumes], "FC of scans of one length", settings)
    lengths = cut.scans["volumes"].to_numpy() * times
    changed = {"seconds": lengths, "degrees_of_freedom": cohort.scans["degrees_of_freedom"] * (lengths / seconds)}
    numbers = cohort.scans["participant_id"].value_counts()
    note = f"Every scan was cut to {shortest / 60:.2f} min, the length of the shortest one (--equal-minutes)."
    if numbers.nunique() > 1:
        note += f" People have {numbers.min()} to {numbers.max()} scans of it."
    if cohort.embeddings:
        note += " Embeddings, known of full scans only, were left out."
    return dataclasses.replace(cut, scans=cut.scans.assign(**changed), embeddings={}, notes=(*cohort.notes, note))


def _embed(
    cohort: Cohort, label: str, minutes: float, settings: Settings, notes: list[str]
) -> NDArray[np.float64] | None:
    """Embeddings (n_scans, d) of the first minutes; scans without one of the full scan stay NaN."""
    if label not in cohort.encoders:
        return None
    full = np.asarray(cohort.embeddings[label], dtype=float)
    vectors: list[Any] = [None] * len(full)
    take = first_minutes(minutes)
    for scan in track(np.flatnonzero(np.isfinite(full).all(axis=1)).tolist(), f"{label}, {minutes:g} min", settings):
        series, time = join_whole(cohort, scan), cohort.repetition_times[scan]
        try:
            cut = series[take(len(series), time)]
            vectors[scan] = np.asarray(cohort.encoders[label](cut, time), dtype=float)
        except FcPowerError as error:
            notes.append(f"{label} was left out at {minutes:g} minutes: {error}")
            return None
    empty = np.full(next(len(vector) for vector in vectors if vector is not None), np.nan)
    return np.stack([empty if vector is None else vector for vector in vectors])


def length_facts(cohort: Cohort, minutes: Sequence[float]) -> dict[str, Any]:
    """Entries of a sidecar about the lengths."""
    facts = {
        "Minutes": (
            "First contiguous cleaned minutes of each scan (censored volumes are not counted; runs of a scan follow "
            "one another). Scans shorter than a length that was asked for are not in its rows; where none was, the "
            "lengths end at the shortest scan. 'full' is all of each scan."
        )
    }
    if not has_series(cohort):
        facts["LeftOut"] = "The series of the scans are not there, so shorter scans cannot be made."
    elif not minutes:
        facts["LeftOut"] = "The shortest scan is too short to be shortened."
    return facts
