"""The files of the trees that are read, fMRIPrep's and the HCP pipelines': names, sidecars, folders, and faults."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcpower_bids.errors import DatasetError, RecordingError, UsageError
from fcpower_bids.imaging.confounds import MOTION_FILE, has_cosines_of
from fcpower_bids.outputs.dataset import order_entities, parse_name
from fcpower_bids.outputs.tables import read_json, write_json
from fcpower_bids.records import Entities, Named, Recording, space_of, value_of
from fcpower_bids.store import lock, replace_folder

if TYPE_CHECKING:
    from bids.layout import BIDSLayout

    from fcpower_bids.imaging.streaming import HeaderSummary

GRID_KEYS = frozenset({"space", "cohort", "res", "den"})
"""Entities of the grid of a series; without them the name is that of the run."""
CONFOUNDS = ("timeseries", "regressors")
"""Suffixes of the confounds table in fMRIPrep 20.2 and later, and 1.2 to 20.1."""

POINTERS = (b"/annex/objects/", b"version https://")
"""How files begin that git-annex and git-lfs put where the content would be."""

_IMAGE, _TABLE, _CIFTI = (".nii.gz", ".nii"), (".tsv",), (".dtseries.nii",)
# (suffix, desc) -> what it is, possible extensions
_KINDS: dict[tuple[str, str | None], tuple[str, tuple[str, ...]]] = {
    ("bold", "preproc"): ("bold", _IMAGE + _CIFTI),
    ("bold", None): ("bold", _CIFTI),
    ("mask", "brain"): ("mask", _IMAGE),
    ("timeseries", "confounds"): ("confounds", _TABLE),
    ("regressors", "confounds"): ("confounds", _TABLE),
}


@dataclass(frozen=True)
class Source(Named):
    """One file of the derivatives that a recording can need."""

    path: Path  # the file
    root: Path  # the dataset that it lies in
    kind: str  # ``bold``, ``mask`` or ``confounds``
    entities: Entities  # all of its name but ``desc``, in the order of the specification
    # suffix, extension: the rest of its name
    suffix: str
    extension: str
    # how mask and confounds of a series are called by its pipeline; empty for the names of fMRIPrep
    companions: tuple[str, str] = ("", "")

    @cached_property
    def labels(self) -> dict[str, str]:
        """The entities as a dictionary."""
        return dict(self.entities)

    @property
    def run(self) -> Entities:
        """The entities without those of the grid: equal for all series of one run."""
        return drop(self.entities, GRID_KEYS)

    @property
    def space(self) -> str:
        """The template, or ``scanner`` for a series that stayed in its own space."""
        return space_of(self.labels) or "scanner"

    @property
    def is_cifti(self) -> bool:
        """Whether it is a CIFTI ``dtseries``."""
        return self.extension == ".dtseries.nii"


def drop(entities: Entities, keys: Iterable[str]) -> Entities:
    """Return entities without some keys."""
    unwanted = set(keys)
    return tuple((key, value) for key, value in entities if key not in unwanted)


def read_source(path: Path, root: Path) -> Source | None:
    """Classify a file by its name; None for one that no recording needs. Raises DatasetError."""
    try:
        entities, suffix, extension = parse_name(path.name)
    except ValueError:
        return None
    labels = dict(entities)
    kind, extensions = _KINDS.get((suffix, labels.pop("desc", None)), ("", ()))
    if extension not in extensions or "sub" not in labels:
        return None
    if extension in _CIFTI:
        # Before 20.0 the name of a CIFTI series could leave out the only space that there was.
        labels.setdefault("space", "fsLR")
    return Source(path, root, kind, order_entities(tuple(labels.items())), suffix, extension)


@dataclass
class Sidecars:
    """The JSON files of a dataset, each folder listed and each file read once."""

    # raw datasets that the derivatives were made from; they are asked first, so that derivatives override them
    raw_roots: tuple[Path, ...] = ()
    _listed: dict[Path, list[tuple[frozenset[tuple[str, str]], Path]]] = field(default_factory=dict)
    _contents: dict[Path, dict[str, Any]] = field(default_factory=dict)
    unfetched: set[Path] = field(default_factory=set)  # those that were asked and stand for content that is not there

    def applicable(self, series: Source) -> list[Path]:
        """Return the JSON files that apply to a series by the inheritance principle, the most specific last."""
        try:
            named = parse_name(series.path.name)[0]
        except ValueError:  # no BIDS name: the entities that it was given
            named = series.entities
        sidecars = []
        inner = series.path.parent.relative_to(series.root)
        for root in (*self.raw_roots, series.root):
            for folder in [root / level for level in (*reversed(inner.parents), inner)]:
                known = values_of(series.run if root != series.root else named)
                fitting = [(len(entities), path) for entities, path in self._in_folder(folder) if entities <= known]
                sidecars += [path for _, path in sorted(fitting)]
        return sidecars

    def stated(self, series: Source, key: str) -> dict[Path, Any]:
        """Return what the JSON files of a series say of a key, the most specific last. Raises DatasetError."""
        paths = self.applicable(series)
        for path in (path for path in paths if path not in self._contents):
            self.unfetched |= {path} if is_unfetched(path) else set()
            self._contents[path] = {} if path in self.unfetched else read_json(path)
        return {path: value for path in paths if (value := self._contents[path].get(key)) is not None}

    def _in_folder(self, folder: Path) -> list[tuple[frozenset[tuple[str, str]], Path]]:
        """The JSON files about BOLD series in a folder with their entities; one for all has none."""
        if folder not in self._listed:
            listed = self._listed[folder] = []
            for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
                with suppress(ValueError):
                    entities, suffix = ((), "bold") if path.name == "bold.json" else parse_name(path.name)[:2]
                    listed += [(values_of(entities), path)] if suffix == "bold" else []
        return self._listed[folder]


def is_unfetched(path: Path) -> bool:
    """Whether a file stands for content that is elsewhere: a dead link, or a pointer of git-annex or git-lfs."""
    if not path.exists():
        return True
    if not path.is_file():
        return False  # nothing comes from a pipe
    try:
        with path.open("rb") as stream:
            return stream.read(16).startswith(POINTERS)
    except OSError:
        return False


def values_of(entities: Entities) -> frozenset[tuple[str, str]]:
    """Entities as values: a number has no leading zeros."""
    return frozenset((key, value_of(key, label)) for key, label in entities)


VOLUME = {"space": "MNI152NLin6Asym", "res": "2"}
SURFACE = {"space": "fsLR", "den": "91k"}
CLEANED = ("proc", "fix")
"""Entity of what ICA-FIX has cleaned."""
FIX = ("_hp2000_clean", "_hp0_clean")
MASKS = ("brainmask_fs.2.nii.gz", "brainmask_fs.2.0.nii.gz")
RESULTS = "MNINonLinear/Results"
"""Folder of a participant that shows whose tree it is."""
PATTERN = f"PARTICIPANT/{RESULTS}/[rt]fMRI_*/*.nii.gz and *_Atlas*.dtseries.nii"
LOOKED_AT = 50
"""Folders of participants that are looked at before a tree is taken for none of these."""
HCP_RUN = re.compile(r"[rt]fMRI_(?P<task>[A-Za-z]+)(?P<run>\d*)(?:_(?P<acq>7T))?_(?P<dir>[A-Z]{2})")


def is_hcp(root: Path) -> bool:
    """Whether the folders of a tree are those of the HCP pipelines."""
    return any((folder / RESULTS).exists() for folder in _folders(root)[:LOOKED_AT])


def hcp_sources(root: Path, subjects: Collection[str] | None = None) -> list[Source]:
    """Return series, masks and motion files of a tree, masks and motion files once for every series."""
    sources: list[Source] = []
    for folder in _folders(root):
        label = folder.name.removeprefix("sub-")
        for results in _folders(folder / RESULTS) if label.isalnum() and label in (subjects or {label}) else ():
            if match := HCP_RUN.fullmatch(results.name):
                run = {key: value for key, value in match.groupdict().items() if value}
                sources += _of_run(root, results, {"sub": label, **run, "task": run["task"].lower()})
    return sources


def _of_run(root: Path, results: Path, run: dict[str, str]) -> Iterator[Source]:
    """Yield the series of one run, in the volume and on the surface, before and after ICA-FIX, and what they need."""
    mask, motion = _first(results / name for name in MASKS), _first([results / MOTION_FILE])
    for fix in (("",), FIX):
        volume = _first(results / f"{results.name}{end}.nii.gz" for end in fix)
        surface = _first(
            results / f"{results.name}_Atlas{kind}{end}.dtseries.nii" for kind in ("_MSMAll", "") for end in fix
        )
        for path, grid, own_mask in ((volume, VOLUME, mask), (surface, SURFACE, None)):
            if path is None:
                continue
            labels = {**run, **dict([CLEANED] if fix is FIX else []), **grid}
            entities, extension = order_entities(tuple(labels.items())), path.name[path.name.index(".") :]
            yield Source(path, root, "bold", entities, "bold", extension, (MASKS[0], MOTION_FILE))
            if own_mask is not None:
                yield Source(own_mask, root, "mask", entities, "mask", extension)
            if motion is not None:
                yield Source(motion, root, "confounds", drop(entities, GRID_KEYS), "timeseries", motion.suffix)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _first(paths: Iterable[Path]) -> Path | None:
    """Return the first that is there; a dead link is there too, and is named later."""
    return next((path for path in paths if path.exists() or path.is_symlink()), None)


SUFFIXES = ("bold", "mask", "timeseries", "regressors")
EXTENSIONS = (".nii.gz", ".nii", ".dtseries.nii", ".tsv")
ENTITIES = {
    "name": "fcpower_bids",
    "entities": [
        {"name": "suffix", "pattern": r"(?:^|[_/\\])([a-zA-Z0-9+]+)\.[^/\\]+$"},
        {"name": "extension", "pattern": r"(?:^|[_/\\])[a-zA-Z0-9+]+(\.[^/\\]+)$"},
    ],
}
"""Configuration of pybids: its two entities that are asked for. Its other forty take a third of an index's time."""
OTHER_ENTITIES = "entities-of-fcpower_bids.json"
"""No such file is in a dataset: a `layout_config.json` of the user could give suffixes another meaning."""
MANIFEST = "manifest.json"


