"""Series and connectomes that another program offers: an entry of each, and the layouts they are found by."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.imaging.table_checks import table_fault
from fcpower_bids.inputs.sources import drop
from fcpower_bids.outputs.names import order_entities, parse_name
from fcpower_bids.outputs.tables import program_names, read_json
from fcpower_bids.records import Entities

SERIES, MATRIX = "series", "matrix"


@dataclass(frozen=True)
class Offered:
    """One recording as another program left it."""

    path: Path  # its series or matrix
    kind: str  # ``series`` (T, P) or ``matrix``
    # entities, atlas: for the names of what is written
    entities: Entities
    atlas: Entities
    key: str = ""  # variable of a file that holds several
    # scale, order: of a matrix, see `fcpower_bids.core.connectome.edges.correlations_from`
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

    @property
    def name(self) -> str:
        """The recording in one string."""
        return "_".join(f"{key}-{value}" for key, value in self.entities)


def label_of(text: str, path: Path) -> str:
    """Return a text as the label of a BIDS entity, which has letters and digits only. Raises DatasetError."""
    label = re.sub(r"[^A-Za-z0-9]", "", text)
    if not label:
        raise DatasetError(f"{path}: '{text}' has no letter or digit, so it cannot name a participant or session.")
    return label


def check_names(offered: list[Offered]) -> None:
    """Refuse two files that would be written under one name. Raises DatasetError."""
    seen: dict[tuple[Entities, Entities], Path] = {}
    for one in offered:
        other = seen.setdefault((one.entities, one.atlas), one.path)
        if other != one.path:
            raise DatasetError(
                f"{other} and {one.path} would be the same recording of the same parcellation. Distinguish them by "
                "participant, session or run, or leave one out."
            )


LAYOUTS = Path(__file__).parents[1] / "data" / "layouts"
GROUPS = {"participant": "sub", "session": "ses", "task": "task", "run": "run", "space": "space"}
"""Groups of a pattern, and the entity that each gives."""
ATLAS = "parcellation"


@dataclass(frozen=True)
class Layout:
    """Files of a program."""

    # name, about: as in ``--derivatives NAME=PATH``, and in words
    name: str
    about: str
    generated_by: tuple[str, ...] = ()  # its name in ``GeneratedBy`` of the dataset
    # whether names are ``key-value`` pairs; else participant, session and run are groups of the patterns
    bids: bool = True
    ordinal: bool = False  # whether participants are numbers in the order in which they were entered
    # series, matrices: ``pattern`` (a regular expression for the end of the path), ``key``, ``scale``, ``order``,
    # ``parcels_first``
    series: tuple[Mapping[str, Any], ...] = ()
    matrices: tuple[Mapping[str, Any], ...] = ()
    atlas_entities: tuple[str, ...] = ("atlas", "seg")  # entities that name the parcellation
    outliers: str = ""  # pattern of tables with 1 for every volume that is in the series but not in the matrices
    # ``pattern`` of the tables with motion, and the columns for ``mean_fd``, ``volumes``, ``seconds``
    quality: Mapping[str, Any] = field(default_factory=dict)
    # keys of the JSON of a file for ``repetition_time``, ``frequency``, ``mean_fd``, ``strategy``
    sidecar: Mapping[str, Sequence[str]] = field(default_factory=dict)


def layout_names() -> tuple[str, ...]:
    """Return the names of the shipped layouts."""
    return tuple(sorted(path.stem for path in LAYOUTS.glob("*.yml")))


def load_layout(name: str) -> Layout:
    """Load a shipped layout. Raises UsageError."""
    import yaml  # only where a source is named

    if name not in layout_names():
        raise UsageError(f"There is no layout '{name}'. Choose from list, {', '.join(layout_names())}.")
    content: dict[str, Any] = yaml.safe_load((LAYOUTS / f"{name}.yml").read_text(encoding="utf-8"))
    for key in {"generated_by", "series", "matrices", "atlas_entities"} & content.keys():
        content[key] = tuple(content[key])
    return Layout(name=name, **content)


def recognise(root: Path) -> str | None:
    """Return the layout of a dataset by its ``GeneratedBy``; None where it says nothing that is known."""
    named = {name.lower() for name in program_names(root)}
    return next((n for n in layout_names() if named & {one.lower() for one in load_layout(n).generated_by}), None)


def find_offered(root: Path, layout: Layout) -> list[Offered]:
    """Find every recording of a source, the series before the matrix. Raises DatasetError."""
    if not root.is_dir():
        raise DatasetError(f"The folder {root} is not there. Check the path (and the mount of a container).")
    files = sorted(_files(root))
    found: dict[tuple[Entities, Entities], Offered] = {}
    for kind, declared in ((MATRIX, layout.matrices), (SERIES, layout.series)):
        of_kind = [one for how in declared for one in _matching(root, files, layout, kind, how)]
        check_names(of_kind)
        found |= {(one.entities, one.atlas): one for one in of_kind}
    if not found:
        looked = ", ".join(str(how["pattern"]) for how in (*layout.series, *layout.matrices))
        raise DatasetError(f"{root} has no file as {layout.about} names them ({looked}). Name another layout.")
    quality = list(_quality_tables(root, files, layout))
    outliers = list(_outlier_tables(root, files, layout))
    return [_with_outliers(_with_quality(found[place], quality), outliers) for place in sorted(found)]


def _files(root: Path) -> Iterator[str]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from ((Path(folder) / name).relative_to(root).as_posix() for name in files if not name.startswith("."))


def _matching(root: Path, files: Sequence[str], layout: Layout, kind: str, how: Mapping[str, Any]) -> Iterator[Offered]:
    pattern = re.compile(f"(?:.*/)?{how['pattern']}")
    for name in files:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        path = root / name
        entities, atlas = _entities(path, match, layout)
        facts = _sidecar(path, layout)
        yield Offered(
            path,
            kind,
            entities,
            atlas,
            key=how.get("key", ""),
            scale=how.get("scale", "r"),
            order=how.get("order", "upper"),
            parcels_first=how.get("parcels_first", False),
            **facts,
        )


def _entities(path: Path, match: re.Match[str], layout: Layout) -> tuple[Entities, Entities]:
    """Entities of the recording, and of the parcellation."""
    groups = {key: value for key, value in match.groupdict().items() if value}
    if layout.bids:
        labels, _, _ = parse_name(path.name)
        atlas = "".join(value for key, value in labels if key in layout.atlas_entities)
        kept = drop(
            labels, (*layout.atlas_entities, "stat", "meas", "measure", "desc", "den", "res", "feature", "setting")
        )
        kept = order_entities(kept)
    else:
        atlas = groups.get(ATLAS, "")
        kept = order_entities(
            (("task", "rest"),), tuple((GROUPS[k], label_of(v, path)) for k, v in groups.items() if k in GROUPS)
        )
    return kept, (("atlas", label_of(atlas or layout.name, path)),)


def _sidecar(path: Path, layout: Layout) -> dict[str, Any]:
    """Content of the JSON of a file."""
    if not layout.sidecar:
        return {}
    stem = path.name.partition(".")[0]
    beside = [path.with_name(f"{stem}.json")]
    if layout.bids:
        entities, suffix, _ = parse_name(path.name)
        shared = drop(entities, layout.atlas_entities)
        beside.append(path.with_name("_".join([*(f"{k}-{v}" for k, v in shared), suffix]) + ".json"))
    content = next((read_json(one) for one in beside if one.is_file()), {})
    facts: dict[str, Any] = {}
    for name, keys in layout.sidecar.items():
        value = next((content[key] for key in keys if content.get(key) is not None), None)
        if value is None:
            continue
        if name == "strategy":
            facts[name] = str(value)
        elif name == "frequency" and _number(value) > 0:
            facts["repetition_time"] = 1 / _number(value)
        elif name != "frequency":
            facts[name] = _number(value)
    return facts


def _quality_tables(
    root: Path, files: Sequence[str], layout: Layout
) -> Iterator[tuple[frozenset[Any], dict[str, Any]]]:
    """Entities of every table with motion, and what its one row says."""
    if not layout.quality:
        return
    pattern = re.compile(f"(?:.*/)?{layout.quality['pattern']}")
    for name in files:
        if pattern.fullmatch(name) is None:
            continue
        path = root / name
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                text = file.read()
            if "\0" in text:  # else no name of a column would be known, and motion be missing
                raise csv.Error("it holds null bytes")
            rows = list(csv.DictReader(StringIO(text, newline=""), delimiter="," if name.endswith(".csv") else "\t"))
        except (UnicodeDecodeError, csv.Error) as error:
            fault = table_fault(path) or f"cannot be read as a table ({error}): copy it again"
            raise DatasetError(f"{path} {fault}.") from error
        entities = drop(parse_name(path.name)[0], ("desc", "den", "res"))
        if len(rows) == 1:
            yield frozenset(entities), _figures(rows[0], layout.quality)


def _figures(row: Mapping[str, str], quality: Mapping[str, Any]) -> dict[str, float]:
    figures = {}
    for name in ("mean_fd", "volumes", "seconds", "repetition_time"):
        value = next((row[column] for column in quality.get(name, ()) if column in row), None)
        if value is not None and math.isfinite(_number(value)):
            figures[name] = _number(value)
    return figures


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _with_quality(one: Offered, tables: Sequence[tuple[frozenset[Any], dict[str, float]]]) -> Offered:
    """Add the most specific table whose entities are all among those of the recording."""
    own = frozenset(one.entities)
    fitting = [(len(entities), figures) for entities, figures in tables if entities <= own]
    return replace(one, **max(fitting, key=lambda each: each[0])[1]) if fitting else one  # type: ignore[arg-type]


def _outlier_tables(root: Path, files: Sequence[str], layout: Layout) -> Iterator[tuple[frozenset[Any], Path]]:
    pattern = re.compile(f"(?:.*/)?{layout.outliers}")
    for name in files if layout.outliers else ():
        if pattern.fullmatch(name):
            yield frozenset(drop(parse_name(Path(name).name)[0], ("desc", "den", "res"))), root / name


def _with_outliers(one: Offered, tables: Sequence[tuple[frozenset[Any], Path]]) -> Offered:
    own = frozenset(one.entities)
    fitting = [(len(entities), path) for entities, path in tables if entities <= own]
    return replace(one, outliers=max(fitting)[1]) if fitting and one.kind == SERIES else one
