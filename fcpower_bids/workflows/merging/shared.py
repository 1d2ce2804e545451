"""Files of outputs that are about everybody: merged one by one, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pandas as pd

from fcpower_bids.cohort.decisions import DECISIONS, Decision, read_decisions
from fcpower_bids.cohort.decisions import FILE as DECIDED
from fcpower_bids.cohort.phenotypes import read_phenotype_table
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.identity import dataset_identity, people_tables
from fcpower_bids.outputs.dataset import DESCRIPTION
from fcpower_bids.outputs.tables import declared_text, json_text, read_declared, read_json, read_toml, table_text
from fcpower_bids.settings import METHOD_SECTIONS, Settings
from fcpower_bids.workflows.merging.sites import COMBINED, known_labels
from fcpower_bids.workflows.merging.sites import FILE as ORIGINS
from fcpower_bids.workflows.merging.sources import Source

LABELS, SETTINGS, PEOPLE = "descriptions.tsv", "logs/settings.toml", "participants.tsv"
SHARED = (DECIDED, DESCRIPTION, LABELS, SETTINGS, PEOPLE, ORIGINS)
Staged = tuple[Source, Path]


def merge_shared(
    output_dir: Path, held: Source | None, staged: Sequence[Staged]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the text of every shared file by its name, the links that lead nowhere, and decisions about nobody here.

    Parameters
    ----------
    output_dir : Path
        Of all; it may hold some.
    held : Source or None
        What it holds.
    staged : sequence of (Source, Path)
        What comes, and the folder that its files are in by now.

    Raises
    ------
    DatasetError
        Two of them contradict each other.
    """
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
    """Decisions of all, each about the people of its own site, and whom of a site they name who has not come yet."""
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