def list_func_folders(root: Path, subjects: Collection[str] | None = None) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the ``func`` folders of a dataset, and the folders that may not be read: pybids passes over them."""
    closed: list[Path] = []
    people = sorted(root.glob("sub-*")) if subjects is None else [root / f"sub-{label}" for label in sorted(subjects)]
    holders = _readable(people, closed)
    holders += _readable((path for holder in list(holders) for path in sorted(holder.glob("ses-*"))), closed)
    return tuple(sorted(_readable((holder / "func" for holder in holders), closed))), tuple(closed)


def _readable(folders: Iterable[Path], closed: list[Path]) -> list[Path]:
    """Pass on the folders that may be listed; the others are put with the closed ones."""
    there = {folder: os.access(folder, os.R_OK | os.X_OK) for folder in folders if folder.is_dir()}
    closed += [folder for folder, may in there.items() if not may]
    return [folder for folder, may in there.items() if may]


def list_files(
    root: Path, subjects: Collection[str] | None, closed: Collection[Path], database_dir: Path | None = None
) -> list[Path]:
    """Return the BOLD, mask and confounds files of a dataset, sorted. Raises UsageError."""
    from bids.layout import BIDSLayout, BIDSLayoutIndexer  # a third of a second

    # all paths but those of the files that matter, and of the folders that lead to them
    people = "[^/]+" if subjects is None else "|".join(map(re.escape, sorted(subjects)))
    ends = "|".join(f"_{suffix}{re.escape(extension)}" for suffix in SUFFIXES for extension in EXTENSIONS)
    others = re.compile(rf"^(?!/sub-({people})(/ses-[^/]+)?(/func(/sub-[^/]*({ends}))?)?$)")
    shut = [re.compile(rf"^/{re.escape(folder.relative_to(root).as_posix())}(/|$)") for folder in closed]

    def index(database: Path | None = None) -> BIDSLayout:
        indexer = BIDSLayoutIndexer(
            validate=False, index_metadata=False, ignore=[others, *shut], config_filename=OTHER_ENTITIES
        )
        return BIDSLayout(
            root, validate=False, is_derivative=True, indexer=indexer, config=[ENTITIES], database_path=database
        )

    if database_dir is None:
        layout = index()
    else:
        home = database_dir / f"{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
        # a folder's modification time changes when a file in it appears or disappears
        times = {place.relative_to(root).as_posix(): place.stat().st_mtime_ns for place in list_func_folders(root)[0]}
        manifest = {"root": str(root), "pattern": others.pattern, "folders": times}
        _keep_index(home, manifest, index)
        layout = BIDSLayout(root, validate=False, database_path=home)
    names = layout.get(suffix=list(SUFFIXES), extension=list(EXTENSIONS), return_type="filename")
    _close(layout)
    return sorted(map(Path, names))


def _keep_index(home: Path, manifest: dict[str, Any], index: Callable[[Path], BIDSLayout]) -> None:
    """Make an index in a folder, unless one of the same files is there."""

    def sizes(folder: Path) -> dict[str, int]:  # of the database, which say when it was cut short
        return {path.name: path.stat().st_size for path in folder.glob("*.sqlite")}

    def is_current() -> bool:
        try:
            return read_json(home / MANIFEST) == manifest | sizes(home)
        except DatasetError:
            return False

    def build(folder: Path) -> None:
        _close(index(folder))
        write_json(folder / MANIFEST, manifest | sizes(folder))

    try:
        if not is_current():
            with lock(home.with_suffix(".lock")):
                if not is_current():  # another job was quicker
                    replace_folder(home, build)
    except OSError as error:
        raise UsageError(
            f"The index cannot be written to {home.parent} ({error.strerror}). "
            "Give --bids-database-dir a folder that can be written, or leave it out."
        ) from error


def _close(layout: BIDSLayout) -> None:
    layout.session.close()
    layout.connection_manager.engine.dispose()


SHORTEST_TR, LONGEST_TR = 0.1, 20.0
"""Seconds; a value outside is a mistake of units, most often milliseconds."""
TR_TOLERANCE = 0.01


def inspect_series(series: Source, mask: Path | None, confounds: Path | None, sidecars: Sidecars) -> Recording:
    """Look at the files of one series without reading its data. Raises RecordingError: every fault and its remedy."""
    wrong: list[str] = []
    header = _attempt(wrong, _read_header, series.path)
    volumes, in_header = (header.n_volumes, header.repetition_time) if header else (None, None)
    _attempt(wrong, _check_mask, series, mask)
    _attempt(wrong, _check_confounds, series, confounds)
    repetition_time = _attempt(wrong, _find_repetition_time, series, sidecars, in_header, confounds)
    if wrong or confounds is None or volumes is None:
        raise RecordingError(" ".join(wrong))
    own_mask, metadata = None if series.is_cifti else mask, confounds.with_name(f"{_stem(confounds)}.json")
    known = metadata if metadata.is_file() else None
    return Recording(series.path, series.entities, repetition_time, own_mask, confounds, known, volumes)


def _attempt(wrong: list[str], check: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the check returns, or None with its sentence noted."""
    try:
        return check(*arguments)
    except (RecordingError, DatasetError) as error:
        wrong.append(str(error))
        return None


