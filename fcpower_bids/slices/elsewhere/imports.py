"""Sources of other programs for the group level: read once, written into the output folder, never touched."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.cohort.assembly import check_phenotypes, sessions_of
from fcpower_bids.cohort.features import NO_SESSION
from fcpower_bids.core.connectome.connectivity import covered_parcels, pearson_connectivity, standardise
from fcpower_bids.core.connectome.matrix_formats import (
    ORDERS,
    SCALES,
    Rounding,
    correlations_from,
    rounding_step,
    without_rounding,
)
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.connectome.spectrum import spectrum_summary
from fcpower_bids.errors import DatasetError, RecordingError, Unfit, UsageError
from fcpower_bids.imaging.atlas.tables import unique_names
from fcpower_bids.inputs.roots import OWN_FOLDER
from fcpower_bids.inputs.spreadsheets import read_spreadsheet
from fcpower_bids.measures.quality import QUALITY as QUALITY_MEASURE
from fcpower_bids.outputs.dataset import NAME, bids_uri, prepare_dataset
from fcpower_bids.outputs.names import CONNECTIVITY, QUALITY, TIMESERIES, path_of
from fcpower_bids.outputs.status import DONE, FAILED, Status, read_status, write_status
from fcpower_bids.outputs.tables import describe_files, program_names, read_table, write_declared, write_matrix
from fcpower_bids.records import Entities
from fcpower_bids.schema import SERIES_VOLUMES
from fcpower_bids.settings import Settings
from fcpower_bids.slices.elsewhere.arrays import read_array
from fcpower_bids.slices.elsewhere.layouts import (
    MATRIX,
    SERIES,
    Offered,
    check_names,
    find_offered,
    label_of,
    layout_names,
    load_layout,
    recognise,
)
from fcpower_bids.workflows.cohorts import Source
from fcpower_bids.workflows.run_progress import say

COLUMNS = (
    *("participant_id", "path", "session_id", "task", "run", "kind", "key", "scale", "order", "orientation", "atlas"),
    *("repetition_time", "minutes", "mean_fd", "strategy"),
)


def read_list(table: Path) -> list[Offered]:
    """Read a list of series or connectomes. Raises DatasetError."""
    sheet = read_spreadsheet(table)
    lacking = [name for name in ("participant_id", "path") if name not in sheet.names]
    unknown = [name for name in sheet.names if name not in COLUMNS]
    if lacking or unknown:
        fault = f"lacks the column {lacking[0]}" if lacking else f"has the unknown column {unknown[0]}"
        raise DatasetError(f"{table} {fault}. Its columns can be: {', '.join(COLUMNS)}.")
    cells = (dict(zip(sheet.names, row, strict=True)) for row in sheet.rows)
    offered = [_offer(_Row(row, table, line)) for row, line in zip(cells, sheet.lines, strict=True)]
    if not offered:
        raise DatasetError(f"{table} has no rows. Write one per recording.")
    check_names(offered)
    return offered


@dataclass(frozen=True)
class _Row:
    """One line of the list."""

    cells: Mapping[str, str]
    table: Path
    line: int

    def text(self, name: str, default: str = "") -> str:
        return self.cells.get(name) or default

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise DatasetError(f"{self.table}, line {self.line}: {name} is '{value}', not one of {', '.join(allowed)}.")
        return value

    def number(self, name: str) -> float:
        value = self.text(name, "nan")
        try:
            found = float(value)
        except ValueError:
            raise DatasetError(f"{self.table}, line {self.line}: {name} is '{value}', not a number.") from None
        if found < 0:
            raise DatasetError(f"{self.table}, line {self.line}: {name} is {value}, below 0.")
        return found

    def entities(self) -> Entities:
        found = [("sub", label_of(self.text("participant_id").removeprefix("sub-"), self.table))]
        for key, column, default in (("ses", "session_id", ""), ("task", "task", "rest"), ("run", "run", "")):
            text = self.text(column, default).removeprefix(f"{key}-").removesuffix(".0")
            if text:
                found.append((key, label_of(text, self.table)))
        return tuple(found)


def _offer(row: _Row) -> Offered:
    if not row.text("participant_id") or not row.text("path"):
        raise DatasetError(f"{row.table}, line {row.line} lacks participant_id or path.")
    path = (row.table.parent / row.text("path")).resolve()
    _refuse_another(row)
    return Offered(
        path,
        row.choice("kind", (SERIES, MATRIX), SERIES if path.name.endswith(".ptseries.nii") else MATRIX),
        row.entities(),
        (("atlas", label_of(row.text("atlas", "listed"), row.table)),),
        key=row.text("key"),
        scale=row.choice("scale", SCALES, "r"),
        order=row.choice("order", ORDERS, "upper"),
        parcels_first=row.choice("orientation", ("time", "parcels"), "time") == "parcels",
        repetition_time=row.number("repetition_time"),
        seconds=row.number("minutes") * 60,
        mean_fd=row.number("mean_fd"),
        strategy=row.text("strategy", "unknown"),
    )


def _refuse_another(row: _Row) -> None:
    """Refuse a row whose path names another person: lines of two columns have slipped against each other."""
    label = row.text("participant_id").removeprefix("sub-")
    named = set(re.findall(r"(?:^|[/_])sub-([A-Za-z0-9+]+)", row.text("path")))
    if others := sorted(one for one in named if one.lstrip("0").casefold() != label.lstrip("0").casefold()):
        raise DatasetError(
            f"{row.table}, line {row.line}: the path {row.text('path')} is of sub-{others[0]}, and participant_id says "
            f"{label}. Correct one of them."
        )


@dataclass(frozen=True, eq=False)
class Imported:
    """One recording under one parcellation."""

    # entities, atlas: for the names of the files
    entities: Entities
    atlas: Entities
    parcels: tuple[str, ...]
    series: np.ndarray | None  # (T, P), or None: Z-scored; None where the source has matrices only
    connectivity: np.ndarray  # (P, P): Pearson correlations
    # volumes, seconds, mean_fd, repetition_time: NaN where unknown
    volumes: float
    seconds: float
    mean_fd: float
    repetition_time: float
    facts: Mapping[str, Any]  # further entries of the sidecars: source, strategy, digits


def write_imported(output_dir: Path, of_recording: Sequence[Imported]) -> list[Path]:
    """Write the files of one recording under all its parcellations, the quality table last."""
    paths: list[Path] = []
    for one in of_recording:
        facts = _facts(one)
        if one.series is not None:
            path = path_of(output_dir, one.entities, one.atlas, TIMESERIES)
            paths.append(write_matrix(path, one.series, one.parcels))
            paths.append(describe_files({**facts, "Units": "standard deviations (z-scored)"}, path))
        path = path_of(output_dir, one.entities, one.atlas, CONNECTIVITY)
        paths.append(write_matrix(path, one.connectivity, one.parcels, index=one.parcels))
        paths.append(describe_files(facts, path))
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


LIST = "list"
PEOPLE = "raw"
"""Name of the link to the dataset with the tables of people, which `predict` follows."""
OWN = re.compile(r"fmriprep\d*|nibabies")
"""Names of sources that the participant level reads; the group level has no use for them."""


def bring_sources(settings: Settings) -> None:
    """Bring what ``--derivatives`` names into the output folder, unless unchanged. Raises UsageError, DatasetError."""
    sources = list(_sources(settings))
    if not sources:
        return
    there = [dict(one.entities) for _, _, of_source in sources for one in of_source]
    asked = {label.removeprefix("sub-") for label in settings.participant_label}
    if scanned := sessions_of(
        (f"sub-{labels['sub']}", f"ses-{labels['ses']}" if "ses" in labels else NO_SESSION)
        for labels in there
        if not asked or labels["sub"] in asked
    ):
        check_phenotypes(settings, scanned)  # before a thousand series are read
    roots = {name: root for name, root, _ in sources}
    prepare_dataset(settings, {**roots, PEOPLE: settings.bids_dir})
    for name, root, offered in sources:
        done = [_import_recording(list(of_one), name, root, settings) for _, of_one in _by_recording(offered)]
        count = {state: done.count(state) for state in ("new", "unchanged", FAILED)}
        say(f"{name}: " + ", ".join(f"{n} recordings {state}" for state, n in count.items() if n), settings)
        if done == [FAILED] * len(done):
            status = read_status(settings.output_dir, offered[0].name)
            raise DatasetError(f"Nothing of {root} can be used. {status.reason if status else ''}".rstrip())


def _sources(settings: Settings) -> Iterator[tuple[str, Path, list[Offered]]]:
    for text in settings.derivatives:
        name, _, place = text.rpartition("=")
        root = Path(place).absolute()
        if settings.output_dir.absolute().is_relative_to(root):
            raise UsageError(f"The output folder {settings.output_dir} lies in the source {root}. Choose another.")
        if NAME in program_names(root):
            raise UsageError(OWN_FOLDER.format(root))
        if name == LIST or root.is_file():
            yield name or LIST, root.parent, read_list(root)
        elif layout := name if name in layout_names() else recognise(root):
            yield name or layout, root, find_offered(root, load_layout(layout))
        elif not OWN.fullmatch(name or "fmriprep"):
            raise UsageError(
                f"--derivatives {text}: the layout of this source is not known. Name it: "
                f"{', '.join(f'{one}=PATH' for one in (*layout_names(), LIST))}."
            )


def _by_recording(offered: Iterable[Offered]) -> Iterator[tuple[str, Iterator[Offered]]]:
    return groupby(sorted(offered, key=lambda one: (one.name, one.atlas)), key=lambda one: one.name)


def _import_recording(of_one: Sequence[Offered], source: str, root: Path, settings: Settings) -> str:
    """Import one recording under all its parcellations; return whether it was new, unchanged or failed."""
    output, name = settings.output_dir, of_one[0].name
    state = f"{__version__};{source};" + ";".join(_state_of(one) for one in of_one)
    before = read_status(output, name)
    quality = path_of(output, of_one[0].entities, (), QUALITY)
    if before is not None and before.state == DONE and before.fingerprint == state and quality.is_file():
        return "unchanged"
    if before is None and quality.is_file():
        raise UsageError(f"{output} holds {name} already, from elsewhere. Choose another output folder.")
    try:
        read = [_read(one, source, root) for one in of_one]
    except (RecordingError, DatasetError, Unfit) as error:
        reason = str(error) if isinstance(error, (RecordingError, DatasetError)) else f"{of_one[0].path}: {error}."
        write_status(output, Status(name, FAILED, "import", reason, fingerprint=state))
        return FAILED
    paths = write_imported(output, read)
    names = tuple(path.relative_to(output).as_posix() for path in paths)
    write_status(output, Status(name, DONE, "import", fingerprint=state, outputs=names))
    return "new"


def _state_of(one: Offered) -> str:
    """Dependencies of the result: all declarations, size and time of the files."""
    stats = [path.stat() for path in (one.path, one.outliers) if path is not None and path.is_file()]
    return repr((replace(one, path=Path(one.path.name), outliers=None), [(s.st_size, s.st_mtime_ns) for s in stats]))


def _read(one: Offered, source: str, root: Path) -> Imported:
    values, names = read_array(one.path, one.key)
    facts = {"Sources": [bids_uri(one.path, {source: root})], "NuisanceStrategy": f"{source}: {one.strategy}"}
    series, volumes = None, one.volumes
    if one.kind == SERIES:
        series = _series(values.T if one.parcels_first else values, one)
        volumes, connectivity = float(len(series)), pearson_connectivity(series)
    else:
        connectivity, rounding = without_rounding(
            correlations_from(values, one.scale, one.order), rounding_step(values)
        )
        facts["Description"] = "Connectome as the source has it; it has no series, so nothing can be computed anew"
        facts |= _describe_rounding(rounding)
    if len(set(names)) < len(names):
        raise RecordingError(f"{one.path} has two parcels of one name. Rename one.")
    numbers = range(1, len(connectivity) + 1)
    parcels = unique_names(numbers, names) if len(names) == len(numbers) else tuple(f"parcel{n:04d}" for n in numbers)
    seconds = volumes * one.repetition_time if np.isfinite(volumes * one.repetition_time) else one.seconds
    return Imported(
        one.entities,
        one.atlas,
        parcels,
        series,
        connectivity,
        volumes,
        seconds,
        one.mean_fd,
        one.repetition_time,
        facts,
    )


def _describe_rounding(rounding: Rounding) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if rounding.step:
        facts = {"RoundingStep": rounding.step, "RoundingNoise": rounding.noise, "ClearedEigenvalues": rounding.cleared}
    if rounding.indefinite:
        facts["LowestEigenvalue"] = rounding.lowest
        facts["Note"] = "Negative eigenvalues beyond rounding: these are not the correlations of one complete series"
    return facts


def _series(values: np.ndarray, one: Offered) -> np.ndarray:
    """Z-scored volumes that the source used; constant parcels are missing, as at participant level."""
    if values.ndim != 2 or len(values) < 3:
        raise RecordingError(f"{one.path} is no series of volumes by parcels: its shape is {values.shape}.")
    if one.outliers is not None:
        out = read_table(one.outliers).iloc[:, 0].to_numpy(dtype=float) > 0
        if len(values) not in (len(out), int((~out).sum())):
            raise RecordingError(
                f"{one.path} has {len(values)} volumes, but {one.outliers.name} has {len(out)}, {int((~out).sum())} of "
                "them kept: they are not of one recording. Run the program that wrote them again."
            )
        values = values[~out] if len(out) == len(values) else values
    values = np.where(np.ptp(values, axis=0) == 0, np.nan, values)
    return standardise(values)


SOURCE = Source(lambda settings: any(True for _ in _sources(settings)), bring_sources)
