"""Series and connectomes that another program offers: an entry of each, and the layouts they are found by."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.cohort.inclusion import number_of
from fcpower_bids.errors import DAMAGED_ARRAY, DatasetError, UsageError
from fcpower_bids.inputs.sources import drop
from fcpower_bids.outputs.dataset import order_entities, parse_name
from fcpower_bids.outputs.tables import program_names, read_json
from fcpower_bids.records import Entities, Named

Read = tuple[NDArray[np.float64], tuple[str, ...]]
"""Values, and the names of the columns; no names where the file has none."""
PARCELS = "parcels"
"""Array of a ``.npz`` that names the columns of the others."""
SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""Near the beginning of HDF5, of which files of MATLAB since version 7.3 are."""
MISSING = frozenset({"", "n/a", "na", "nan", "none", "null"})


def read_array(path: Path, key: str = "") -> Read:
    """Read one array. Raises DatasetError."""
    reader = next((reader for ending, reader in READERS.items() if path.name.lower().endswith(ending)), None)
    if reader is None:
        raise DatasetError(f"{path} has none of the endings that can be read: {' '.join(READERS)}. Save it as one.")
    if not path.is_file():
        raise DatasetError(f"{path} is not there. Correct the path, or fetch the file (datalad get).")
    try:
        values, names = reader(path, key)
    except MemoryError:
        raise DatasetError(f"{path} says of itself that it holds more than the memory. Save it again.") from None
    if not values.size:
        raise DatasetError(f"{path} holds no numbers. Take it out, or write it again.")
    return values, names


