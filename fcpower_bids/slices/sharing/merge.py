"""Outputs of jobs, or of sites, put together in one folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

import pandas as pd

from fcpower_bids.claims import CLAIMS, COMBINE, alone
from fcpower_bids.cohort.decisions import DECISIONS, Decision, read_decisions
from fcpower_bids.cohort.decisions import FILE as DECIDED
from fcpower_bids.cohort.phenotypes import read_phenotype_table
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs.identity import dataset_identity, people_tables
from fcpower_bids.outputs.dataset import DESCRIPTION
from fcpower_bids.outputs.status import STATUSES
from fcpower_bids.outputs.tables import declared_text, json_text, read_declared, read_json, read_toml, table_text
from fcpower_bids.settings import METHOD_SECTIONS, Settings
from fcpower_bids.slices.sharing.sources import COMBINED, Source, find_held, find_sources, known_labels, label_people
from fcpower_bids.slices.sharing.sources import FILE as ORIGINS
from fcpower_bids.store import beside, file_in_the_way, move_whole, stored_path, sweep, write_bytes, write_text

LABELS, SETTINGS, PEOPLE = "descriptions.tsv", "logs/settings.toml", "participants.tsv"
SHARED = (DECIDED, DESCRIPTION, LABELS, SETTINGS, PEOPLE, ORIGINS)
Staged = tuple[Source, Path]


def merge_shared(
    output_dir: Path, held: Source | None, staged: Sequence[Staged]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the text of every shared file, dead links, and decisions about absent people. Raises DatasetError."""
    everything = [*([(held, output_dir)] if held else []), *staged]
    description, lost = _description(everything, output_dir)
    decisions, early = _decisions(everything, output_dir)
    found = {
        DECIDED: decisions,
        DESCRIPTION: description,
        LABELS: _lines(everything, LABELS),
        SETTINGS: _settings(everything),
        ORIGINS: _origins(output_dir, staged),
        PEOPLE: _people(output_dir, staged),
    }
    return {name: text for name, text in found.items() if text}, lost, early


def _having(everything: Sequence[Staged], name: str) -> Iterator[tuple[Source, Path]]:
    return ((source, folder / name) for source, folder in everything if (folder / name).is_file())


def _decisions(everything: Sequence[Staged], output_dir: Path) -> tuple[str, list[str]]:
    """Decisions of all sites, each about its own people, and the people that they name who have no recording yet."""
    labels = known_labels(output_dir)
    labels |= {(source.site, old): new for source, _ in everything for old, new in source.labels.items()}
    known: dict[tuple[Any, ...], tuple[Decision, Path]] = {}
    early: dict[str, None] = {}
    for source, path in _having(everything, DECIDED):
        for one in read_decisions(path):
            label = one.wanted["sub"]
            if source.site and (source.site, label) not in labels:
                early[f"sub-{label} of {source.site}"] = None  # another site may have this label
                continue
            own = {**one.wanted, "sub": labels[source.site, label] if source.site else label}
            recording = one.recording.replace(f"sub-{label}", f"sub-{own['sub']}", 1)
            moved = Decision(own, recording, one.decision, one.reason, one.decided)
            first, where = known.setdefault((*sorted(own.items()), recording), (moved, source.path))
            if first.decision != moved.decision:
                what = recording or f"sub-{own['sub']}"
                raise DatasetError(
                    f"{DECIDED} of {where} says {first.decision} of {what}, and that of {source.path} "
                    f"{moved.decision}. Correct one of them."
                )
    if not known:
        return "", list(early)
    columns = [column.written for column in DECISIONS.columns.values()]
    return table_text(pd.DataFrame([one.cells() for one, _ in known.values()], columns=columns)), list(early)


