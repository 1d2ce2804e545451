"""The names that fMRIPrep gave its files, from 1.2 to today, and the JSON files that describe a series."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fcpower_bids.outputs.names import order_entities, parse_name
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.records import Entities, space_of

GRID_KEYS = frozenset({"space", "cohort", "res", "den"})
"""Entities of the grid of a series; without them the name is that of the run."""
CONFOUNDS = ("timeseries", "regressors")
"""Suffixes of the confounds table in fMRIPrep 20.2 and later, and 1.2 to 20.1."""

INDEX_KEYS = frozenset({"run", "echo", "flip", "inv", "split", "chunk", "res"})
"""Entities whose value may be a number, so that 1 and 01 are the same."""
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
class Source:
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
    def name(self) -> str:
        """The entities in one string."""
        return join(self.entities)

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


def join(entities: Entities) -> str:
    """Return entities as they stand in a file name."""
    return "_".join(f"{key}-{value}" for key, value in entities)


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
            own = parse_name(series.path.name)[0]
        except ValueError:  # no BIDS name: the entities that it was given
            own = series.entities
        found = []
        for root in (*self.raw_roots, series.root):
            for folder in self._levels(root, series.path.parent.relative_to(series.root)):
                known = _values(series.run if root != series.root else own)
                fitting = [(len(entities), path) for entities, path in self._in_folder(folder) if entities <= known]
                found += [path for _, path in sorted(fitting)]
        return found

    def lookup(self, series: Source, key: str) -> tuple[Any, Path | None]:
        """Return the value of a key and the file that states it; (None, None) where none does. Raises DatasetError."""
        value, source = None, None
        for path in self.applicable(series):
            if path not in self._contents:
                self._contents[path] = self._read(path)
            if self._contents[path].get(key) is not None:
                value, source = self._contents[path][key], path
        return value, source

    def stated(self, series: Source, key: str) -> list[Any]:
        """Return every value of a key in the JSON files of a series. Raises DatasetError."""
        self.lookup(series, key)
        known = (self._contents[path].get(key) for path in self.applicable(series))
        return [value for value in known if value is not None]

    def _read(self, path: Path) -> dict[str, Any]:
        if is_unfetched(path):
            self.unfetched.add(path)
            return {}
        return read_json(path)

    @staticmethod
    def _levels(root: Path, inner: Path) -> list[Path]:
        return [root, *(root.joinpath(*inner.parts[: depth + 1]) for depth in range(len(inner.parts)))]

    def _in_folder(self, folder: Path) -> list[tuple[frozenset[tuple[str, str]], Path]]:
        if folder not in self._listed:
            paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
            self._listed[folder] = [
                (entities, path) for path in paths if (entities := _bold_entities(path)) is not None
            ]
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


def _bold_entities(path: Path) -> frozenset[tuple[str, str]] | None:
    """The entities of a JSON file about BOLD series, else None; one for all has none."""
    if path.name == "bold.json":
        return frozenset()
    try:
        entities, suffix, _ = parse_name(path.name)
    except ValueError:
        return None
    return _values(entities) if suffix == "bold" else None


def _values(entities: Entities) -> frozenset[tuple[str, str]]:
    """Entities as values: a number has no leading zeros."""
    return frozenset(
        (key, str(int(value)) if key in INDEX_KEYS and value.isdecimal() else value) for key, value in entities
    )