def _text(path: Path, key: str) -> Read:
    """A table of numbers with tabs, commas, semicolons or blanks; a header and a column of names are recognised."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read as text ({error}). Save it as UTF-8.") from None
    rows = [_cells(line) for line in lines if line.strip()]
    names: list[str] = []
    if rows and not all(_is_number(cell) for cell in rows[0]):
        names = [cell.lstrip("#").strip('"') for cell in rows.pop(0) if cell != "#"]
    # a column of names, such as "Node", or one that counts the rows, which has no name
    first = int(bool(rows) and (not _is_number(rows[0][0]) or (names[:1] == [""] and len(names) == len(rows[0]))))
    width = {len(row) for row in rows}
    if len(width) > 1:
        raise DatasetError(f"{path} has rows of {min(width)} and of {max(width)} fields. Write it again.")
    if names and rows and len(names) == len(rows[0]):
        names = names[first:]
    try:
        cells = [["nan" if cell.lower() in MISSING else cell for cell in row[first:]] for row in rows]
        values = np.array([list(map(float, row)) for row in cells], dtype=np.float64)
    except ValueError as error:
        raise DatasetError(f"{path} is not a table of numbers ({error}).") from None
    if names and values.ndim == 2 and len(names) != values.shape[1]:
        raise DatasetError(f"{path} has {len(names)} names over {values.shape[1]} columns. Write it again.")
    return values, tuple(names)


def _cells(line: str) -> list[str]:
    separator = next((mark for mark in ("\t", ";", ",") if mark in line), None)
    return [cell.strip() for cell in line.strip("\r\n").split(separator)] if separator else line.split()


def _is_number(cell: str) -> bool:
    return cell.lower() in MISSING or re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf", cell) is not None


def _numpy(path: Path, key: str) -> Read:
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                names = tuple(map(str, archive[PARCELS])) if PARCELS in archive.files else ()
                arrays = {name: archive[name] for name in archive.files if not key or name == key}
                return _pick(arrays, key, path), names
        values = np.lib.format.open_memmap(path, mode="r")  # reads the header alone, which may promise anything
        if values.offset + values.nbytes != path.stat().st_size:
            raise ValueError("its size is not that which its header says")
        return np.array(values, dtype=np.float64), ()
    except (*DAMAGED_ARRAY, OSError, TypeError) as error:
        raise DatasetError(f"{path} cannot be read as an array of numbers ({error}). Save it again.") from None


def _mat(path: Path, key: str) -> Read:
    from scipy.io import loadmat  # few have such files

    with path.open("rb") as stream:
        if SIGNATURE in stream.read(520):
            raise DatasetError(f"{path} is a MATLAB file of version 7.3: save it with save(..., '-v7').")
    try:  # scipy calls kinds of files and of cells that it does not read NotImplementedError
        content = loadmat(path, squeeze_me=True, struct_as_record=True)
    except (ValueError, OSError, TypeError, NotImplementedError) as error:
        raise DatasetError(f"{path} cannot be read as a MATLAB file ({error}). Save it again.") from None
    variables = {name: value for name, value in content.items() if not name.startswith("__")}
    return _pick(variables, key, path), ()


def _pick(variables: Mapping[str, Any], key: str, path: Path) -> NDArray[np.float64]:
    """The variable that is asked for, or the only numeric one of more than one value."""
    numeric = {
        name: np.asarray(value)
        for name, value in variables.items()
        if np.asarray(value).dtype.kind in "fiu" and np.asarray(value).size > 1
    }
    if key and key not in numeric:
        raise DatasetError(f"{path} has no numeric variable '{key}'. It has: {', '.join(variables) or 'none'}.")
    if not key and len(numeric) != 1:
        raise DatasetError(f"{path} holds {', '.join(numeric) or 'nothing numeric'}: say which in the column 'key'.")
    return np.asarray(numeric[key or next(iter(numeric))], dtype=np.float64)


def _parcellated(path: Path, key: str) -> Read:
    from fcpower_bids.imaging.parcellation import read_parcellated  # loads nibabel

    return read_parcellated(path)


READERS: dict[str, Callable[[Path, str], Read]] = {
    **dict.fromkeys((".pconn.nii", ".ptseries.nii"), _parcellated),
    **dict.fromkeys((".tsv", ".csv", ".txt", ".1d"), _text),
    **dict.fromkeys((".npy", ".npz"), _numpy),
    ".mat": _mat,
}


SERIES, MATRIX = "series", "matrix"


@dataclass(frozen=True)
class Offered(Named):
    """One recording as another program left it."""

    path: Path  # its series or matrix
    kind: str  # ``series`` (T, P) or ``matrix``
    # entities, atlas: for the names of what is written
    entities: Entities
    atlas: Entities
    key: str = ""  # variable of a file that holds several
    # scale, order: of a matrix, see `fcpower_bids.core.edges.correlations_from`
    scale: str = "r"
    order: str = "upper"
    parcels_first: bool = False  # whether a series is stored as (P, T)
    # repetition_time, seconds, mean_fd: NaN where unknown
    repetition_time: float = math.nan
    seconds: float = math.nan
    mean_fd: float = math.nan
    volumes: float = math.nan  # volumes that the series or matrix was made from; NaN where unknown
    # table with 1 for every volume that the source leaves out of its matrices though it is in the series
    outliers: Path | None = None
    strategy: str = "unknown"  # denoising as the source declares it


def label_of(text: str, path: Path) -> str:
    """Return a text as the label of a BIDS entity, which has letters and digits only. Raises DatasetError."""
    label = re.sub(r"(?<=\d)\.0+$|[^A-Za-z0-9]", "", text)  # a program of tables may have made ``1.0`` of a 1
    if not label:
        raise DatasetError(f"{path}: '{text}' has no letter or digit, so it cannot name a participant or session.")
    return label


def check_names(offered: list[Offered]) -> None:
    """Refuse two files that would be written under one name. Raises DatasetError."""
    seen: dict[tuple[Entities, Entities], Offered] = {}
    for recording in offered:
        other = seen.setdefault((recording.entities, recording.atlas), recording)
        if repr(other) != repr(recording):  # which takes two NaN as alike
            raise DatasetError(
                f"{other.path} and {recording.path} would be the same recording of the same parcellation. Distinguish "
                "them by participant, session or run, or name those that are wanted in a list (-d list=TABLE)."
            )


T = TypeVar("T")
LAYOUTS = Path(__file__).parents[1] / "data" / "layouts"
ATLAS = ("atlas", "seg")
"""Entities that name a parcellation."""
NOT_OF_RUN = ("desc", "den", "res")
NOTHING: Mapping[str, Any] = {"generated_by": (), "series": (), "matrices": (), "quality": {}, "sidecar": {}}
"""A layout: ``about``, its name in words; ``generated_by``, as datasets name it; ``ordinal``, whether participants are
numbers in the order in which they were entered; ``series`` and ``matrices``: ``pattern`` (for the end of a path; groups
give entities where names have none), ``key``, ``scale``; ``outliers``, pattern of tables with 1 for every volume that
is in the series but not in the matrices; ``quality``: ``pattern`` of tables with motion, and columns by fact;
``sidecar``: keys of the JSON of a file by fact."""


def layout_names() -> tuple[str, ...]:
    """Return the names of the shipped layouts."""
    return tuple(sorted(path.stem for path in LAYOUTS.glob("*.yml")))


def load_layout(name: str) -> dict[str, Any]:
    """Load a shipped layout. Raises UsageError."""
    import yaml  # only where a source is named

    if name not in layout_names():
        raise UsageError(f"There is no layout '{name}'. Choose from list, {', '.join(layout_names())}.")
    return {**NOTHING, "name": name, **yaml.safe_load((LAYOUTS / f"{name}.yml").read_text(encoding="utf-8"))}


def recognise(root: Path) -> str | None:
    """Return the layout of a dataset by its ``GeneratedBy``; None where it says nothing that is known."""
    named = {name.lower() for name in program_names(root)}
    known = ((name, load_layout(name)["generated_by"]) for name in layout_names())
    return next((name for name, programs in known if named & {program.lower() for program in programs}), None)


def find_offered(root: Path, layout: Mapping[str, Any]) -> list[Offered]:
    """Find every recording of a source, the series before the matrix. Raises DatasetError."""
    if not root.is_dir():
        raise DatasetError(f"The folder {root} is not there. Check the path (and the mount of a container).")
    files = sorted(_files(root))
    recordings: dict[tuple[Entities, Entities], Offered] = {}
    for kind, declared in ((MATRIX, layout["matrices"]), (SERIES, layout["series"])):
        found = ((how, root / name, match) for how in declared for name, match in _matching(how["pattern"], files))
        of_kind = [_offered(path, match, kind, how, layout) for how, path, match in found]
        check_names(of_kind)
        recordings |= {(recording.entities, recording.atlas): recording for recording in of_kind}
    if not recordings:
        looked = ", ".join(str(how["pattern"]) for how in (*layout["series"], *layout["matrices"]))
        raise DatasetError(f"{root} has no file as {layout['about']} names them ({looked}). Name another layout.")
    tables = {
        kind: [(frozenset(drop(parse_name(Path(name).name)[0], NOT_OF_RUN)), root / name) for name, _ in found]
        for kind, found in (
            ("quality", _matching(layout["quality"].get("pattern"), files)),
            ("outliers", _matching(layout.get("outliers"), files)),
        )
    }
    measured = [(of, figures) for of, path in tables["quality"] if (figures := _measured(path, layout)) is not None]
    offered = []
    for recording in (recordings[place] for place in sorted(recordings)):
        outliers = _most_specific(recording, tables["outliers"]) if recording.kind == SERIES else None
        offered.append(replace(recording, outliers=outliers, **(_most_specific(recording, measured) or {})))
    return offered


def _files(root: Path) -> Iterator[str]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from ((Path(folder) / name).relative_to(root).as_posix() for name in files if not name.startswith("."))


def _matching(pattern: str | None, files: Sequence[str]) -> Iterator[tuple[str, re.Match[str]]]:
    if pattern is not None:
        whole = re.compile(f"(?:.*/)?{pattern}")
        yield from ((name, match) for name in files if (match := whole.fullmatch(name)))


def _offered(path: Path, match: re.Match[str], kind: str, how: Mapping[str, Any], layout: Mapping[str, Any]) -> Offered:
    groups = ((key, value.removeprefix(f"{key}-")) for key, value in match.groupdict().items() if value)
    named, facts = {key: label_of(value, path) for key, value in groups}, dict[str, Any]()
    if "sub" in named:
        atlas = named.pop("atlas", "")
        entities = order_entities((("task", "rest"),), tuple(named.items()))
    else:
        labels, suffix, _ = parse_name(path.name)
        atlas = "".join(value for key, value in labels if key in ATLAS)
        entities = drop(labels, (*ATLAS, *NOT_OF_RUN, "stat", "meas", "measure", "feature", "setting"))
        entities = order_entities(entities)
        shared = "_".join([*(f"{key}-{value}" for key, value in drop(labels, ATLAS)), suffix])
        beside = [path.with_name(f"{stem}.json") for stem in (path.name.partition(".")[0], shared)]
        facts = _stated(next((read_json(file) for file in beside if file.is_file()), {}), layout)
    facts = {"strategy": f"{layout['name']}: unknown", **{key: how[key] for key in how if key != "pattern"}, **facts}
    return Offered(path, kind, entities, (("atlas", label_of(atlas or layout["name"], path)),), **facts)


def _stated(content: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, keys in layout["sidecar"].items():
        value = next((content[key] for key in keys if content.get(key) is not None), None)
        if name == "strategy" and value is not None:
            facts[name] = f"{layout['name']}: {value}"
        elif name == "frequency" and number_of(value) > 0:
            facts["repetition_time"] = 1 / number_of(value)
        elif name not in ("frequency", "strategy") and value is not None:
            facts[name] = number_of(value)
    return facts


def _measured(path: Path, layout: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the one row of a table with motion says; None of a table with another number of rows, as of no row yet."""
    text = path.read_text(encoding="utf-8-sig", errors="replace").replace("\0", "")
    rows = list(csv.DictReader(StringIO(text, newline=""), delimiter="," if path.suffix == ".csv" else "\t"))
    if len(rows) != 1:
        return None
    row = {key: number_of(cell) for key, cell in rows[0].items() if isinstance(cell, str)}
    asked = {fact: keys for fact, keys in layout["quality"].items() if fact != "pattern"}
    named = {fact: next((row[key] for key in keys if key in row), math.nan) for fact, keys in asked.items()}
    return {fact: value for fact, value in named.items() if math.isfinite(value)}


def _most_specific(recording: Offered, tables: Sequence[tuple[frozenset[Any], T]]) -> T | None:
    """Of tables all entities of which are among those of a recording, that with the most."""
    labels = frozenset(recording.entities)
    fitting = [(len(entities), content) for entities, content in tables if entities <= labels]
    return max(fitting, key=lambda table: table[0])[1] if fitting else None