def _read_header(path: Path) -> HeaderSummary:
    from fcpower_bids.imaging.streaming import header_summary  # loads nibabel or nilearn, which are slow to load

    _check_content(path)
    return header_summary(path)


def _check_mask(series: Source, mask: Path | None) -> None:
    if series.is_cifti:
        return
    if mask is None:
        expected = series.companions[0] or f"{series.name}_desc-brain_mask.nii.gz"
        if (folder := series.path.with_name(Path(expected).name)).is_dir():
            raise RecordingError(f"{folder} is a folder, a pipe or a device, not a file: put the file there.")
        raise RecordingError(
            f"{series.path} has no brain mask: {expected} is not next to it. Copy it there or run fMRIPrep again."
        )
    _check_content(mask)


def _check_confounds(series: Source, confounds: Path | None) -> None:
    if confounds is None:
        expected = series.companions[1] or "desc-confounds_timeseries.tsv"
        raise RecordingError(
            f"{series.path} has no confounds table: no {expected} of its run is next to it. "
            "Copy it there or run fMRIPrep again."
        )
    _check_content(confounds)


def _check_content(path: Path) -> None:
    """Refuse a dead link, a closed or empty file, a stand-in for content that is not there, and a false ``.gz``."""
    if not path.exists():
        raise RecordingError(
            f"{path} is a link to content that is not there: fetch it (datalad get, git annex get) or correct the link."
        )
    if not path.is_file():
        raise RecordingError(f"{path} is a folder, a pipe or a device, not a file: put the file there.")
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise RecordingError(f"{path} may not be read ({error.strerror}): give yourself read access to it.") from error
    if not start:
        raise RecordingError(f"{path} is empty: copy it again or run fMRIPrep again.")
    if start.startswith(POINTERS):
        raise RecordingError(f"{path} stands for content that is not there: fetch it (datalad get, git lfs pull).")
    if path.name.endswith(".gz") and not start.startswith(b"\x1f\x8b"):
        raise RecordingError(f"{path} is not gzip although its name says so: rename it to .nii or copy it again.")


