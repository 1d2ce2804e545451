"""Sources of other programs for the group level: read once, written into the output folder, never touched."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.cohort.assembly import check_phenotypes, sessions_of
from fcpower_bids.cohort.inclusion import NO_SESSION, number_of
from fcpower_bids.cohort.people import tables_of
from fcpower_bids.core import edges
from fcpower_bids.core.connectome import covered_parcels, eigenvalues, pearson_connectivity, spectrum_summary
from fcpower_bids.elsewhere.layouts import (
    MATRIX,
    SERIES,
    Offered,
    check_names,
    find_offered,
    label_of,
    layout_names,
    load_layout,
    read_array,
    recognise,
)
from fcpower_bids.errors import DatasetError, RecordingError, Unfit, UsageError
from fcpower_bids.imaging.atlas_files import unique_names
from fcpower_bids.inputs.roots import PREPROCESSED, output_folders
from fcpower_bids.inputs.sources import LONGEST_TR
from fcpower_bids.outputs import dataset
from fcpower_bids.outputs.recording import QUALITY_TABLE
from fcpower_bids.outputs.status import (
    DONE,
    FAILED,
    Status,
    current_status,
    read_status,
    read_statuses,
    status_path,
    write_status,
)
from fcpower_bids.outputs.tables import (
    SERIES_COLUMNS,
    describe_files,
    read_json,
    read_table,
    write_array,
    write_table,
)
from fcpower_bids.parallel import map_tasks, say, track
from fcpower_bids.records import Output, join, space_of
from fcpower_bids.schema import SERIES_VOLUMES, read_spreadsheet
from fcpower_bids.settings import Settings
from fcpower_bids.store import LOCKS, lock, sweep

COLUMNS = (
    *("participant_id", "path", "session_id", "task", "run", "kind", "key", "scale", "order", "orientation", "atlas"),
    *("repetition_time", "minutes", "mean_fd", "strategy"),
)
CHOICES = {
    **{"kind": (SERIES, MATRIX), "scale": edges.SCALES, "order": edges.ORDERS},
    "orientation": ("time", "parcels"),
}


def read_list(table: Path) -> list[Offered]:
    """Read a list of series or connectomes. Raises DatasetError."""
    sheet = read_spreadsheet(table)
    lacking = [name for name in ("participant_id", "path") if name not in sheet.names]
    unknown = [name for name in sheet.names if name not in COLUMNS]
    if lacking or unknown:
        fault = f"lacks the column {lacking[0]}" if lacking else f"has the unknown column {unknown[0]}"
        raise DatasetError(f"{table} {fault}. Its columns can be: {', '.join(COLUMNS)}.")
    rows = zip(sheet.rows, sheet.lines, strict=True)
    offered = [_offer(dict(zip(sheet.names, row, strict=True)), table, f"{table}, line {line}") for row, line in rows]
    if not offered:
        raise DatasetError(f"{table} has no rows. Write one per recording.")
    check_names(offered)
    return offered


def _offer(cells: Mapping[str, str], table: Path, line: str) -> Offered:
    for name, allowed in CHOICES.items():
        if cells.get(name) and cells[name] not in allowed:
            raise DatasetError(f"{line}: {name} is '{cells[name]}', not one of {', '.join(allowed)}.")
    numbers = {name: number_of(cells.get(name) or "nan") for name in ("repetition_time", "minutes", "mean_fd")}
    for name, amount in numbers.items():
        if cells.get(name) and not amount >= 0:
            raise DatasetError(f"{line}: {name} is '{cells[name]}', not a number of 0 or more.")
    if numbers["repetition_time"] > LONGEST_TR:
        raise DatasetError(
            f"{line}: repetition_time is {cells['repetition_time']} s, which looks like milliseconds. Give seconds."
        )
    text, label = cells.get("path", ""), re.sub(r"(?i)^sub-|(?<=\d)\.0+$", "", cells.get("participant_id", ""))
    if not label or not text:
        raise DatasetError(f"{line} lacks participant_id or path.")
    path = (table.parent / (text if (table.parent / text).exists() else text.replace("\\", "/"))).resolve()  # Windows
    named = set(re.findall(r"(?:^|[/\\_])sub-([A-Za-z0-9+]+)", text))
    # A path that names another person: lines of two columns have slipped against each other.
    if others := sorted(person for person in named if person.lstrip("0").casefold() != label.lstrip("0").casefold()):
        raise DatasetError(
            f"{line}: the path {text} is of sub-{others[0]}, and participant_id says {label}. Correct one of them."
        )
    entities = [("sub", label_of(label, table))]
    for key, column, default in (("ses", "session_id", ""), ("task", "task", "rest"), ("run", "run", "")):
        if cell := (cells.get(column) or default).removeprefix(f"{key}-").removesuffix(".0"):
            entities.append((key, label_of(cell, table)))
    return Offered(
        path,
        cells.get("kind") or (SERIES if path.name.endswith(".ptseries.nii") else MATRIX),
        tuple(entities),
        (("atlas", label_of(cells.get("atlas") or "listed", table)),),
        key=cells.get("key", ""),
        scale=cells.get("scale") or "r",
        order=cells.get("order") or "upper",
        parcels_first=cells.get("orientation") == "parcels",
        repetition_time=numbers["repetition_time"] or math.nan,  # 0 states nothing
        seconds=numbers["minutes"] * 60,
        mean_fd=numbers["mean_fd"],
        strategy=cells.get("strategy") or "unknown",
    )


LIST, IMPORT = "list", "import"


def bring_sources(settings: Settings) -> None:
    """Bring what ``--derivatives`` names into the output folder, unless unchanged. Raises UsageError, DatasetError."""
    folders = output_folders(settings, settings.output_dir)
    if "" not in folders:
        if settings.output_dir.resolve() in {folder.resolve() for folder in folders.values()}:
            raise UsageError(f"The output folder {settings.output_dir} is one of --derivatives. Choose one of its own.")
        dataset.prepare_dataset(settings, folders)
        return
    sources = list(_sources(settings))
    if not sources:
        return
    if len(sources) > 1:
        names = " and ".join(f"{name}={root}" for name, root, _ in sources)
        raise UsageError(
            f"An output folder holds one source, and --derivatives names {names}. Run each into an output folder of "
            "its own, and then read these as sites: -d one=OUT1 two=OUT2."
        )
    ((name, place, offered),) = sources
    root = place if place.is_dir() else place.parent
    asked = {label.removeprefix("sub-") for label in settings.inputs.participant_label}
    there = [dict(recording.entities) for recording in offered]
    if scanned := sessions_of(
        (f"sub-{labels['sub']}", f"ses-{labels['ses']}" if "ses" in labels else NO_SESSION)
        for labels in there
        if not asked or labels["sub"] in asked
    ):
        check_phenotypes(settings, scanned)  # before a thousand series are read
    ((new, _),) = dataset.name_inputs({name: root}, settings.output_dir).items()
    linked = dataset.linked_datasets(settings.output_dir).get(new)
    is_same = linked is not None and (not linked.is_dir() or linked.samefile(root))  # it may have been moved
    name = new
    before = [status for status in read_statuses(settings.output_dir) if status.state == DONE]
    lists = ("", place.name)  # other sources are known by their folders
    ours = [is_same and status.stage == IMPORT and (place.is_dir() or status.inputs in lists) for status in before]
    other = next((status for status, is_ours in zip(before, ours, strict=True) if not is_ours), None)
    if other is not None and not settings.run.replace:
        raise UsageError(
            f"{settings.output_dir} holds {other.recording} from another source than {place}. Give each source an "
            "output folder of its own, and read these as sites: -d one=OUT1 two=OUT2; or --replace."
        )
    with lock(settings.output_dir / LOCKS / IMPORT):  # another run may bring them at this moment
        dataset.prepare_dataset(settings, {name: root}, settings.bids_dir)
        still, output = {recording.name for recording in offered}, settings.output_dir
        gone = [status for status in read_statuses(output) if status.stage == IMPORT and status.recording not in still]
        for old in gone:
            for path in dataset.files_of(output, dataset.parse_name(f"{old.recording}_bold.tsv")[0]):
                path.unlink()
            status_path(output, old.recording).unlink(missing_ok=True)
        if gone:
            say(
                f"{len(gone)} recordings that {place} no longer has are removed, such as {gone[0].recording}.", settings
            )
        by_name = groupby(sorted(offered, key=attrgetter("name", "atlas")), key=attrgetter("name"))
        recordings = [list(of_one) for _, of_one in by_name]
        imported = map_tasks(partial(_import_recording, source=name, place=place, settings=settings), recordings)
        done = list(track(imported, f"recordings of {name}", settings, len(recordings)))
    count = {state: done.count(state) for state in ("new", "unchanged", FAILED)}
    say(f"{name}: " + ", ".join(f"{n} recordings {state}" for state, n in count.items() if n), settings)
    if done == [FAILED] * len(done):
        status = read_status(settings.output_dir, offered[0].name)
        raise DatasetError(f"Nothing of {root} can be used. {status.reason if status else ''}".rstrip())


def _sources(settings: Settings) -> Iterator[tuple[str, Path, list[Offered]]]:
    """Name, place and recordings of each source of another program: a folder, or the file of a list."""
    for text in settings.inputs.derivatives:
        name, _, place = text.rpartition("=")
        root = Path(place).absolute()
        if settings.output_dir.absolute().is_relative_to(root):
            raise UsageError(f"The output folder {settings.output_dir} lies in the source {root}. Choose another.")
        if name == LIST or root.is_file():
            yield name or LIST, root, read_list(root)
        elif layout := name if name in layout_names() else recognise(root):
            declared = load_layout(layout)
            if "ordinal" in declared and (settings.group.phenotypes or tables_of(settings.bids_dir)):
                raise UsageError(
                    f"{root}: {declared['about']} counts people as they were entered, and a number is no id. Write a "
                    f"list with participant_id, path, key (Z), scale (z) and, of several conditions, session_id, and "
                    f"give {LIST}=TABLE."
                )
            yield name or layout, root, find_offered(root, declared)
        elif not PREPROCESSED.fullmatch(name or "fmriprep"):
            raise UsageError(
                f"--derivatives {text}: the layout of this source is not known. Name it: "
                f"{', '.join(f'{known}=PATH' for known in (*layout_names(), LIST))}."
            )


def _import_recording(of_one: Sequence[Offered], source: str, place: Path, settings: Settings) -> str:
    """Import one recording under all its parcellations; return whether it was new, unchanged or failed."""
    output, name, root = settings.output_dir, of_one[0].name, place if place.is_dir() else place.parent
    state = f"{source};{__version__};" + ";".join(map(_state_of, of_one))
    before = current_status(output, name)
    quality = dataset.path_of(output, of_one[0].entities, (), dataset.QUALITY)
    if before is not None and before.state == DONE and before.fingerprint == state and quality.is_file():
        return "unchanged"
    if before is None and quality.with_suffix(".json").is_file():  # a run that was stopped before its status left ours
        made_from = read_json(quality.with_suffix(".json")).get("Sources") or [""]
        if not str(made_from[0]).startswith(f"bids:{source}:"):
            raise UsageError(f"{output} holds {name} already, from elsewhere. Choose another output folder.")
    try:
        read = [_read(recording, source, root) for recording in of_one]
    except (RecordingError, DatasetError, Unfit) as error:
        reason = str(error) if isinstance(error, (RecordingError, DatasetError)) else f"{of_one[0].path}: {error}."
        write_status(output, Status(name, FAILED, IMPORT, reason, fingerprint=state))
        return FAILED
    for path in dataset.files_of(output, of_one[0].entities):  # of parcellations that the source no longer has, too
        path.unlink()
    sweep(quality.parent, lambda file: file.startswith(f"{name}_"))
    paths: list[Path] = []
    for recording, (kind, array, facts, _) in zip(of_one, read, strict=True):
        path = dataset.path_of(output, recording.entities, recording.atlas, kind).with_suffix(".npy")
        paths += [write_array(path, array), describe_files(facts, path)]
    about = {key: value for key, value in read[0][2].items() if key not in ("Atlas", SERIES_COLUMNS)}
    paths.append(write_table(quality, pd.DataFrame([row for *_, row in read]), QUALITY_TABLE))
    paths.append(describe_files({**about, **QUALITY_TABLE.describe()}, quality))
    names = tuple(path.relative_to(output).as_posix() for path in paths)
    write_status(output, Status(name, DONE, IMPORT, fingerprint=state, outputs=names, inputs=place.name))
    return "new"


def _state_of(recording: Offered) -> str:
    """Dependencies of the result: all declarations, size and time of the files."""
    stats = [path.stat() for path in (recording.path, recording.outliers) if path is not None and path.is_file()]
    return repr(
        (replace(recording, path=Path(recording.path.name), outliers=None), [(s.st_size, s.st_mtime_ns) for s in stats])
    )


def _read(recording: Offered, source: str, root: Path) -> tuple[Output, np.ndarray, dict[str, Any], dict[str, Any]]:
    """Read a recording under one parcellation: what it is, its array, its sidecar and its row of the quality table.

    Series and connectomes stay arrays, which are written and read in a tenth of the time of text. Where there is a
    series, its connectome is computed whenever it is read, in less time than it takes to store.
    """
    values, names = read_array(recording.path, recording.key)
    facts: dict[str, Any] = {
        "Sources": [dataset.bids_uri(recording.path, {source: root})],
        "NuisanceStrategy": recording.strategy,
    }
    if recording.kind == SERIES:
        series = np.ascontiguousarray(
            _series(values.T if recording.parcels_first else values, recording)  # copies are alike
        )
        volumes, connectivity = float(len(series)), pearson_connectivity(series)
        covered = covered_parcels(connectivity)
        spectrum = eigenvalues(connectivity[np.ix_(covered, covered)])
        kind, array = dataset.TIMESERIES, series
        for narrow in (np.int16, np.float32):  # the first that holds all numbers to the bit
            with np.errstate(invalid="ignore", over="ignore"):
                narrowed = series.astype(narrow)
            if np.array_equal(narrowed, series, equal_nan=True):
                array = narrowed
                break
    else:
        connectivity, spectrum, about = edges.without_rounding(
            edges.correlations_from(values, recording.scale, recording.order), edges.rounding_step(values)
        )
        volumes, kind = recording.volumes, dataset.CONNECTIVITY
        array = edges.vectorise_edges(connectivity, weighted=False)
        facts["Description"] = "Connectome as the source has it; it has no series, so nothing can be computed anew"
        facts |= about
    if len(set(names)) < len(names):
        raise RecordingError(f"{recording.path} has two parcels of one name. Rename one.")
    numbers = range(1, len(connectivity) + 1)
    parcels = unique_names(numbers, names) if len(names) == len(numbers) else tuple(f"parcel{n:04d}" for n in numbers)
    seconds = (
        volumes * recording.repetition_time if np.isfinite(volumes * recording.repetition_time) else recording.seconds
    )
    known = {SERIES_VOLUMES: volumes, "SecondsUsed": seconds, "RepetitionTime": recording.repetition_time}
    space = space_of(dict(recording.entities)) or "unknown"
    facts |= {
        "Atlas": {"Name": join(recording.atlas), "Space": space, "Source": "n/a"},
        **{key: value for key, value in known.items() if math.isfinite(value)},
        "Software": "fcpower_bids",
        "SoftwareVersion": __version__,
        SERIES_COLUMNS: parcels,
    }
    summary = spectrum_summary(spectrum)
    quality: dict[str, Any] = dict.fromkeys(QUALITY_TABLE.columns, math.nan)  # what only a participant level knows
    quality |= {name: summary[name] for name in ("rank", "participation_ratio", "participation_ratio_power")}
    quality |= {"atlas": join(recording.atlas), "state": "done", "clipped": summary["n_clipped"]}
    quality |= {"kept_volumes": volumes, "seconds_kept": seconds, "mean_fd": recording.mean_fd}
    quality |= {"parcels": len(parcels), "uncovered_parcels": int((~covered_parcels(connectivity)).sum())}
    return kind, array, facts, quality


def _series(values: np.ndarray, recording: Offered) -> np.ndarray:
    """Volumes that the source used; constant parcels are missing, as at participant level."""
    if values.ndim != 2 or len(values) < 3:
        raise RecordingError(f"{recording.path} is no series of volumes by parcels: its shape is {values.shape}.")
    if recording.outliers is not None:
        out = read_table(recording.outliers).iloc[:, 0].to_numpy(dtype=float) > 0
        if len(values) not in (len(out), int((~out).sum())):
            raise RecordingError(
                f"{recording.path} has {len(values)} volumes, but {recording.outliers.name} has {len(out)}, "
                f"{int((~out).sum())} of them kept: they are not of one recording. Run the program that wrote them "
                "again."
            )
        values = values[~out] if len(out) == len(values) else values
    steps = np.diff(values, axis=0)
    if (counts := np.flatnonzero((steps[0] != 0) & np.isclose(steps, steps[0], rtol=1e-6, atol=0).all(axis=0))).size:
        raise RecordingError(
            f"Column {counts[0] + 1} of {recording.path} grows by the same step in every row, as an index or times do: "
            "take it out."
        )
    return np.where(np.ptp(values, axis=0) == 0, np.nan, values)
