"""One page per participant, made from what was written; ``--reports-only`` needs nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fcpower_bids.encoders import embedding_label
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.dataset import without_folders
from fcpower_bids.outputs.status import TABLE, Status, explain
from fcpower_bids.outputs.tables import made_by, plain
from fcpower_bids.reports.kit.methods import AtlasFacts, methods_html
from fcpower_bids.reports.kit.page import relative_link, render_page, write_page
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.reports.person.index import try_index
from fcpower_bids.reports.person.panels import make_panels
from fcpower_bids.reports.person.recording_facts import MOST_SESSIONS, Account, read_accounts
from fcpower_bids.reports.person.verdict import WORDS, judge, minutes_kept, word_of
from fcpower_bids.settings import METHOD_SECTIONS, Participant, ParticipantOutputs
from fcpower_bids.settings.command import command_of

SAME = ("space", "res", "den")
"""Entities that a page does not repeat where they are the same for all recordings."""
LOGS = (TABLE, "logs/settings.toml", "logs/CITATION.md", "logs/CITATION.bib")


@dataclass(frozen=True)
class Section:
    """A recording under an atlas, with its panels."""

    anchor: str
    title: str
    atlas: str
    state: str
    reason: str
    panels: tuple[Panel, ...]


@dataclass
class Written:
    """The pages of a participant, the atlases of the outputs that they show, and what could not be made."""

    pages: list[Path] = field(default_factory=list)
    atlases: list[AtlasFacts] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def write_pages(settings: ParticipantOutputs, subjects: Sequence[str], with_index: bool = False) -> Written:
    """Write the pages of some participants, and the index then, and return what the methods text needs of them."""
    each = [_try(settings, subject) for subject in subjects]
    failures = [failure for one in each for failure in one.failures]
    return Written(
        [page for one in each for page in one.pages],
        [atlas for one in each for atlas in one.atlases],
        failures + (try_index(settings.output_dir) if with_index else []),
    )


def _try(settings: ParticipantOutputs, subject: str) -> Written:
    """Write the page of one participant; what is wrong with it does not stop the others."""
    try:
        return write_participant_report(settings, subject)
    except Exception as error:
        why = explain(error, settings.output_dir, f"sub-{subject}_page")
        return Written(failures=[f"sub-{subject} has no page. {why}"])


def write_participant_report(settings: ParticipantOutputs, subject: str) -> Written:
    """Write the page of one participant, and one per session where there are many."""
    accounts, embeddings = read_accounts(settings.output_dir, subject, embedding_label(settings))
    written = Written(atlases=_atlases(accounts, settings))
    sessions = [(name, list(members)) for name, members in groupby(accounts, key=lambda account: account.session)]
    if len(sessions) <= MOST_SESSIONS:
        _write(settings, f"sub-{subject}", accounts, embeddings, sessions, written)
        return written
    for name, members in sessions:
        own = {account.name for account in members}
        about = [one for one in embeddings if any(one.recording.startswith(f"{recording}_") for recording in own)]
        title = f"sub-{subject}_ses-{name}" if name else f"sub-{subject}_ses-none"
        _write(settings, title, members, about, [(name, members)], written)
    _write(settings, f"sub-{subject}", accounts, embeddings, [], written)
    written.pages.insert(0, written.pages.pop())
    return written


def _write(
    settings: ParticipantOutputs,
    title: str,
    accounts: list[Account],
    embeddings: list[Status],
    sessions: list[tuple[str, list[Account]]],
    written: Written,
) -> None:
    dull = tuple(key for key in SAME if len({account.entities.get(key) for account in accounts}) == 1)
    shown = _sessions(sessions, settings, dull)
    text = render_page(
        "participant.html",
        command=command_of(settings.as_dict(), without=("participant_label",)),
        title=title,
        verdict=judge(accounts, embeddings, settings.configuration_hash()),
        rows=[row for account in accounts for row in _rows(account, dull)],
        sessions=shown,
        pages=[(page.stem, relative_link(page, settings.output_dir)) for page in written.pages],
        settings=_choices(settings),
        methods=Markup(methods_html(settings, _atlases(accounts, settings), level=1)),
        chain=_chain(settings.output_dir),
        configuration=settings.configuration_hash(),
        links=[(Path(name).name, name) for name in LOGS if name != TABLE or (settings.output_dir / TABLE).is_file()],
    )
    written.pages.append(write_page(settings.output_dir / f"{title}.html", text))
    panels = (panel for _, members in shown for section in members for panel in section.panels)
    written.failures += [f"{title}.html: {panel.title}: {panel.failure}" for panel in panels if panel.failure]


def _atlases(accounts: Sequence[Account], settings: ParticipantOutputs) -> list[AtlasFacts]:
    """Return the atlases that the present choices were run with."""
    found = set()
    for account in accounts:
        for view in account.views if account.configuration == settings.configuration_hash() else ():
            parcels, about = view.parcellation(settings.output_dir), view.about
            source = str(about.get("Source", "n/a"))
            found.add(AtlasFacts(view.atlas, str(about["Space"]), len(parcels.names), source, parcels.citation))
    return sorted(found)


def _anchor(account: Account, number: int) -> str:
    return f"{account.name}-{number}"


def _rows(account: Account, dull: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows of the summary table: one per atlas, or one with the status of the recording."""
    base: dict[str, Any] = {
        "anchor": _anchor(account, 0),
        "name": account.without("sub", *dull),
        "state": word_of(account),
        "atlas": "",
    }
    rows = []
    for row in account.quality:
        kept, whole = minutes_kept(account)
        number = next((i for i, view in enumerate(account.views) if view.atlas == row["atlas"]), 0)
        rows.append(
            {
                **base,
                **row,
                "state": base["state"],
                "anchor": _anchor(account, number),
                "minutes": kept,
                "of_minutes": whole,
                "no_value": len(account.uncovered.get(row["atlas"], [])),
            }
        )
    return rows or [base]


def _sessions(
    sessions: Sequence[tuple[str, list[Account]]], settings: ParticipantOutputs, dull: tuple[str, ...]
) -> list[tuple[str, list[Section]]]:
    return [(name, _sections(members, settings, dull)) for name, members in sessions]


def _sections(accounts: Sequence[Account], settings: ParticipantOutputs, dull: tuple[str, ...]) -> list[Section]:
    sections = []
    for account in accounts:
        title = account.without("sub", "ses", *dull)
        state = (WORDS[account.status.state], account.status.reason)
        for number, view in enumerate(account.views):
            panels = tuple(make_panels(account, view, settings))
            sections.append(Section(_anchor(account, number), title, view.atlas, *state, panels))
        if not account.views:
            sections.append(Section(_anchor(account, 0), title, "", *state, ()))
    return sections


def _choices(settings: Participant) -> list[tuple[str, str, str]]:
    return [
        (field.name, _shown(getattr(settings, field.name)), str(field.metadata["text"]))
        for field in dataclasses.fields(settings)
        if field.metadata.get("section") in METHOD_SECTIONS
    ]


def _shown(value: Any) -> str:
    value = plain(value)
    text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return without_folders(text)


def _chain(output_dir: Path) -> list[str]:
    """Return the programs that made the outputs, this one first."""
    try:
        return [" ".join(str(one[key]) for key in ("Name", "Version") if key in one) for one in made_by(output_dir)]
    except DatasetError:
        return []