def _find_repetition_time(series: Source, sidecars: Sidecars, in_header: float | None, confounds: Path | None) -> float:
    """Return the seconds between volumes, on which the JSON files and the header must agree.

    Where all JSON files and the cosines of the confounds table agree, the header is wrong, as releases of fMRIPrep
    have written it: the note of that is made where the series is cleaned.
    """
    found = sidecars.stated(series, "RepetitionTime")
    source, value = next(reversed(found.items()), (None, None))
    if value is None and in_header is None:
        for path in sidecars.applicable(series):
            _check_content(path)  # one that is not fetched may hold it
        raise RecordingError(
            f"{series.path} has no repetition time, neither in its header nor in a JSON file: "
            f'write {{"RepetitionTime": seconds}} to {_stem(series.path)}.json next to it.'
        )
    stated = in_header if value is None else _number(value, source)
    where = source or series.path
    if stated is None or not SHORTEST_TR <= stated <= LONGEST_TR:
        raise RecordingError(
            f"{where} gives a repetition time of {value if source else stated}, which cannot be seconds "
            f"({SHORTEST_TR:g} to {LONGEST_TR:g}): milliseconds? Correct RepetitionTime in {_stem(series.path)}.json."
        )
    if source is not None and in_header is not None and abs(stated - in_header) > TR_TOLERANCE * stated:
        times = [_number(entry, path) for path, entry in found.items()]
        agree = all(seconds is not None and abs(seconds - stated) <= TR_TOLERANCE * stated for seconds in times)
        if agree and confounds is not None and has_cosines_of(confounds, stated):
            return stated
        raise RecordingError(
            f"{source} gives a repetition time of {stated:g} s but the header of {series.path} gives {in_header:g} s: "
            "find out which is true and correct the other."
        )
    return stated


def _number(value: Any, source: Path | None) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RecordingError(f"{source} gives the RepetitionTime {value!r}, which is no number: correct it.") from None
    return number if math.isfinite(number) else None


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]
