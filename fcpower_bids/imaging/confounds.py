"""Confound strategies, and the confounds table of a recording.

A strategy is a YAML file that says which columns are regressed. Of tables any version of fMRIPrep comes in, and one
array with today's column names goes out.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from fcpower_bids.core.plausibility import times_of_cosines
from fcpower_bids.core.series import HEAD_RADIUS, MotionFilter, filter_motion, framewise_displacement
from fcpower_bids.errors import RecordingError, Unfit, UsageError
from fcpower_bids.records import Recording
from fcpower_bids.schema import table_fault
from fcpower_bids.settings.options import STRATEGIES, Method, strategy_names
from fcpower_bids.store import load_json


@dataclass(frozen=True)
class Strategy:
    """A set of confounds and how to describe it."""

    name: str  # as on the command line
    methods: str  # the sentence for the methods section
    # columns that must be there, by fMRIPrep's present names, or regular expressions anchored with ``^`` and ``$`` of
    # which each must match something
    columns: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()  # the same, taken where they exist
    acompcor: int = 0  # aCompCor components from white matter, and as many from cerebrospinal fluid
    references: tuple[str, ...] = ()  # DOIs of what to cite


def load_strategy(name_or_path: str | Path) -> Strategy:
    """Load a shipped strategy by name, or the user's own from a YAML file. Raises UsageError."""
    shipped = STRATEGIES / f"{name_or_path}.yml"
    path = shipped if str(name_or_path) in strategy_names() else Path(name_or_path)
    if not path.is_file():
        raise UsageError(
            f"There is no confound strategy '{name_or_path}'. Choose from {', '.join(strategy_names())}, or give the "
            "path of a YAML file."
        )
    state = path.stat()
    return _load(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _load(path: Path, _time: int, _size: int) -> Strategy:
    """Read and check a file once for all recordings, until it is another."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a confound strategy: it must have the keys 'methods' and 'columns'.")
    known = {"name", "methods", "columns", "optional", "acompcor", "references"}
    unknown, absent = sorted(map(str, content.keys() - known)), sorted({"methods", "columns"} - content.keys())
    if unknown or absent:
        problem = f"the key '{unknown[0]}' is not known" if unknown else f"the key '{absent[0]}' is missing"
        raise UsageError(f"{path} is not a confound strategy: {problem}. Its keys are {', '.join(sorted(known))}.")
    defaults: dict[str, Any] = {"name": path.stem, "columns": [], "optional": [], "references": [], "acompcor": 0}
    content = defaults | content
    for key in ("columns", "optional", "references"):
        value = content[key]
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            raise UsageError(f"{path}: '{key}' must be a list of names, not {value!r}.")
        content[key] = tuple(dict.fromkeys(value))
    if type(content["acompcor"]) is not int or content["acompcor"] < 0:
        raise UsageError(f"{path}: 'acompcor' must be a number of components, not {content['acompcor']!r}.")
    for entry in content["columns"] + content["optional"]:  # a pattern that is broken or would match parts of names
        if entry.startswith("^") != entry.endswith("$"):
            raise UsageError(f"{path}: the regular expression '{entry}' must begin with ^ and end with $.")
        try:
            re.compile(entry)
        except re.error as error:
            raise UsageError(f"{path}: '{entry}' is not a regular expression: {error}.") from None
    for key in ("name", "methods"):
        if not isinstance(content[key], str) or not content[key].strip():
            raise UsageError(f"{path}: '{key}' must be text, not {content[key]!r}.")
        content[key] = " ".join(content[key].split())
    return Strategy(**content)


Columns = dict[str, NDArray[np.float64]]
"""Columns of a table (T,) by their names."""

PARAMETERS = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
MOTION_FILE = "Movement_Regressors.txt"
"""Table of the HCP pipelines, without a header: motion in mm and degrees, and derivatives after it."""

MOTION_ALONE = "It has motion alone: choose --strategy 24P or none."

SPREADSHEET = ('"', ";")
"""Signs of a spreadsheet program in a header: quotes, or other separators than tabs."""
DECIMAL_COMMA = re.compile(rb"(?:^|\t)-?\d+,\d+(?:\t|$)")
NEVER_NEGATIVE = ("framewise_displacement", "dvars")
LARGEST, LARGEST_DISPLACEMENT = 1e15, 1e3
"""Beyond these (in mm, the second) a table is damaged: scanners give less than 1e6, and a head fits into a metre."""


def open_table(table: Path) -> tuple[list[str], bytes]:
    """Return the names of the columns, and the bytes of the file. Raises RecordingError."""
    if table.name == MOTION_FILE:
        return [*PARAMETERS, "framewise_displacement"], b""
    try:
        content = table.read_bytes()
        fault = table_fault(content)
    except OSError as error:
        raise RecordingError(
            f"The confounds table {table} cannot be read: {error}. Copy it again or run fMRIPrep again."
        ) from None
    content = content.removeprefix(codecs.BOM_UTF8)
    first, *rows = content.splitlines() or [b""]
    # as a spreadsheet program has changed it: other separators, decimal commas, other ends of lines
    if fault is None and b"\t" not in first and first.count(b",") > 1:
        fault = "has commas between its columns, not tabs: save it with tabs"
    elif fault is None and b"\n" not in content and b"\r" in content:
        fault = "has lines that end with a carriage return alone: save it with line feeds"
    elif fault is None and b"\t" in first and any(DECIMAL_COMMA.search(row) for row in rows[:5]):
        fault = "has decimal commas: save it with decimal points"
    if fault is not None:
        raise RecordingError(f"The confounds table {table} {fault}, copy it again or run fMRIPrep again.")
    header = re.split(rb"[\r\n]", content, maxsplit=1)[0].decode().split("\t")
    if not header[0] or re.fullmatch(r"[-+.\deE]+|n/a", header[0]):
        raise RecordingError(f"{table} is not a confounds table: its first row must hold column names.")
    if mark := next((mark for mark in SPREADSHEET if mark in "".join(header)), None):
        raise RecordingError(
            f"{table} has {mark} in its header, as spreadsheet programs write it: copy the table of fMRIPrep again."
        )
    return header, content


def read_columns(table: Path, content: bytes, names: Sequence[str]) -> Columns:
    """Read the named columns only of a table and its bytes. Raises RecordingError."""
    if table.name == MOTION_FILE:
        try:
            motion = np.loadtxt(table, ndmin=2)[:, : len(PARAMETERS)]
            made = dict(zip(PARAMETERS, motion.T, strict=True))
        except (OSError, ValueError, IndexError) as error:
            raise RecordingError(
                f"{table} is not a table of six motion parameters ({error}). Copy it again or run the preprocessing "
                "again."
            ) from None
        made |= {name: made[name] * (np.pi / 180) for name in PARAMETERS[3:]}
        made["framewise_displacement"] = framewise_displacement(np.column_stack(list(made.values())))
        return {name: made[name] for name in names}
    try:
        # from memory and as one piece, in half the time
        frame = pd.read_csv(
            BytesIO(content), sep="\t", usecols=list(names), na_values=["n/a"], dtype=np.float64, low_memory=False
        )
    except ValueError as error:
        raise RecordingError(
            f"The confounds table {table} cannot be read: {error}. Correct it or run fMRIPrep again."
        ) from None
    values = dict(zip(frame, np.ascontiguousarray(frame.to_numpy().T), strict=True))
    return {name: values[name] for name in names}


def check_ranges(table: Path, columns: Columns, judged: Collection[str]) -> tuple[Columns, list[str]]:
    """Refuse what cannot be by what it means: displacements and changes below zero, numbers beyond all scales.

    Of columns that nothing regresses such values are taken as unknown, with a note.
    """
    known, notes = dict(columns), []
    for name, values in columns.items():
        least = 0.0 if name in NEVER_NEGATIVE else -LARGEST
        most = LARGEST_DISPLACEMENT if name == "framewise_displacement" else LARGEST
        if not (outside := (values < least) | (values > most)).any():
            continue
        wrong = np.flatnonzero(outside)
        what = f"has {values[wrong[0]]:g} as {name} in line {wrong[0] + 2}, which cannot be"
        if name in judged:
            raise RecordingError(f"{table} {what}: copy it again or run fMRIPrep again.")
        known[name] = np.where(outside, np.nan, values)
        notes.append(f"{table.name} {what}; the cleaning does not use it.")
    return known, notes


def treat_motion(
    columns: Columns, table: Path, recording: Recording, settings: Method
) -> tuple[Columns, tuple[str, ...], float | None]:
    """Return columns with parameters and displacement of motion as used, notes, and the radius of the head in mm.

    None of these where the displacement is that of the table. Raises RecordingError.
    """
    kind, radius = cast("MotionFilter | None", settings.motion_filter_type), settings.head_radius
    if kind is None and radius is None:  # the displacement of the table
        return columns, (), None
    if lacking := [name for name in PARAMETERS if name not in columns]:
        raise RecordingError(
            f"{table} lacks {', '.join(lacking)}, which --motion-filter-type and --head-radius need. Leave them "
            "out, or run fMRIPrep again."
        )
    millimetres = HEAD_RADIUS if radius in (None, "auto") else float(str(radius))
    if radius == "auto" and recording.mask is None:
        raise RecordingError(
            f"{recording.bold} has no brain mask that the head's size could be read from: give --head-radius a number."
        )
    if radius == "auto" and recording.mask is not None:
        from fcpower_bids.imaging.streaming import read_image  # loads nibabel, which is slow to load

        image, brain = read_image(recording.mask, "The mask ")
        voxel = abs(np.linalg.det(image.affine[:3, :3]))
        volume = float(np.count_nonzero(brain > 0) * voxel)
        millimetres = float((3 * volume / (4 * np.pi)) ** (1 / 3))  # of a sphere
    parameters, notes = np.column_stack([columns[name] for name in PARAMETERS]), tuple[str, ...]()
    if kind is not None:
        low, high = settings.band_stop_min or 0.0, settings.band_stop_max
        if not np.isfinite(parameters).all():
            raise RecordingError(f"{table} has motion parameters without a value, so they cannot be filtered.")
        try:
            order = settings.motion_filter_order
            parameters = filter_motion(parameters, recording.repetition_time, kind, (low, high), order)
        except Unfit as error:
            raise RecordingError(f"{table}: {error}") from None
        band = f"{low:g} to {high:g}" if kind == "notch" else f"above {low:g}"
        notes = (f"Motion parameters without {band} per minute (breathing) gave the displacement and the regressors.",)
    moved = framewise_displacement(parameters, millimetres)
    return (
        {**columns, **dict(zip(PARAMETERS, parameters.T, strict=True)), "framewise_displacement": moved},
        notes,
        millimetres,
    )


EXPANDED = re.compile(rf"(?:{'|'.join(PARAMETERS)})_(?:derivative1|power2|derivative1_power2)")
SHORTEST_WITH_COSINES = 128.0
"""Seconds of a scan from which on fMRIPrep, which keeps what is slower than this out, writes two cosines or more."""
EXPANSION = re.compile(r"(?P<base>.+?)(?P<difference>_derivative1)?(?P<square>_power2)?")
COSINE = re.compile(r"cosine_?\d+")
DUMMY = re.compile(r"non_steady_state_outlier_?\d+")
COMPONENT = re.compile(r"[acw]_comp_cor_\d+")
ALIKE, SCALED, FEWEST_COMPARED = 0.5, 1.5, 20
"""Least correlation of displacement with that of the parameters, most times that medians differ, and fewest volumes."""
MEASURED = ("framewise_displacement", "dvars", "global_signal")
"""Columns that are read of every table, whatever the strategy."""


class Confounds(NamedTuple):
    """Result of `load_confounds`."""

    names: tuple[str, ...]  # one per column, in fMRIPrep's present spelling
    values: NDArray[np.float64]  # (T, K): without NaN
    # (T,): in mm; NaN where the table has none (the first volume, or everywhere)
    framewise_displacement: NDArray[np.float64]
    dvars: NDArray[np.float64]  # (T,): root mean square change of the signal as fMRIPrep wrote it; NaN likewise
    global_signal: NDArray[np.float64]  # (T,): mean over the brain as fMRIPrep wrote it; NaN likewise
    n_dummy: int  # volumes at the start that fMRIPrep marked as not in steady state
    notes: tuple[str, ...]  # differences from the columns of the table, as sentences
    head_radius: float | None = None  # mm; None where the displacement is that of the table


def load_confounds(
    table: Path,
    metadata: Path | None,
    strategy: Strategy,
    n_volumes: int | None = None,
    recording: Recording | None = None,
    settings: Method | None = None,
) -> Confounds:
    """Read the confounds of a strategy, derivatives made if lacking. Raises RecordingError."""
    header, content = open_table(table)
    filtered = settings is not None and settings.motion_filter_type is not None
    # without those that are made again, of filtered parameters
    names = tuple(name for name in header if not filtered or not EXPANDED.fullmatch(name))
    components, component_notes = _choose_components(names, metadata, strategy.acompcor, table)
    wanted = _choose_columns(tuple(header), strategy, table) + components
    made = tuple(name for name in wanted if name not in names)
    markers = tuple(name for name in names if DUMMY.fullmatch(name))
    needed = {*wanted, *(_base(name) for name in made), *markers, *MEASURED}
    needed |= {*PARAMETERS, *(name for name in names if COSINE.fullmatch(name))}
    present = [name for name in names if name in needed] or names[:1]
    columns = read_columns(table, content, present)
    judged = {*wanted, *(_base(name) for name in made), *PARAMETERS, "framewise_displacement"}
    columns, range_notes = check_ranges(table, columns, judged)
    n_rows = len(columns[present[0]])
    if n_volumes is not None and n_rows != n_volumes:
        raise RecordingError(
            f"{table} has {n_rows} rows, but its series has {n_volumes} volumes. They are not of the same recording, "
            "or one was cut: copy both again from one run of fMRIPrep."
        )
    unknown = np.full(n_rows, np.nan)
    lacking = [name for name in made if name not in header]
    made_here = [f"{len(lacking)} derivatives and squares that {table.name} lacks were computed from its columns."]
    repetition_time = recording.repetition_time if recording else 0.0
    seconds = n_rows * repetition_time
    drifts = seconds >= SHORTEST_WITH_COSINES
    no_cosines = (
        f"The table has no cosines, which fMRIPrep writes for a scan of {seconds:.0f} s and under which it computes "
        "its components: slow drifts stay. Copy the table of fMRIPrep again."
    )
    notes = [
        *(made_here if lacking else ()),
        *([no_cosines] if strategy.acompcor and drifts and not any(map(COSINE.fullmatch, names)) else ()),
        *range_notes,
        *component_notes,
        *_doubts(columns),
        *_of_another_time(columns, repetition_time),
    ]
    motion_notes, radius = tuple[str, ...](), None
    if recording and settings:
        columns, motion_notes, radius = treat_motion(columns, table, recording, settings)
    regressors = [_regressor(name, columns, table) for name in wanted]
    # volumes up to the last one marked
    dummies = [int(np.flatnonzero(columns[name] > 0).max(initial=-1)) + 1 for name in markers]
    return Confounds(
        names=wanted,
        values=np.column_stack(regressors) if regressors else np.empty((n_rows, 0)),
        framewise_displacement=columns.get("framewise_displacement", unknown),
        dvars=columns.get("dvars", unknown),
        global_signal=columns.get("global_signal", unknown),
        n_dummy=max(dummies, default=0),
        notes=(*notes, *motion_notes),
        head_radius=radius,
    )


def _doubts(columns: Mapping[str, NDArray[np.float64]]) -> list[str]:
    """Say what no measurement gives: a head that never moves, or in some parameters alone, or other displacement."""
    moved, notes = columns.get("framewise_displacement"), list[str]()
    if moved is not None and len(moved) > 2 and not np.nan_to_num(moved).any() and not np.isnan(moved[1:]).all():
        return ["The table has no motion at all: it was not estimated, and no volume can be censored by it."]
    there = {name: columns[name] for name in PARAMETERS if name in columns}
    still = [name for name, values in there.items() if len(values) > 2 and np.nanmin(values) == np.nanmax(values)]
    if still and len(still) < len(there):
        what = "has one value in all volumes" if len(still) == 1 else "have one value each in all volumes"
        notes.append(f"{' and '.join(still)} of the table {what}, though the head moved: the table was changed.")
    if moved is None or len(there) < len(PARAMETERS):
        return notes
    expected = framewise_displacement(np.column_stack(list(there.values())))
    both = np.stack([moved, expected])[:, np.isfinite(moved) & np.isfinite(expected)]
    if both.shape[1] < FEWEST_COMPARED:
        return notes
    theirs, ours = (float(np.median(displacement)) for displacement in both)
    if ours == 0 < theirs:
        notes.append("The motion parameters of the table do not move, though its framewise displacement does.")
    alike = ours and np.ptp(both[0]) > 0 and np.asarray(np.corrcoef(both))[0, 1] > ALIKE
    if ours and not (alike and 1 / SCALED < theirs / ours < SCALED):
        notes.append(
            "Framewise displacement of the table is not that of its motion parameters (its median is "
            f"{theirs / ours:.2g} times as large): one of them is wrong, or in another unit, and the wrong volumes may "
            "be censored."
        )
    return notes


def has_cosines_of(table: Path, repetition_time: float) -> bool:
    """Whether a confounds table has cosines, and they are those of a repetition time. Raises RecordingError."""
    header, content = open_table(table)
    names = [name for name in header if COSINE.fullmatch(name)]
    return bool(names) and not _of_another_time(read_columns(table, content, names), repetition_time)


def _of_another_time(columns: Mapping[str, NDArray[np.float64]], repetition_time: float) -> list[str]:
    """Say so when the cosines of a table are those of another repetition time."""
    cosines = [values for name, values in columns.items() if COSINE.fullmatch(name)]
    if not cosines or not repetition_time > 0 or not np.nan_to_num(cosines).any(axis=1).all():
        return []
    shortest, longest = times_of_cosines(np.column_stack(cosines))
    if shortest <= repetition_time < longest:
        return []
    return [
        f"The repetition time is {repetition_time:.3g} s, and the cosines of the table are those of {shortest:.2g} to "
        f"{longest:.2g} s: correct RepetitionTime in the sidecar of the series, or in its header."
    ]


def _choose_columns(names: tuple[str, ...], strategy: Strategy, table: Path) -> tuple[str, ...]:
    """Return the names that the strategy asks for, in its order, and refuse if one can neither be read nor made."""
    there = {}
    for entry in strategy.columns + strategy.optional:
        itself = [entry] if entry in names or _base(entry) in names else []
        there[entry] = [name for name in names if re.fullmatch(entry, name)] if entry.startswith("^") else itself
    if missing := dict.fromkeys(_base(entry) for entry in strategy.columns if not there[entry]):
        aroma = " fMRIPrep does not run ICA-AROMA since 23.1." if any("aroma" in entry for entry in missing) else ""
        remedy = f"{aroma} Choose another --strategy, or run fMRIPrep again.".strip()
        raise RecordingError(
            f"{table} lacks what the strategy '{strategy.name}' needs: {', '.join(missing)}. "
            f"{MOTION_ALONE if table.name == MOTION_FILE else remedy}"
        )
    return tuple(dict.fromkeys(name for matches in there.values() for name in matches))


def _base(name: str) -> str:
    """Return the column that a derivative or square is made from."""
    made = EXPANSION.fullmatch(name)
    return made["base"] if made else name


def _regressor(name: str, columns: Columns, table: Path) -> NDArray[np.float64]:
    """Return a column, made from its base if the table lacks it, with a first value; no other may be missing."""
    values = columns.get(name)
    if values is None:
        made = EXPANSION.fullmatch(name)
        assert made is not None, "every name has a base"
        values = columns[made["base"]]
        values = np.diff(values, prepend=np.nan) if made["difference"] else values
        values = values**2 if made["square"] else values
    if np.isnan(values[0]) and len(values) > 1:
        values = np.concatenate([values[1:2], values[1:]])
    if len(gaps := np.flatnonzero(~np.isfinite(values))):
        raise RecordingError(
            f"{table} has no value of {name} in {gaps.size} rows (the first is volume {gaps[0]}, counted from 0). "
            "Choose a --strategy without it, or run fMRIPrep again."
        )
    return values


def _choose_components(
    names: tuple[str, ...], metadata: Path | None, count: int, table: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the first aCompCor components of white matter and of cerebrospinal fluid, and what to note about them."""
    if not count:
        return (), ()
    components = (name for name in names if COMPONENT.fullmatch(name))
    names = tuple(sorted(components, key=lambda name: int(name.rpartition("_")[2])))
    tissues = [[name for name in names if name.startswith(letter)] for letter in "wc"]
    combined = [name for name in names if name.startswith("a")]
    if combined and not any(tissues):
        try:  # the mask that each component was computed in
            content = {} if metadata is None else load_json(metadata)
        except (OSError, ValueError) as error:
            raise RecordingError(
                f"The confounds metadata {metadata} cannot be read: {error}. Copy it again or run fMRIPrep again."
            ) from None
        described = content.items() if isinstance(content, dict) else ()
        masks = {name: entry.get("Mask") for name, entry in described if isinstance(entry, dict)}
        tissues = [[name for name in combined if masks.get(name) == mask] for mask in ("WM", "CSF")]
    if not all(tissues) and table.name == MOTION_FILE:
        raise RecordingError(f"{table} has no aCompCor components. {MOTION_ALONE}")
    if not all(tissues):
        raise RecordingError(
            f"{table} has no aCompCor components that are known to be of white matter and of cerebrospinal fluid. "
            "Put fMRIPrep's JSON file next to the table, or choose another --strategy."
        )
    both = zip(tissues, ("white matter", "cerebrospinal fluid"), strict=True)
    short = [f"{len(members)} of {tissue}" for members, tissue in both if len(members) < count]
    notes = (f"Fewer than {count} aCompCor components in {table.name}: {' and '.join(short)}.",) if short else ()
    return tuple(name for members in tissues for name in members[:count]), notes
