"""People of several sites: under one label in two of them, they get labels that name the site."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_declared
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.workflows.merging.sources import Source

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
    """Return the sources with their people under the labels that they have in the outputs of all.

    A label that another site has too, or that the outputs hold from elsewhere, gets the name of its site before it;
    who came from the same site before keeps the label of that time.

    Raises
    ------
    DatasetError
        A label with its site is that of another person already.
    """
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
