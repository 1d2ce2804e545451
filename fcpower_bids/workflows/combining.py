"""Outputs of single jobs, as folders or zips, put together in one folder; BABS and the like leave one per person."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.store import beside, file_in_the_way, is_inner, stored_path, write_bytes, write_shared

STATUSES = "logs/status/"
STATUS = re.compile(r"((?:[^/]+/)?)logs/status/[^/]+\.json")
"""In a zip the outputs may lie in a folder."""
PARCELS = re.compile(r"sourcedata/atlases/.*_dseg\.tsv")
"""Names and centres of parcels: of one atlas the same to the byte, where its image may be compressed anew."""
MADE_ANEW = ("logs/status.tsv", "index.html")
LABELS = "descriptions.tsv"
OWN = ("logs/claims/", "logs/command_", "logs/slurm/", "work/", "group", "corpus/", "encoder/")
"""What the outputs of a job may have besides, and what is of no use elsewhere."""
FOREIGN = ("._", ".DS_Store")
"""What macOS puts beside files."""
METHOD = 2
"""Parts of a fingerprint that say version and choices."""


@dataclass(frozen=True)
class Source:
    """The outputs of one job.

    Attributes
    ----------
    path : Path
        A folder or a zip.
    files : mapping of str to str
        By the place in the outputs, the place in the folder or the zip.
    """

    path: Path
    files: Mapping[str, str]

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents.

        Raises
        ------
        DatasetError
            A file is damaged, or closed.
        """
        try:
            if self.path.is_dir():
                yield from ((name, stored_path(self.path, self.files[name]).read_bytes()) for name in names)
                return
            with zipfile.ZipFile(self.path) as archive:
                yield from ((name, archive.read(self.files[name])) for name in names)
        except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:  # the last: encrypted
            raise DatasetError(f"{self.path} cannot be read to its end ({error}). Fetch it again.") from error

    def statuses(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield place and content of every status."""
        own = [name for name in self.files if name.startswith(STATUSES) and name.endswith(".json")]
        for name, content in self.read(own):
            try:
                yield name, dict(json.loads(content))
            except (ValueError, TypeError) as error:
                raise DatasetError(f"{name} of {self.path} is no status. Fetch it again.") from error


def combine_outputs(output_dir: Path, sources: Iterable[Path]) -> tuple[int, list[str]]:
    """Put the outputs of jobs into one folder, which may hold some already.

    Everything is compared before the first file is written. What names a recording or a participant is taken as it is;
    of what all jobs write alike the first stays; the table and the index of all are left to others. A page is not taken
    where its participant has recordings in several sources: it would lack some.

    Returns
    -------
    int, list of str
        How many recordings the sources have, and the participants without a page.

    Raises
    ------
    DatasetError
        A source holds no outputs or is damaged; two of them have a recording with different ends or files, or are
        of different choices or atlases.
    UsageError
        The folder or one above it is a file, or it lies in outputs that are combined.
    """
    if (file := file_in_the_way(output_dir)) is not None:
        raise UsageError(f"{file} is a file, so the outputs of all cannot be put into {output_dir}. Choose a folder.")
    found = [one for path in sources for one in find_sources(path)]
    if around := [one.path for one in found if one.path.resolve() in output_dir.resolve().parents]:
        raise UsageError(f"{output_dir} lies in {around[0]}, which is to be put into it. Choose a folder beside it.")
    held = _find_root(output_dir, _names(output_dir)) if output_dir.is_dir() else None
    everything = [*([held] if held else []), *found]
    _compare(everything)
    _compare_files(everything)
    spread = _spread(everything)
    staged = beside(output_dir)
    try:
        for number, source in enumerate(found):
            _stage(source, staged / str(number), spread)
        for number, source in enumerate(found):
            _take(source, staged / str(number), output_dir, spread)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    for name in spread:
        (output_dir / f"{name}.html").unlink(missing_ok=True)
    return len({name for source in found for name in source.files if name.startswith(STATUSES)}), spread


def find_sources(path: Path) -> list[Source]:
    """Outputs at a place: those of a folder or of a zip, else those of every folder and zip that are in the folder.

    Raises
    ------
    DatasetError
        There are none.
    """
    own = _open(path)
    if own is None and path.is_dir():
        inside = [_open(one) for one in sorted(path.iterdir()) if one.is_dir() or one.suffix == ".zip"]
        several = [one for one in inside if one is not None]
        if several:
            return several
    if own is None:
        raise DatasetError(f"{path} holds no outputs of the participant level: there is no logs/status in it.")
    return [own]


def _open(path: Path) -> Source | None:
    if path.is_dir():
        return _find_root(path, _names(path))
    if not path.exists():
        raise DatasetError(f"There is no {path}. Check the path (and the mount of a container).")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} cannot be read as a folder or a zip ({error}). Fetch it again.") from error
    if outside := [name for name in names if not is_inner(name)]:
        raise DatasetError(f"{path} has a file that would lie outside of the outputs ({outside[0]}). Do not use it.")
    return _find_root(path, names)


def _names(folder: Path) -> list[str]:
    """Files of outputs, which lie in the folder itself or one below, as in a zip that was unpacked."""
    roots = [one for one in (folder, *sorted(folder.iterdir())) if (one / STATUSES).is_dir()]
    return [path.relative_to(folder).as_posix() for root in roots[:1] for path in root.rglob("*") if path.is_file()]


def _find_root(path: Path, names: list[str]) -> Source | None:
    """The outputs among files: in the folder in which ``logs/status`` is."""
    roots = {found[1] for found in map(STATUS.fullmatch, names) if found is not None}
    if len(roots) != 1:
        return None
    (root,) = roots
    ours = [name for name in names if name.startswith(root) and not PurePosixPath(name).name.startswith(FOREIGN)]
    files = {name.removeprefix(root): name for name in ours}
    return Source(path, {name: place for name, place in files.items() if not name.startswith((*OWN, *MADE_ANEW))})


def _compare(sources: list[Source]) -> None:
    """Refuse recordings that ended in two ways, and choices that differ."""
    ends: dict[str, tuple[object, Path]] = {}
    methods: dict[str, tuple[str, Path]] = {}
    for source in sources:
        for name, status in source.statuses():
            known, where = ends.setdefault(name, (status, source.path))
            if known != status:
                raise DatasetError(f"{Path(name).stem} is in {where} and, otherwise, in {source.path}. Leave out one.")
            method = ";".join(str(status.get("fingerprint") or "").split(";")[:METHOD])
            if method:
                methods.setdefault(method, (Path(name).stem, source.path))
    if len(methods) > 1:
        (one, here), (other, there) = list(methods.values())[:2]
        raise DatasetError(
            f"{one} in {here} and {other} in {there} were processed by other versions or with other choices. "
            "Process all with the same."
        )


def _compare_files(sources: list[Source]) -> None:
    """Refuse files of recordings, and atlases, that are in several places with different content."""
    own = [{name for name in one.files if _is_of_one_content(name)} for one in sources]
    several = {name for name, times in Counter(chain(*own)).items() if times > 1}
    seen: dict[str, tuple[bytes, Path]] = {}
    for source, names in zip(sources, own, strict=True):
        for name, content in source.read(sorted(names & several)):
            digest = hashlib.sha256(content).digest()
            known, where = seen.setdefault(name, (digest, source.path))
            if known != digest:
                why = (
                    "the atlas was changed between them. Process all with one"
                    if PARCELS.fullmatch(name)
                    else "one of them may be damaged. Leave out that one"
                )
                raise DatasetError(f"{name} is in {where} and, with other content, in {source.path}: {why}.")


def _is_of_one_content(name: str) -> bool:
    return bool(PARCELS.fullmatch(name)) or (name.startswith("sub-") and not name.endswith(".html"))


def _spread(sources: list[Source]) -> list[str]:
    """Participants of whom no source has all recordings."""
    owned: dict[str, list[set[str]]] = {}
    for source in sources:
        own: dict[str, set[str]] = {}
        for name in (Path(one).stem for one in source.files if one.startswith(STATUSES)):
            own.setdefault(name.partition("_")[0], set()).add(name)
        for person, recordings in own.items():
            owned.setdefault(person, []).append(recordings)
    return sorted(person for person, each in owned.items() if set().union(*each) not in each)


def _in_order(source: Source, spread: Collection[str]) -> list[str]:
    """What is taken of a source, statuses last: what has one is whole. Arrays are no older than their tables."""
    names = [name for name in source.files if name not in {f"{person}.html" for person in spread}]
    return sorted(names, key=lambda name: (name.startswith(STATUSES), name.endswith(".npy"), name))


def _stage(source: Source, folder: Path, spread: Collection[str]) -> None:
    """Write the files of a source beside the outputs: whatever cannot be read is met before one is in its place."""
    for name, content in source.read(_in_order(source, spread)):
        write_bytes(stored_path(folder, name), content)


def _take(source: Source, folder: Path, output_dir: Path, spread: Collection[str]) -> None:
    """Move what was staged of a source to its place; of what all jobs write alike the first stays."""
    for name in _in_order(source, spread):
        target, staged = stored_path(output_dir, name), stored_path(folder, name)
        if name == LABELS and target.is_file():
            write_shared(target, _join_lines(target.read_text(encoding="utf-8"), staged.read_text(encoding="utf-8")))
        elif name.startswith(("sub-", STATUSES)) or not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged, target)


def _join_lines(some: str, others: str) -> str:
    return "".join(f"{line}\n" for line in dict.fromkeys([*some.splitlines(), *others.splitlines()]))
