"""Everything is compared and staged before the first file is in its place."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.outputs.status import STATUSES
from fcpower_bids.store import beside, file_in_the_way, move_whole, stored_path, write_bytes, write_text
from fcpower_bids.workflows.merging.shared import SHARED, Staged, merge_shared
from fcpower_bids.workflows.merging.sites import label_people
from fcpower_bids.workflows.merging.sources import Source, find_held, find_sources

PARCELS = re.compile(r"sourcedata/atlases/.*_dseg\.tsv")
"""Names and centres of parcels: of one atlas the same to the byte, where its image may be compressed anew."""
METHOD = 2
"""Parts of a fingerprint that say version and choices."""


@dataclass(frozen=True)
class Merged:
    """What was put together.

    Attributes
    ----------
    recordings : int
        How many the sources have.
    spread : list of str
        Participants whose recordings came from several sources, so that they have no page.
    renamed : dict of str to str
        By ``SITE:label``, the new label of people whose label another site has too.
    copies : list of str
        Files of no recording: copies that a client of a synchronised folder has made.
    lost : list of str
        Links to input datasets that lead nowhere from here.
    early : list of str
        People of sites whom a decision names, and who have no recording here.
    places : int
        Outputs that were found.
    """

    recordings: int
    spread: list[str]
    renamed: dict[str, str]
    copies: list[str]
    lost: list[str]
    early: list[str]
    places: int


def merge_outputs(output_dir: Path, sources: Iterable[tuple[str, Path]]) -> Merged:
    """Put outputs into one folder, which may hold some already.

    What names a recording or a participant is taken as it is, under a label of its own where two sites share one; of
    what all jobs write alike the first stays; decisions, links, settings and the tables of people are merged or
    refused; the table and the index of all are left to others. A page is not taken where its participant has
    recordings in several sources: it would lack some.

    Parameters
    ----------
    output_dir : Path
    sources : iterable of (str, Path)
        The site, empty for jobs of one dataset, and a place of `find_sources`.

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
    found = [one for site, path in sources for one in find_sources(path, site)]
    found = [one for one in found if one.path.resolve() != output_dir.resolve()]  # it may lie among the jobs
    if around := [one.path for one in found if one.path.resolve() in output_dir.resolve().parents]:
        raise UsageError(f"{output_dir} lies in {around[0]}, which is to be put into it. Choose a folder beside it.")
    held = find_held(output_dir)
    found = label_people(found, held, output_dir)
    everything = [*([held] if held else []), *found]
    _compare(everything)
    _refuse_files_as_folders(everything)
    _compare_files(everything)
    spread = _spread(everything)
    lost, early = _put(found, held, output_dir, spread)
    renamed = {f"{one.site}:{old}": new for one in found for old, new in one.labels.items() if old != new}
    copies = [f"{one.path}/{name}" for one in found for name in one.copies]
    recordings = len({name for one in found for name in one.recordings})
    return Merged(recordings, spread, renamed, copies, lost, early, len(found))


def _put(
    found: Sequence[Source], held: Source | None, output_dir: Path, spread: Collection[str]
) -> tuple[list[str], list[str]]:
    """Stage all beside the outputs, merge what is shared, move all to their places; return what `merge_shared` says."""
    staged = beside(output_dir)
    folders = [staged / str(number) for number in range(len(found))]
    try:
        for folder, source in zip(folders, found, strict=True):
            for name, content in source.read(_in_order(source, spread)):
                write_bytes(stored_path(folder, name), content)
        shared, lost, early = _merge_shared(output_dir, held, list(zip(found, folders, strict=True)))
        for folder, source in zip(folders, found, strict=True):
            _take(source, folder, output_dir, spread)
        for name, text in shared.items():
            write_text(output_dir / name, text)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    for name in spread:
        (output_dir / f"{name}.html").unlink(missing_ok=True)
    return lost, early


def _merge_shared(
    output_dir: Path, held: Source | None, staged: Sequence[Staged]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Merge what was staged; a fault is named in the file of the source, since the staged copy is gone afterwards."""
    try:
        return merge_shared(output_dir, held, staged)
    except DatasetError as error:
        text = str(error)
        for source, folder in staged:
            text = text.replace(f"{folder}/", f"{source.path}/{source.root}")
        raise DatasetError(text) from error


def _compare(sources: list[Source]) -> None:
    """Refuse recordings that ended in two ways, and choices that differ."""
    ends: dict[str, tuple[object, Path]] = {}
    methods: dict[str, tuple[str, Path]] = {}
    for source in sources:
        for name, status in source.statuses():
            known, where = ends.setdefault(name, (status, source.path))
            if known != status:
                raise DatasetError(
                    f"{Path(name).stem} is in {where} and, otherwise, in {source.path}. Leave out one; if these are "
                    "two people of two sites, name the sites: SITE=PATH."
                )
            method = ";".join(str(status.get("fingerprint") or "").split(";")[:METHOD])
            if method:
                methods.setdefault(method, (Path(name).stem, source.path))
    if len(methods) > 1:
        (one, here), (other, there) = list(methods.values())[:2]
        raise DatasetError(
            f"{one} in {here} and {other} in {there} were processed by other versions or with other choices. "
            "Process all with the same."
        )


def _refuse_files_as_folders(sources: list[Source]) -> None:
    """Refuse a name that is a file in one place and a folder in another: both cannot be put into one folder."""
    files = {name: source.path for source in sources for name in source.files}
    for source in sources:
        folders = {str(above) for name in source.files for above in PurePosixPath(name).parents}
        if both := sorted(folders & files.keys()):
            raise DatasetError(
                f"{both[0]} is a file in {files[both[0]]} and a folder in {source.path}. Remove the one that "
                "no run has made."
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
    """Participants whose recordings no source has all of."""
    owned: dict[str, list[set[str]]] = {}
    for source in sources:
        own: dict[str, set[str]] = {}
        for name in source.recordings:
            own.setdefault(name.partition("_")[0], set()).add(name)
        for person, recordings in own.items():
            owned.setdefault(person, []).append(recordings)
    return sorted(person for person, each in owned.items() if set().union(*each) not in each)


def _in_order(source: Source, spread: Collection[str]) -> list[str]:
    """What is taken of a source, statuses last: what has one is whole. Arrays are no older than their tables."""
    names = [name for name in source.files if name not in {f"{person}.html" for person in spread}]
    return sorted(names, key=lambda name: (name.startswith(STATUSES), name.endswith(".npy"), name))


def _take(source: Source, folder: Path, output_dir: Path, spread: Collection[str]) -> None:
    """Move what was staged of a source to its place; of what all jobs write alike the first stays."""
    for name in _in_order(source, spread):
        target = stored_path(output_dir, name)
        if name not in SHARED and (name.startswith(("sub-", STATUSES)) or not target.is_file()):
            move_whole(stored_path(folder, name), target)