def _description(everything: Sequence[Staged], output_dir: Path) -> tuple[str, list[str]]:
    """The description of the first, with the links of all as seen from the outputs of all, and those that are lost."""
    links: dict[str, tuple[Path, Path]] = {}
    lost: dict[str, Path] = {}
    described = list(_having(everything, DESCRIPTION))
    for source, path in described:
        for name, place in _places(read_json(path), source):
            if place is None:
                lost.setdefault(source.link(name), source.path)
                continue
            known, where = links.setdefault(source.link(name), (place, source.path))
            if known != place and not dataset_identity(known) == dataset_identity(place) != "":
                raise DatasetError(
                    f"'{name}' is {known} in {where} and {place} in {source.path}: they are of two datasets. Name the "
                    f"sites, such as siteA={where} siteB={source.path}."
                )
    if not described:
        return "", []
    seen = {name: quote(os.path.relpath(place, output_dir.absolute())) for name, (place, _) in links.items()}
    about = {**read_json(described[0][1]), "SourceDatasets": [{"URL": link} for link in seen.values()]}
    nowhere = [f"{name} of {where}" for name, where in lost.items() if name not in links]
    return json_text({**about, "DatasetLinks": seen}), nowhere


def _places(description: dict[str, Any], source: Source) -> Iterator[tuple[str, Path | None]]:
    """Input datasets and where they are; of a zip nothing says from where its links, which are relative, lead."""
    links = description.get("DatasetLinks") or {}
    for name, link in links.items() if isinstance(links, dict) else ():
        place = (source.path / unquote(str(link))).resolve()
        yield str(name), place if source.path.is_dir() and place.is_dir() else None


