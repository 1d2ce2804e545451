"""The sources of a combination: jobs of one dataset, or sites, and the labels of their people."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.status import ASKED, RECORDED, STATUSES
from fcpower_bids.outputs.tables import read_declared
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.store import is_inner, stored_path

STATUS = re.compile(rf"((?:[^/]+/)?){STATUSES}/[^/]+\.json")
"""In a zip the outputs may lie in a folder."""
OWN = (
    *("logs/claims/", "logs/command_", "logs/slurm/", "work/", "group", "corpus/", "encoder/"),
    *("logs/status.tsv", "logs/shared_ids.tsv", "logs/settings_group", "index.html"),
)
"""Files of a job that are of no use elsewhere, or made anew."""
FOREIGN = ("._", ".DS_Store")
"""Companion files of macOS."""
ORDINARY = re.compile(r"[A-Za-z0-9_.+/-]+")
"""Characters of the names of our files: those of copies that a client made, such as ``NAME (1).json``, have others."""
DEPTH = 2
"""Folders down from the one named: a job, and in it the folder that its zip had."""
PERSON = re.compile(r"sub-([A-Za-z0-9+]+)")
URI = re.compile(r'"bids:([^:"]*):([^"]*)"')


@dataclass(frozen=True)
class Source:
    """The outputs of one job."""

    path: Path  # a folder or a zip
    root: str  # where in it the outputs are: nothing, or a folder and a slash
    site: str  # name of the site; empty for one of several jobs of one dataset
    files: Mapping[str, str]  # by the place in the outputs of all, the place in the folder or the zip
    copies: tuple[str, ...] = ()  # files that are none of ours
    labels: Mapping[str, str] = field(default_factory=dict)  # by the label of a person here, that in the outputs of all

    @property
    def recordings(self) -> list[str]:
        """Names of the recordings, as the outputs of all have them."""
        return [PurePosixPath(name).stem for name in self.files if name.startswith(f"{STATUSES}/")]

    def called(self, labels: Mapping[str, str]) -> Source:
        """Return the source with its people under other labels."""
        files = {_rename(name, labels): place for name, place in self.files.items()}
        return Source(self.path, self.root, self.site, files, self.copies, labels)

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents, people and datasets called as in the outputs of all. Raises DatasetError."""
        try:
            if self.path.is_dir():
                for name in names:
                    yield name, self._convert(name, stored_path(self.path, self.files[name]).read_bytes())
                return
            with zipfile.ZipFile(self.path) as archive:
                for name in names:
                    yield name, self._convert(name, archive.read(self.files[name]))
        except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:  # the last: encrypted
            raise DatasetError(f"{self.path} cannot be read to its end ({error}). Fetch it again.") from error

    def _convert(self, name: str, content: bytes) -> bytes:
        if not self.site or not name.endswith((".json", ".html")):
            return content
        text = content.decode("utf-8", "surrogateescape")
        if name.startswith("sub-") and name.endswith(".json"):
            return URI.sub(self._uri, text).encode("utf-8", "surrogateescape")
        return _rename(text, self.labels).encode("utf-8", "surrogateescape")

    def _uri(self, found: re.Match[str]) -> str:
        """The inputs keep their labels; they are those of the site."""
        dataset, place = found[1], found[2]
        return f'"bids::{_rename(place, self.labels)}"' if not dataset else f'"bids:{self.link(dataset)}:{place}"'

    def link(self, dataset: str) -> str:
        """Name of an input dataset in the outputs of all."""
        return f"{self.site}_{dataset}" if self.site else dataset

    def statuses(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield place and content of every status."""
        own = [name for name in self.files if name.startswith(f"{STATUSES}/")]
        for name, content in self.read(own):
            try:
                yield name, dict(json.loads(content))
            except (ValueError, TypeError) as error:
                raise DatasetError(f"{name} of {self.path} is no status. Fetch it again.") from error


def _rename(text: str, labels: Mapping[str, str]) -> str:
    return PERSON.sub(lambda found: f"sub-{labels.get(found[1], found[1])}", text) if labels else text


def find_sources(path: Path, site: str = "") -> list[Source]:
    """Outputs at a place: of a folder, a zip, or all folders and zips in it. Raises DatasetError."""
    found = list(_find(path, site))
    if not found:
        raise DatasetError(f"{path} holds no outputs of the participant level: there is no logs/status in it.")
    return found


def find_held(output_dir: Path) -> Source | None:
    """Content of the combined folder so far."""
    return next(_find(output_dir, "", below=0), None) if output_dir.is_dir() else None


def _find(path: Path, site: str, below: int = DEPTH) -> Iterator[Source]:
    """Outputs of a folder or zip, else those of all folders and zips in it; hidden ones are of programs."""
    if not path.is_dir():
        names = _packed(path)
        roots = {found[1] for found in map(STATUS.fullmatch, names) if found is not None}
        yield from (_source(path, root, site, names) for root in ([""] if "" in roots else sorted(roots)))
    elif (path / STATUSES).is_dir():
        yield _source(path, "", site, [one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()])
    elif below:
        for one in sorted(path.iterdir()):
            if not one.name.startswith(".") and (one.is_dir() or one.suffix == ".zip"):
                yield from _find(one, site, below - 1)


def _packed(path: Path) -> list[str]:
    """Files of a zip."""
    if not path.exists():
        raise DatasetError(f"There is no {path}. Check the path (and the mount of a container).")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} cannot be read as a folder or a zip ({error}). Fetch it again.") from error
    if outside := [name for name in names if not is_inner(name)]:
        raise DatasetError(f"{path} has a file that would lie outside of the outputs ({outside[0]}). Do not use it.")
    return names


def _source(path: Path, root: str, site: str, names: Iterable[str]) -> Source:
    """The outputs among files: in the folder in which ``logs/status`` is."""
    ours = [name for name in names if name.startswith(root) and not PurePosixPath(name).name.startswith(FOREIGN)]
    files = {name.removeprefix(root): name for name in ours}
    copies = tuple(name for name in files if _is_copy(name))
    own = (*OWN, f"{ASKED}/") if site else OWN
    taken = {name: place for name, place in files.items() if name not in copies and not name.startswith(own)}
    return Source(path, root, site, taken, copies)


def _is_copy(name: str) -> bool:
    """Whether a file among those of recordings has a name that none of ours has."""
    if name.startswith(f"{STATUSES}/"):
        return RECORDED.fullmatch(PurePosixPath(name).name) is None
    return name.startswith("sub-") and ORDINARY.fullmatch(name) is None


COMBINED = TableSpec(
    "logs/combined",
    "Where each recording came from that `combine` has put here.",
    join_columns(
        Column.text("recording", "Its name here"),
        Column.text("participant_id", "Person here"),
        Column.text("site", "Name of the site on the command line; n/a for a job of one dataset"),
        Column.text("participant_id_there", "Person in the outputs of the site"),
        Column.text("source", "Folder or zip"),
    ),
    ("recording",),
)
FILE = f"{COMBINED.name}.tsv"


def label_people(found: Sequence[Source], held: Source | None, output_dir: Path) -> list[Source]:
    """Sources with labels of people in the whole: the site before one that two have. Raises DatasetError."""
    known = known_labels(output_dir)
    owners: dict[str, set[str]] = {}
    for label in _labels(held):
        owners.setdefault(label, set()).add(next((site for (site, _), new in known.items() if new == label), ""))
    for one in found:
        for label in _labels(one):
            if (one.site, label) not in known:
                owners.setdefault(label, set()).add(one.site)
    named = []
    for one in found:
        labels = {label: _new(one, label, known, owners) for label in _labels(one)}
        named.append(one.called(labels) if one.site else one)
    _refuse_collisions(named)
    return named


def known_labels(output_dir: Path) -> dict[tuple[str, str], str]:
    """Labels of people of sites who are here already, by site and label there."""
    path = output_dir / FILE
    if not path.is_file():
        return {}
    rows = read_declared(path, COMBINED).dropna(subset=["site"])
    cells = zip(rows["site"], rows["participant_id_there"], rows["participant_id"], strict=True)
    return {(str(site), _bare(there)): _bare(here) for site, there, here in cells}


def _new(one: Source, label: str, known: dict[tuple[str, str], str], owners: dict[str, set[str]]) -> str:
    if (one.site, label) in known:
        return known[one.site, label]
    return label if owners[label] <= {one.site} else f"{one.site}{label}"


def _refuse_collisions(sources: Iterable[Source]) -> None:
    taken: dict[str, tuple[str, str]] = {}
    for one in sources:
        for label, new in (one.labels or {label: label for label in _labels(one)}).items():
            if taken.setdefault(new, (one.site, label)) != (one.site, label):
                raise DatasetError(
                    f"sub-{label} of {one.path} would be sub-{new}, as another person is. Name the site otherwise."
                )


def _labels(source: Source | None) -> list[str]:
    names = source.recordings if source else []
    return sorted({_bare(name.partition("_")[0]) for name in names})


def _bare(person: object) -> str:
    return str(person).removeprefix("sub-")
