"""The runs of one session and task as one: their series one after the other, or their connectomes averaged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.core.connectome.connectivity import average_connectivity
from fcpower_bids.core.signal.timeseries import z_score
from fcpower_bids.errors import RecordingError
from fcpower_bids.measures.quality import QUALITY as QUALITY_MEASURE
from fcpower_bids.outputs.names import CONNECTIVITY, COVERAGE, OUTLIERS, QUALITY, TIMESERIES, output_path
from fcpower_bids.outputs.recording import VOLUMES, Results, write_combination
from fcpower_bids.outputs.tables import read_declared, read_json, read_series, series_file
from fcpower_bids.records import Atlas, Cleaning, Entities, Output, ParcelSeries, Recording
from fcpower_bids.settings import Participant
from fcpower_bids.settings.run import AVERAGE, CONCAT
from fcpower_bids.transforms.connectomes import connect


def group_runs(recordings: Iterable[Recording]) -> list[tuple[Recording, ...]]:
    """Return the recordings that differ in ``run`` only; a recording without ``run`` is whole already."""
    groups: dict[Entities, list[Recording]] = defaultdict(list)
    for recording in recordings:
        if recording.entity("run"):
            groups[without_run(recording.entities)].append(recording)
    return [tuple(runs) for runs in groups.values()]


def without_run(entities: Entities) -> Entities:
    """Return the entities of the combination that a run belongs to."""
    return tuple(pair for pair in entities if pair[0] != "run")


def whole_of(runs: Sequence[Recording]) -> Recording:
    """Return the recording that stands for several runs: their entities without ``run``."""
    return replace(runs[0], entities=without_run(runs[0].entities))


def refuse_times(runs: Sequence[Recording]) -> str:
    """Say why runs with different repetition times are not combined; nothing where they have one."""
    times = sorted({run.repetition_time for run in runs})
    return f"The runs of {runs[0].name} have the repetition times {times} s; not combined." if len(times) > 1 else ""


def combine_runs(
    output_dir: Path, runs: Sequence[Recording], atlases: tuple[Atlas, ...], settings: Participant
) -> list[Path]:
    """Combine the written runs of a session into a recording without ``run`` in its name. Raises RecordingError."""
    if reason := refuse_times(runs):
        raise RecordingError(reason)
    whole = whole_of(runs)
    cleaning = _cleaning(output_dir, runs, atlases[0])
    weights = [_quality(output_dir, run)["degrees_of_freedom"] for run in runs]
    series, arrays, facts = [], {}, {}
    for number, atlas in enumerate(atlases):
        one, found = _combine(output_dir, runs, atlas, settings, weights)
        series.append(one)
        for name, (matrix, about) in found.items():
            arrays[f"{number}/{name}"] = matrix
            facts[f"{number}/{name}"] = {**about, "Combination": settings.combine_runs, "NumberOfRuns": len(runs)}
    kind = TIMESERIES if settings.combine_runs == CONCAT else CONNECTIVITY
    sources = tuple(tuple(series_file(output_path(output_dir, run, kind, atlas)) for run in runs) for atlas in atlases)
    results = Results(
        whole, atlases, settings, {"": output_dir}, cleaning, series, (arrays, facts), ({}, {}), sources=sources
    )
    return write_combination(output_dir, results)


def _combine(
    output_dir: Path, runs: Sequence[Recording], atlas: Atlas, settings: Participant, weights: Sequence[float]
) -> tuple[ParcelSeries, dict[str, tuple[np.ndarray, dict[str, Any]]]]:
    def read(run: Recording, output: Output) -> np.ndarray:
        return read_series(series_file(output_path(output_dir, run, output, atlas)))[0]

    coverage = np.min([read(run, COVERAGE)[:, 0] for run in runs], axis=0)
    empty = np.empty((0, atlas.n_parcels))
    if settings.combine_runs == AVERAGE:
        average = average_connectivity(np.stack([read(run, CONNECTIVITY) for run in runs]), weights)
        found = connect(empty, atlas.names, settings, average)
        return ParcelSeries(coverage, empty, empty, average), found
    joined = np.concatenate([_scaled(read(run, TIMESERIES)) for run in runs])
    missing = np.isnan(joined).any(axis=0)  # in one run is missing in the whole
    joined[:, missing] = np.nan
    flat = np.flatnonzero(missing & (coverage >= settings.min_coverage))
    if settings.compact:
        joined = joined.astype(np.float32).astype(float)
    return ParcelSeries(coverage, empty, joined, empty, tuple(flat.tolist())), connect(joined, atlas.names, settings)


def _scaled(series: np.ndarray) -> np.ndarray:
    """Equal variance for every run, whatever the table says."""
    covered = np.isfinite(series).all(axis=0)
    scaled = np.full_like(series, np.nan)
    scaled[:, covered] = z_score(series[:, covered])
    return scaled


def _quality(output_dir: Path, run: Recording) -> dict[str, Any]:
    return dict(read_declared(output_path(output_dir, run, QUALITY), QUALITY_MEASURE.table).iloc[0])


def _cleaning(output_dir: Path, runs: Sequence[Recording], atlas: Atlas) -> Cleaning:
    volumes = [read_declared(output_path(output_dir, run, OUTLIERS), VOLUMES) for run in runs]
    quality = [_quality(output_dir, run) for run in runs]
    sidecar = output_path(output_dir, runs[0], CONNECTIVITY, atlas).with_suffix(".json")
    names = read_json(sidecar).get("NuisanceParameters", []) if sidecar.exists() else []

    def join(name: str) -> np.ndarray:
        return np.concatenate([table[name].to_numpy(dtype=float) for table in volumes])

    return Cleaning(
        kept=join("kept").astype(bool),
        framewise_displacement=join("framewise_displacement"),
        dvars=join("dvars"),
        design=np.empty((0, 0)),
        design_names=tuple(names),
        dropped_confounds=(),
        n_dummy=int(sum(row["dummy_volumes"] for row in quality)),
        degrees_of_freedom=float(sum(row["degrees_of_freedom"] for row in quality)),
        n_regressors=int(sum(row["n_regressors"] for row in quality)),
        repetition_time=runs[0].repetition_time,
    )