def _lines(everything: Sequence[Staged], name: str) -> str:
    texts = [_text(path) for _, path in _having(everything, name)]
    return "".join(f"{line}\n" for line in dict.fromkeys(line for text in texts for line in text.splitlines()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is no text in UTF-8 ({error}). Fetch it again.") from error


def _settings(everything: Sequence[Staged]) -> str:
    """The choices that all have: folders and people of single jobs are no choices of the whole."""
    paths = list(_having(everything, SETTINGS))
    if not paths:
        return ""
    choices = [_choices(path) for _, path in paths]
    fields = Settings.__dataclass_fields__
    for own, (source, _) in zip(choices, paths, strict=True):
        for name in fields:
            first = choices[0].get(name)
            if fields[name].metadata.get("section") in METHOD_SECTIONS and own.get(name) != first:
                raise DatasetError(
                    f"--{name.replace('_', '-')} was {first} for {paths[0][0].path} and {own.get(name)} for "
                    f"{source.path}. Process all with the same."
                )
    lines = paths[0][1].read_text(encoding="utf-8").splitlines()
    others = [set(path.read_text(encoding="utf-8").splitlines()) for _, path in paths[1:]]
    return "".join(f"{line}\n" for line in lines if all(line in other for other in others))


def _choices(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read ({error}). Fetch it again.") from error


def _origins(output_dir: Path, staged: Sequence[Staged]) -> str:
    """Where each recording came from."""
    rows = _rows(output_dir)
    for source, folder in staged:
        there = {new: label for label, new in source.labels.items()}
        earlier = {} if source.site else _rows(folder)  # it may be a combination itself
        rows |= earlier
        for name in (name for name in source.recordings if name not in earlier):
            person = name.partition("_")[0].removeprefix("sub-")
            rows[name] = {
                "recording": name,
                "participant_id": f"sub-{person}",
                "site": source.site or None,
                "participant_id_there": f"sub-{there.get(person, person)}",
                "source": str(source.path),
            }
    frame = pd.DataFrame([rows[name] for name in sorted(rows)], columns=list(COMBINED.columns))
    return declared_text(frame, COMBINED)


def _rows(folder: Path) -> dict[str, dict[str, Any]]:
    before = read_declared(folder / ORIGINS, COMBINED).to_dict("records") if (folder / ORIGINS).is_file() else []
    return {str(row["recording"]): row for row in before}  # type: ignore[misc]


def _people(output_dir: Path, staged: Sequence[Staged]) -> str:
    """People of the sites with their site and what the tables of their datasets say, and tables that others hold."""
    frames = [read_phenotype_table(output_dir / PEOPLE)] if (output_dir / PEOPLE).is_file() else []
    for source, folder in staged:
        if source.site:
            frames.append(_people_of(source, folder))
        elif (folder / PEOPLE).is_file():
            frames.append(read_phenotype_table(folder / PEOPLE))
    if not frames:
        return ""
    whole = pd.concat(frames, ignore_index=True).drop_duplicates("participant_id", keep="last")
    return table_text(whole.sort_values("participant_id", kind="stable"))


def _people_of(source: Source, folder: Path) -> pd.DataFrame:
    people = pd.DataFrame({"participant_id": [f"sub-{label}" for label in source.labels], "site": source.site})
    tables = [folder / PEOPLE] if (folder / PEOPLE).is_file() else []
    if source.path.is_dir():
        tables += people_tables(source.path)
    for path in tables[:1]:
        own = read_phenotype_table(path).drop_duplicates("participant_id").rename(columns={"site": "site_there"})
        people = people.merge(own, how="left", on="participant_id")
    new = {f"sub-{label}": f"sub-{label_here}" for label, label_here in source.labels.items()}
    return people.assign(participant_id=people["participant_id"].map(new))


PARCELS = re.compile(r"sourcedata/atlases/.*_dseg\.tsv")
"""Names and centres of parcels: of one atlas the same to the byte, where its image may be compressed anew."""
METHOD = 2
"""Parts of a fingerprint that say version and choices."""


@dataclass(frozen=True)
class Merged:
    """Summary of a combination."""

    recordings: int  # how many the sources have
    spread: list[str]  # participants whose recordings came from several sources, so that they have no page
    renamed: dict[str, str]  # by ``SITE:label``, the new label of people whose label another site has too
    copies: list[str]  # files of no recording: copies that a client of a synchronised folder has made
    lost: list[str]  # links to input datasets that lead nowhere from here
    early: list[str]  # people that a decision about a site names, and that have no recording here
    places: int  # outputs that were found


def merge_outputs(output_dir: Path, sources: Iterable[tuple[str, Path]]) -> Merged:
    """Put outputs into one folder: files as they are, shared ones merged. Raises DatasetError, UsageError."""
    if (file := file_in_the_way(output_dir)) is not None:
        raise UsageError(f"{file} is a file, so the outputs of all cannot be put into {output_dir}. Choose a folder.")
    found = [one for site, path in sources for one in find_sources(path, site)]
    found = [one for one in found if one.path.resolve() != output_dir.resolve()]  # it may lie among the jobs
    if around := [one.path for one in found if one.path.resolve() in output_dir.resolve().parents]:
        raise UsageError(f"{output_dir} lies in {around[0]}, which is a source. Choose a folder outside of it.")
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
    """Stage all files, merge shared ones, move all to their places; return the result of `merge_shared`."""
    made = [folder for folder in (output_dir / "logs", output_dir) if not folder.exists()]
    try:
        with alone(output_dir / CLAIMS, COMBINE):
            sweep([output_dir, *(output_dir / name for name in (ORIGINS, PEOPLE))])
            return _put_staged(found, held, output_dir, spread)
    finally:
        for folder in made:  # for the claim alone, where a source is refused
            with suppress(OSError):
                folder.rmdir()


def _put_staged(
    found: Sequence[Source], held: Source | None, output_dir: Path, spread: Collection[str]
) -> tuple[list[str], list[str]]:
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
    """Files taken of a source, statuses last: a recording with one is whole. Arrays are no older than their tables."""
    names = [name for name in source.files if name not in {f"{person}.html" for person in spread}]
    return sorted(names, key=lambda name: (name.startswith(STATUSES), name.endswith(".npy"), name))


def _take(source: Source, folder: Path, output_dir: Path, spread: Collection[str]) -> None:
    """Move what was staged of a source to its place; of what all jobs write alike the first stays."""
    for name in _in_order(source, spread):
        target = stored_path(output_dir, name)
        if name not in SHARED and (name.startswith(("sub-", STATUSES)) or not target.is_file()):
            move_whole(stored_path(folder, name), target)
