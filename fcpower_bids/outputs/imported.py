"""Recordings that another program made, written as the participant level writes its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.connectome.spectrum import spectrum_summary
from fcpower_bids.measures.quality import QUALITY as QUALITY_MEASURE
from fcpower_bids.outputs.names import CONNECTIVITY, QUALITY, TIMESERIES, file_name, order_entities
from fcpower_bids.outputs.tables import write_declared, write_json, write_matrix
from fcpower_bids.records import Entities, Output
from fcpower_bids.schema import SERIES_VOLUMES


@dataclass(frozen=True, eq=False)
class Imported:
    """One recording under one parcellation.

    Attributes
    ----------
    entities, atlas : Entities
        For the names of the files.
    parcels : tuple of P str
    series : ndarray, shape (T, P), or None
        Z-scored; None where the source has matrices only.
    connectivity : ndarray, shape (P, P)
        Pearson correlations.
    volumes, seconds, mean_fd, repetition_time : float
        NaN where unknown.
    facts : mapping
        What the sidecars say besides: source, strategy, digits.
    """

    entities: Entities
    atlas: Entities
    parcels: tuple[str, ...]
    series: np.ndarray | None
    connectivity: np.ndarray
    volumes: float
    seconds: float
    mean_fd: float
    repetition_time: float
    facts: Mapping[str, Any]


def path_of(output_dir: Path, entities: Entities, atlas: Entities, output: Output) -> Path:
    """Return where an output of an imported recording is."""
    labels = dict(entities)
    parts = [f"sub-{labels['sub']}"] + ([f"ses-{labels['ses']}"] if "ses" in labels else [])
    ordered = order_entities(entities, atlas, output.entities)
    return output_dir.joinpath(*parts, "func", file_name(ordered, output.suffix, output.extension))


def write_imported(output_dir: Path, of_recording: Sequence[Imported]) -> list[Path]:
    """Write the files of one recording under all its parcellations, the quality table last.

    Returns
    -------
    list of Path
        Everything written.
    """
    paths: list[Path] = []
    for one in of_recording:
        facts = _facts(one)
        if one.series is not None:
            path = path_of(output_dir, one.entities, one.atlas, TIMESERIES)
            paths.append(write_matrix(path, one.series, one.parcels))
            paths.append(write_json(path.with_suffix(".json"), {**facts, "Units": "standard deviations (z-scored)"}))
        path = path_of(output_dir, one.entities, one.atlas, CONNECTIVITY)
        paths.append(write_matrix(path, one.connectivity, one.parcels, index=one.parcels))
        paths.append(write_json(path.with_suffix(".json"), facts))
    path = path_of(output_dir, of_recording[0].entities, (), QUALITY)
    paths.append(write_declared(path, pd.DataFrame([_quality(one) for one in of_recording]), QUALITY_MEASURE.table))
    return paths


def _facts(one: Imported) -> dict[str, Any]:
    known = {
        SERIES_VOLUMES: one.volumes,
        "SecondsUsed": one.seconds,
        "RepetitionTime": one.repetition_time,
    }
    return {
        **one.facts,
        **{key: value for key, value in known.items() if math.isfinite(value)},
        "Software": "fcpower_bids",
        "SoftwareVersion": __version__,
    }


def _quality(one: Imported) -> dict[str, Any]:
    """Every column of the participant level; n/a where only that level can know it."""
    covered = covered_parcels(one.connectivity)
    summary = spectrum_summary(eigendecompose(one.connectivity[np.ix_(covered, covered)])[0])
    return dict.fromkeys(QUALITY_MEASURE.table.columns, math.nan) | {
        "atlas": "_".join(f"{key}-{value}" for key, value in one.atlas),
        "state": "done",
        "kept_volumes": one.volumes,
        "seconds_kept": one.seconds,
        "mean_fd": one.mean_fd,
        "parcels": len(one.parcels),
        "uncovered_parcels": int((~covered).sum()),
        "rank": summary["rank"],
        "clipped": summary["n_clipped"],
        "participation_ratio": summary["participation_ratio"],
        "participation_ratio_power": summary["participation_ratio_power"],
    }
