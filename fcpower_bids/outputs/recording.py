"""Every file of one recording: tables, sidecars, and the final status, written last."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.series import HEAD_RADIUS, convention_of
from fcpower_bids.measures import MEASURES
from fcpower_bids.outputs.dataset import bids_uri, parcels_path
from fcpower_bids.outputs.names import (
    CONNECTIVITY,
    DESIGN,
    OUTLIERS,
    TIMESERIES,
    file_name,
    order_entities,
    output_path,
    parse_name,
)
from fcpower_bids.outputs.status import (
    DONE,
    EXCLUDED,
    Status,
    status_path,
    write_status,
)
from fcpower_bids.outputs.tables import (
    declared_text,
    describe_files,
    write_array,
    write_declared,
    write_matrix,
)
from fcpower_bids.records import Atlas, Cleaning, Output, ParcelSeries, Recording
from fcpower_bids.resources import peak_megabytes
from fcpower_bids.schema import SERIES_VOLUMES, TABLES
from fcpower_bids.settings import Participant
from fcpower_bids.store import known_digest, write_bytes, write_text
from fcpower_bids.transforms.connectomes import FC, make_transform

VOLUMES = TABLES["SOURCE_desc-confounds_outliers"]


Bundle = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]
"""Arrays by name and facts by name, ``"<atlas number>/<what>"``."""


FULL = "Full"
"""How a matrix is stored: as a table, or as the array of its edges alone."""
FLAT = 1e-9
"""Range of a diagonal that is rounding."""


Measured = tuple[str, Mapping[str, Any]]
"""A table as text, and the metadata of its sidecar."""


class Written(NamedTuple):
    """Files of a recording."""

    files: tuple[str, ...]  # relative to the output folder
    excluded: str  # why it has no connectome; empty when it has one
    # state and reason of each embedding that there is not, by the name of its atlas
    problems: Mapping[str, tuple[str, str]]


ATLAS_NAME = re.compile(r"[a-z]+-[a-zA-Z0-9+]+(_[a-z]+-[a-zA-Z0-9+]+)*")


@dataclass(frozen=True, eq=False)
class Results:
    """Everything known about one processed recording."""

    recording: Recording
    atlases: tuple[Atlas, ...]
    settings: Participant
    datasets: Mapping[str, Path]
    cleaning: Cleaning
    series: list[ParcelSeries]
    connectomes: Bundle
    embeddings: Bundle
    tables: Mapping[str, Measured] = field(default_factory=dict)
    """Results of measures, ``"<atlas number>/<measure>"`` or ``"<measure>"`` of the recording; others are computed."""


def write_recording(output_dir: Path, results: Results) -> Written:
    """Write all files of a recording but its status."""
    paths = [path for part in (_recording_files, _atlas_files) for path in part(output_dir, results)]
    names = tuple(path.relative_to(output_dir).as_posix() for path in paths)
    facts = results.embeddings[1]
    problems = {key.partition("/")[2]: facts[key] for key in facts if key.startswith("problem/")}
    return Written(names, results.cleaning.excluded, problems)


def conclude_recording(
    output_dir: Path,
    recording: str,
    written: Written,
    fingerprint: str,
    seconds: float,
    embedded: Mapping[str, str],
    inputs: str,
) -> Status:
    """Write the final status of a recording, and those of embeddings that there are not: it is done all the same."""
    state, stage = (EXCLUDED, "bandpass") if written.excluded else (DONE, "sink")
    status = Status(recording, state, stage, written.excluded, seconds, peak_megabytes(), fingerprint, written.files)
    status = write_status(output_dir, replace(status, inputs=inputs))
    for atlas, name in embedded.items():
        if atlas in written.problems:
            problem, sentence = written.problems[atlas]
            write_status(output_dir, Status(name, problem, "embed", sentence))
        else:
            status_path(output_dir, name).unlink(missing_ok=True)
    return status


def _recording_files(output_dir: Path, results: Results) -> Iterator[Path]:
    """Files that do not depend on the atlas: design, censored volumes, measures of the recording."""
    cleaning, recording = results.cleaning, results.recording
    base = common_metadata(results)
    path = output_path(output_dir, recording, DESIGN)
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
    path = output_path(output_dir, recording, OUTLIERS)
    yield write_declared(path, outliers, VOLUMES)
    motion = motion_metadata(results.settings)
    yield describe_files({**base, **VOLUMES.describe(), **motion, "Threshold": results.settings.fd_thresh}, path)
    for name, measure in MEASURES.items():
        if measure.of_recording:
            text, facts = results.tables.get(name) or measure_recording(results, name)
            path = output_path(output_dir, recording, measure.output)
            yield write_text(path, text + "".join(_rows_of_other_atlases(path, text, results)))
            chosen = {"CleaningChoices": results.settings.cleaning()}
            yield describe_files({**base, **facts, **chosen, **measure.table.describe()}, path)


def _rows_of_other_atlases(path: Path, text: str, results: Results) -> Iterator[str]:
    """Rows of the table that is there, of atlases of an earlier run whose connectomes are there too."""
    header = text.partition("\n")[0]
    there = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    if results.cleaning.excluded or there[:1] != [header]:
        return
    names, place = {atlas.name for atlas in results.atlases}, header.split("\t").index("atlas")
    for row in there[1:]:
        name = row.split("\t")[place] if row.count("\t") == header.count("\t") else ""
        if not ATLAS_NAME.fullmatch(name) or name in names:
            continue
        own = results.recording.entities, parse_name(f"{name}_relmat.tsv")[0], CONNECTIVITY.entities
        table = path.with_name(file_name(order_entities(*own), CONNECTIVITY.suffix, CONNECTIVITY.extension))
        if table.is_file() or table.with_suffix(".npy").is_file():
            yield f"{row}\n"


def _atlas_files(output_dir: Path, results: Results) -> Iterator[Path]:
    for number, atlas in enumerate(results.atlases):
        for name, measure in MEASURES.items():
            if not measure.of_recording and (measure.of_excluded or not results.cleaning.excluded):
                text, facts = results.tables.get(f"{number}/{name}") or measure_atlas(results, name, number)
                path = output_path(output_dir, results.recording, measure.output, atlas)
                yield write_text(path, text)
                yield describe_files({**common_metadata(results, atlas), **facts, **measure.table.describe()}, path)
        if results.cleaning.excluded:
            fc = output_path(output_dir, results.recording, CONNECTIVITY, atlas)
            _forget_transforms(fc, ())
            _forget_embeddings(fc)
        else:
            yield from _series_files(output_dir, results, number)
            yield from _connectome_files(output_dir, results, number)
            yield from _embedding_files(output_dir, results, number)


def measure_all(results: Results) -> dict[str, Measured]:
    """Return every table that a recording has, by the names that ``Results.tables`` uses."""
    tables: dict[str, Measured] = {}
    for name, measure in MEASURES.items():
        if measure.of_recording:
            tables[name] = measure_recording(results, name)
        elif measure.of_excluded or not results.cleaning.excluded:
            numbers = range(len(results.atlases))
            tables |= {f"{number}/{name}": measure_atlas(results, name, number) for number in numbers}
    return tables


def measure_recording(results: Results, name: str) -> Measured:
    """Return one measure under every atlas, in one table."""
    tables: list[pd.DataFrame] = []
    metadata: dict[str, Any] = {}
    for number in range(len(results.atlases)):
        table, facts = _compute(results, name, number)
        tables.append(table)
        metadata |= facts
    return declared_text(pd.concat(tables, ignore_index=True), MEASURES[name].table), metadata


def measure_atlas(results: Results, name: str, number: int) -> Measured:
    """Return one measure under one atlas."""
    table, facts = _compute(results, name, number)
    return declared_text(table, MEASURES[name].table), facts


def _compute(results: Results, name: str, number: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    series, fc = results.series[number], results.connectomes[0].get(f"{number}/{FC}")
    series = series if fc is None else replace(series, connectivity=fc)
    table, facts = MEASURES[name].compute(series, results.cleaning, results.atlases[number], results.settings)
    return table, facts


def _series_files(output_dir: Path, results: Results, number: int) -> Iterator[Path]:
    atlas, clean = results.atlases[number], results.series[number].clean
    path = output_path(output_dir, results.recording, TIMESERIES, atlas)
    path.with_suffix(".npy").unlink(missing_ok=True)  # of a former version
    tr = results.cleaning.repetition_time
    facts = {"RepetitionTime": tr, "SamplingFrequency": 1 / tr, "Units": "standard deviations (z-scored)"}
    yield write_matrix(path, clean, atlas.names)
    if atlas.is_cifti:
        from fcpower_bids.imaging.series.cifti import encode_ptseries  # loads nibabel, only CIFTI needs it

        yield write_bytes(path.with_suffix(".ptseries.nii"), encode_ptseries(clean, atlas, tr))
    yield describe_files({**cleaning_metadata(results, number), **facts}, path)


def _connectome_files(output_dir: Path, results: Results, number: int) -> Iterator[Path]:
    matrices, facts = results.connectomes
    atlas = results.atlases[number]
    array = output_path(output_dir, results.recording, CONNECTIVITY, atlas).with_suffix(".npy")
    before = array.read_bytes() if array.is_file() else b""
    for name in (key.partition("/")[2] for key in matrices if key.partition("/")[0] == str(number)):
        output = CONNECTIVITY if name == FC else Output("relmat", make_transform(name, results.settings).entities)
        path = output_path(output_dir, results.recording, output, atlas)
        matrix = matrices[f"{number}/{name}"]
        files = [write_matrix(path, matrix, atlas.names, index=atlas.names)]
        if name == FC:  # also as an array: a cohort is gathered from these in a tenth of the time
            files.append(write_array(array, vectorise_edges(matrix, weighted=False)))
            if before != array.read_bytes():
                _forget_transforms(path, files)
                _forget_embeddings(path)
        yield from files
        if atlas.is_cifti:
            from fcpower_bids.imaging.series.cifti import encode_pconn  # loads nibabel, only CIFTI needs it

            yield write_bytes(path.with_suffix(".pconn.nii"), encode_pconn(matrix, atlas))
        about = {**cleaning_metadata(results, number), **relationship_metadata(output_dir, results, number, matrix)}
        stat = dict(output.entities)["stat"]
        measure = RELATIONSHIPS.get(stat, stat)
        yield describe_files({**about, "RelationshipMeasure": measure, **facts[f"{number}/{name}"]}, path)


RELATIONSHIPS = {
    "pearsoncorrelation": "Pearson correlation",
    "partialcorrelation": "partial correlation",
    "precision": "precision",
}
"""Meaning of the entity ``stat`` of a matrix."""


def relationship_metadata(output_dir: Path, results: Results, number: int, matrix: np.ndarray) -> dict[str, Any]:
    """Return the sidecar entries of a matrix by the draft of BEP017; a constant diagonal is left out."""
    atlas, datasets = results.atlases[number], {"": output_dir}
    diagonal = np.diag(matrix)[np.isfinite(np.diag(matrix))]
    about: dict[str, Any] = {
        "Weighted": True,
        "Directed": False,
        "ValidDiagonal": bool(diagonal.size and np.ptp(diagonal) > FLAT),
        "StorageFormat": FULL,
        "NodeFiles": [bids_uri(parcels_path(output_dir, atlas), datasets)],
    }
    about["Sources"] = [bids_uri(output_path(output_dir, results.recording, TIMESERIES, atlas), datasets)]
    return about


def _embedding_files(output_dir: Path, results: Results, number: int) -> Iterator[Path]:
    arrays, facts = results.embeddings
    for key in (key for key in arrays if key.partition("/")[0] == str(number)):
        label = key.partition("/")[2]
        path = output_path(
            output_dir, results.recording, Output("embedding", (("desc", label),)), results.atlases[number]
        )
        vector = np.atleast_2d(arrays[key])
        yield write_matrix(path, vector, [f"dim{i:04d}" for i in range(vector.shape[1])])
        yield describe_files({**cleaning_metadata(results, number), **facts[key]}, path)


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
    if recording.entity("res"):
        metadata["Resolution"] = f"The resolution 'res-{recording.entity('res')}' of the source file"
    if recording.entity("den"):
        metadata["Density"] = f"The density 'den-{recording.entity('den')}' of the source file"
    if atlas is not None:
        metadata["Atlas"] = {"Name": atlas.name, "Space": atlas.space, "Source": atlas.source, "License": atlas.licence}
        if atlas.image.is_file():
            metadata["Atlas"]["Sha256"] = known_digest(atlas.image)
    return metadata


def cleaning_metadata(results: Results, number: int) -> dict[str, Any]:
    """Return what the sidecar of a cleaned series or connectome says about its cleaning."""
    cleaning, settings, atlas = results.cleaning, results.settings, results.atlases[number]
    convention = convention_of(settings.convention, settings.filter_order, settings.padding)
    coverage = results.series[number].coverage
    return {
        **common_metadata(results, atlas),
        "NumberOfVolumes": len(cleaning.kept),
        SERIES_VOLUMES: int(cleaning.kept.sum()),
        "NumberOfVolumesDiscardedByUser": cleaning.n_dummy,
        "SecondsUsed": cleaning.seconds_kept,
        "EffectiveDegreesOfFreedom": cleaning.degrees_of_freedom,
        "CoverageThreshold": settings.min_coverage,
        "UncoveredNodes": [n for n, c in zip(atlas.names, coverage, strict=True) if c < settings.min_coverage],
        "FlatNodes": [atlas.names[parcel] for parcel in results.series[number].flat],
        "StrayNodes": [atlas.names[parcel] for parcel in results.series[number].stray],
        "Notes": list(cleaning.notes),
        "SoftwareFilters": {
            "Butterworth": {
                "Type": "zero-phase",
                "Order": convention.order,
                "Padding": convention.padding,
                "HighPassHz": settings.band[0],
                "LowPassHz": settings.band[1],
            }
        },
        "CensoringThresholdMillimetres": settings.fd_thresh,
        "CleaningConvention": settings.convention,
        "NuisanceStrategy": Path(settings.strategy).name,
        "NuisanceParameters": list(cleaning.design_names),
    }


def motion_metadata(settings: Participant) -> dict[str, Any]:
    """Return what was done to the motion parameters before the displacement; nothing where it is that of the table."""
    about: dict[str, Any] = {}
    if settings.head_radius or settings.motion_filter_type:
        about["HeadRadiusMillimetres"] = settings.head_radius or HEAD_RADIUS
    if settings.motion_filter_type:
        stop = [edge for edge in (settings.band_stop_min, settings.band_stop_max) if edge is not None]
        about["MotionFilter"] = {
            "Type": settings.motion_filter_type,
            "BreathsPerMinute": stop,
            "Order": settings.motion_filter_order,
        }
    return about


def _forget_transforms(fc: Path, written: Collection[Path]) -> None:
    """Remove what other choices have made of a connectome: its tables and the transforms."""
    for path in fc.parent.glob(f"{fc.name.partition('_stat-')[0]}_stat-*_relmat.*"):
        if path not in written and path != _beside(fc):
            path.unlink(missing_ok=True)


def _forget_embeddings(fc: Path) -> None:
    """Remove the embeddings of the series of which another connectome was made before."""
    for path in fc.parent.glob(f"{fc.name.partition('_stat-')[0]}_*embedding.*"):
        path.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")
