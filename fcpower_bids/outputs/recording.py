"""Every file of one recording: tables, sidecars, and the final status, written last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids._version import __version__
from fcpower_bids.core.connectome import covered_parcels, eigendecompose, power_weights, spectrum_summary
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.core.series import band_leakage
from fcpower_bids.outputs.dataset import (
    CONNECTIVITY,
    COVERAGE,
    DESIGN,
    OUTLIERS,
    QUALITY,
    SPECTRUM,
    TIMESERIES,
    bids_uri,
    files_of,
    parcels_path,
    path_of,
)
from fcpower_bids.outputs.tables import describe_files, write_array, write_matrix, write_table
from fcpower_bids.records import Atlas, Cleaning, Output, ParcelSeries, Recording
from fcpower_bids.schema import SERIES_VOLUMES, TABLES
from fcpower_bids.settings import Method
from fcpower_bids.store import known_digest, write_bytes
from fcpower_bids.transforms.connectomes import FC, make_transform

QUALITY_TABLE = TABLES["SOURCE_desc-fcpower_qc"]
COVERAGE_TABLE = TABLES["SOURCE_ATLAS_stat-coverage_bold"]
SPECTRUM_TABLE = TABLES["SOURCE_ATLAS_desc-spectrum_eigenvalues"]
VOLUMES = TABLES["SOURCE_desc-confounds_outliers"]
FLAT = 1e-9
"""Range of a diagonal that is rounding."""
RELATIONSHIPS = {
    "pearsoncorrelation": "Pearson correlation",
    "partialcorrelation": "partial correlation",
    "precision": "precision",
}
"""Meaning of the entity ``stat`` of a matrix."""

Measured = tuple[pd.DataFrame, dict[str, Any]]
"""A table, and what its sidecar says."""
Named = Mapping[str, tuple[np.ndarray, Mapping[str, Any]]]
"""Arrays by name, each with what its sidecar says."""


@dataclass(frozen=True, eq=False)
class Results:
    """Everything known about one processed recording; lists are in the order of the atlases."""

    recording: Recording
    atlases: tuple[Atlas, ...]
    settings: Method
    datasets: Mapping[str, Path]
    cleaning: Cleaning
    series: Sequence[ParcelSeries]
    connectomes: Sequence[Named]  # FC and its transforms; none of an excluded recording
    embeddings: Sequence[Named]  # by the label of the encoder
    # state and reason of each embedding that there is not, by the name of its atlas
    problems: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    dataset: str = ""  # words by which the dataset can be known


def write_recording(output_dir: Path, results: Results) -> dict[str, Any]:
    """Write all files of a recording but its status; nothing where a table cannot be computed.

    Returns the ``files``, relative to the output folder, why it is ``excluded``, and the ``problems`` of embeddings.
    """
    excluded, cleaning, settings = results.cleaning.excluded, results.cleaning, results.settings
    seen = [
        (replace(series, connectivity=matrices[FC][0]) if FC in matrices else series, atlas)
        for series, atlas, matrices in zip(results.series, results.atlases, results.connectomes, strict=True)
    ]
    nothing = [(pd.DataFrame(), dict[str, Any]())] * len(seen)
    spectrum = nothing if excluded else [tabulate_spectrum(series, settings) for series, _ in seen]
    quality = [
        tabulate_quality(series, cleaning, atlas, settings, facts)
        for (series, atlas), (_, facts) in zip(seen, spectrum, strict=True)
    ]
    paths = [*_recording_files(output_dir, results, quality)]
    for number, atlas in enumerate(results.atlases):
        covered = results.series[number].coverage
        about = {
            "CoverageThreshold": settings.min_coverage,
            "UncoveredNodes": _uncovered(atlas, covered, settings),
            "MeanCoverage": float(covered.mean()),
        }
        coverage = pd.DataFrame({"Node": atlas.names, "coverage": covered}), about
        tables = [(COVERAGE, COVERAGE_TABLE, coverage), (SPECTRUM, SPECTRUM_TABLE, spectrum[number])]
        for output, spec, (table, facts) in tables[: 1 if excluded else 2]:
            path = path_of(output_dir, results.recording.entities, atlas.entities, output)
            paths.append(write_table(path, table, spec))
            paths.append(describe_files({**common_metadata(results, atlas), **facts, **spec.describe()}, path))
        if not excluded:
            paths += _atlas_files(output_dir, results, number)
    for path in set(files_of(output_dir, results.recording.entities)).difference(paths) if excluded else ():
        path.unlink(missing_ok=True)  # of an earlier run
    files = [path.relative_to(output_dir).as_posix() for path in paths]
    return {"files": files, "excluded": excluded, "problems": dict(results.problems)}


def _recording_files(output_dir: Path, results: Results, quality: Sequence[Measured]) -> Iterator[Path]:
    """Files that do not depend on the atlas: design, censored volumes, quality."""
    cleaning, recording = results.cleaning, results.recording
    base = common_metadata(results)
    path = path_of(output_dir, recording.entities, (), DESIGN)
    yield write_matrix(path, cleaning.design, cleaning.design_names)
    yield describe_files({**base, "DroppedConfounds": cleaning.dropped_confounds}, path)
    outliers = pd.DataFrame(
        {
            "framewise_displacement": cleaning.framewise_displacement,
            "dvars": cleaning.dvars,
            "dummy": (np.arange(len(cleaning.kept)) < cleaning.n_dummy).astype(int),
            "stray": np.zeros(len(cleaning.kept), int) if cleaning.stray is None else cleaning.stray.astype(int),
            "kept": cleaning.kept.astype(int),
        }
    )
    path = path_of(output_dir, recording.entities, (), OUTLIERS)
    yield write_table(path, outliers, VOLUMES)
    settings, motion = results.settings, dict[str, Any]()
    if cleaning.head_radius is not None:
        motion["HeadRadiusMillimetres"] = round(cleaning.head_radius, 3)
    if settings.motion_filter_type:
        stop = [edge for edge in (settings.band_stop_min, settings.band_stop_max) if edge is not None]
        about = {"Type": settings.motion_filter_type, "BreathsPerMinute": stop, "Order": settings.motion_filter_order}
        motion["MotionFilter"] = about
    yield describe_files({**base, **VOLUMES.describe(), **motion, "Threshold": settings.fd_thresh}, path)
    path = path_of(output_dir, recording.entities, (), QUALITY)
    yield write_table(path, pd.concat([table for table, _ in quality], ignore_index=True), QUALITY_TABLE)
    facts = {key: value for _, facts in quality for key, value in facts.items()}
    chosen: dict[str, Any] = {"CleaningChoices": settings.cleaning()}
    chosen["ConnectomeChoices"] = settings.connectomes(atlas.name for atlas in results.atlases)
    chosen["RepetitionTime"] = cleaning.repetition_time
    chosen["Dataset"] = results.dataset
    yield describe_files({**base, **facts, **chosen, **QUALITY_TABLE.describe()}, path)


def _atlas_files(output_dir: Path, results: Results, number: int) -> Iterator[Path]:
    """Series, connectomes and embeddings under one atlas."""
    atlas, recording, clean = results.atlases[number], results.recording, results.series[number].clean
    series, tr = path_of(output_dir, recording.entities, atlas.entities, TIMESERIES), results.cleaning.repetition_time
    cleaned, timing = cleaning_metadata(results, number), {"RepetitionTime": tr, "SamplingFrequency": 1 / tr}
    yield write_matrix(series, clean, atlas.names)
    if atlas.is_cifti:
        from fcpower_bids.imaging.parcellation import encode_parcels  # loads nibabel, only CIFTI needs it

        yield write_bytes(series.with_suffix(".ptseries.nii"), encode_parcels(clean, atlas, tr))
    yield describe_files({**cleaned, **timing, "Units": "standard deviations (z-scored)"}, series)
    array = path_of(output_dir, recording.entities, atlas.entities, CONNECTIVITY).with_suffix(".npy")
    before = array.read_bytes() if array.is_file() else b""
    for name, (matrix, facts) in results.connectomes[number].items():
        transform = None if name == FC else make_transform(name, results.settings)
        output = CONNECTIVITY if transform is None else Output("relmat", transform.entities)
        path = path_of(output_dir, recording.entities, atlas.entities, output)
        yield write_matrix(path, matrix, atlas.names, index=atlas.names)
        if name == FC:  # also as an array: a cohort is gathered from these in a tenth of the time
            yield write_array(array, vectorise_edges(matrix, weighted=False))
            if before != array.read_bytes():  # embeddings by the encoders of earlier runs are of another series
                for old in path.parent.glob(f"{path.name.partition('_stat-')[0]}_desc-*_embedding.*"):
                    old.unlink(missing_ok=True)
        if atlas.is_cifti:
            yield write_bytes(path.with_suffix(".pconn.nii"), encode_parcels(matrix, atlas))
        # by the draft of BEP017; a constant diagonal is left out
        diagonal, stat = np.diag(matrix)[np.isfinite(np.diag(matrix))], dict(output.entities)["stat"]
        about = {
            **cleaned,
            "Weighted": True,
            "Directed": False,
            "ValidDiagonal": bool(diagonal.size and np.ptp(diagonal) > FLAT),
            "StorageFormat": "Full",
            "Title": "FC" if transform is None else (transform.title or transform.label).format_map(facts),
            "NodeFiles": [bids_uri(parcels_path(output_dir, atlas), {"": output_dir})],
            "Sources": [bids_uri(series, {"": output_dir})],
            "RelationshipMeasure": RELATIONSHIPS.get(stat, stat),
            **facts,
        }
        yield describe_files(about, path)
    for label, (vector, facts) in results.embeddings[number].items():
        path = path_of(output_dir, recording.entities, atlas.entities, Output("embedding", (("desc", label),)))
        values = np.atleast_2d(vector)
        yield write_matrix(path, values, [f"dim{i:04d}" for i in range(values.shape[1])])
        yield describe_files({**cleaned, **facts}, path)


def _uncovered(atlas: Atlas, coverage: NDArray[np.floating], settings: Method) -> list[str]:
    """Names of the parcels that are covered too little; one without a voxel is, whatever is asked for."""
    seen = (coverage >= settings.min_coverage) & (coverage > 0)
    return [name for name, is_seen in zip(atlas.names, seen, strict=True) if not is_seen]


def common_metadata(results: Results, atlas: Atlas | None = None) -> dict[str, Any]:
    """Return what every sidecar of a recording says: sources, software, configuration, resolution, atlas."""
    recording = results.recording
    sources = (recording.bold, recording.mask, recording.confounds)
    metadata: dict[str, Any] = {
        "Sources": [bids_uri(path, results.datasets) for path in sources if path is not None],
        "Software": "fcpower_bids",
        "SoftwareVersion": __version__,
        "ConfigurationHash": results.settings.configuration_hash(),
    }
    for key, name in (("res", "Resolution"), ("den", "Density")):
        if label := dict(recording.entities).get(key):
            metadata[name] = f"The {name.lower()} '{key}-{label}' of the source file"
    if atlas is not None:
        metadata["Atlas"] = {"Name": atlas.name, "Space": atlas.space, "Source": atlas.source, "License": atlas.licence}
        if atlas.image.is_file():
            metadata["Atlas"]["Sha256"] = known_digest(atlas.image)
    return metadata


def cleaning_metadata(results: Results, number: int) -> dict[str, Any]:
    """Return what the sidecar of a cleaned series or connectome says about its cleaning."""
    cleaning, settings, atlas = results.cleaning, results.settings, results.atlases[number]
    return {
        **common_metadata(results, atlas),
        "NumberOfVolumes": len(cleaning.kept),
        SERIES_VOLUMES: int(cleaning.kept.sum()),
        "NumberOfVolumesDiscardedByUser": cleaning.n_dummy,
        "SecondsUsed": cleaning.seconds_kept,
        "EffectiveDegreesOfFreedom": cleaning.degrees_of_freedom,
        "CoverageThreshold": settings.min_coverage,
        "UncoveredNodes": _uncovered(atlas, results.series[number].coverage, settings),
        "FlatNodes": [atlas.names[parcel] for parcel in results.series[number].flat],
        "StrayNodes": [atlas.names[parcel] for parcel in results.series[number].stray],
        "Notes": list(cleaning.notes),
        "SoftwareFilters": {
            "Butterworth": {
                "Type": "zero-phase",
                "Order": settings.filter_order,
                "Padding": settings.padding,
                "HighPassHz": settings.band[0],
                "LowPassHz": settings.band[1],
            }
        },
        "CensoringThresholdMillimetres": settings.fd_thresh,
        "NuisanceStrategy": Path(settings.strategy).name,
        "NuisanceParameters": list(cleaning.design_names),
    }


def tabulate_quality(
    series: ParcelSeries, cleaning: Cleaning, atlas: Atlas, settings: Method, spectrum: Mapping[str, Any]
) -> Measured:
    """Return one row with the figures of the table; those of the cleaned series are missing when excluded."""
    after_dummies = np.arange(len(cleaning.kept)) >= cleaning.n_dummy
    fd = cleaning.framewise_displacement[after_dummies]
    stray = np.zeros_like(cleaning.kept) if cleaning.stray is None else cleaning.stray
    row: dict[str, Any] = dict.fromkeys(QUALITY_TABLE.columns)
    row |= {
        "atlas": atlas.name,
        "state": "excluded" if cleaning.excluded else "done",
        "volumes": len(cleaning.kept),
        "dummy_volumes": cleaning.n_dummy,
        "censored_volumes": int((after_dummies & ~cleaning.kept & ~stray).sum()),
        "kept_volumes": int(cleaning.kept.sum()),
        "seconds_kept": cleaning.seconds_kept,
        "mean_fd": float(np.nanmean(fd)) if np.isfinite(fd).any() else None,
        "max_fd": float(np.nanmax(fd)) if np.isfinite(fd).any() else None,
        "n_regressors": cleaning.n_regressors,
        "degrees_of_freedom": cleaning.degrees_of_freedom,
        "parcels": atlas.n_parcels,
        "uncovered_parcels": len(_uncovered(atlas, series.coverage, settings)),
        "stray_parcels": len(series.stray),
        "mean_coverage": float(series.coverage.mean()),
        "mask_dice": None if series.slices is None else float(series.slices.dice),
        **cleaning.plausibility,
    }
    if not cleaning.excluded:
        leakage = band_leakage(series.clean, cleaning.kept, cleaning.repetition_time, *settings.band)
        row |= {"rank": spectrum["Rank"], "clipped": spectrum["NumberClipped"]}
        row |= {"participation_ratio": spectrum["ParticipationRatio"], "band_leakage": float(np.nanmean(leakage))}
        row["participation_ratio_power"] = spectrum["ParticipationRatioPower"]
    return pd.DataFrame([row]), {"Reason": cleaning.excluded} if cleaning.excluded else {}


def tabulate_spectrum(series: ParcelSeries, settings: Method) -> Measured:
    """Return one row per eigenvalue, with rank, clipped eigenvalues and participation ratios as metadata."""
    covered = covered_parcels(series.connectivity)
    eigenvalues, _ = eigendecompose(series.connectivity[np.ix_(covered, covered)])
    weights = power_weights(eigenvalues, settings.alpha)
    table = pd.DataFrame(
        {"rank": np.arange(1, len(eigenvalues) + 1), "eigenvalue": eigenvalues, "eigenvalue_power": weights}
    )
    summary = spectrum_summary(eigenvalues, settings.alpha)
    names = {key: key.title().replace("_", "") for key in summary} | {"n_clipped": "NumberClipped"}
    return table, {"Alpha": settings.alpha, **{names[key]: value for key, value in summary.items()}}
