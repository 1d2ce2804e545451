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
from fcpower_bids.settings import METHOD_SECTIONS, ParticipantOutputs
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
    """The pages of participants, the atlases of the outputs that they show, and what could not be made."""

    pages: list[Path] = field(default_factory=list)
    atlases: list[AtlasFacts] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def write_pages(settings: ParticipantOutputs, subjects: Sequence[str], with_index: bool = False) -> Written:
    """Write the pages of some participants, and the index then, and return what the methods text needs of them.

    What is wrong with the page of one does not stop the others.
    """
    written = Written()
    for subject in subjects:
        own = Written()
        try:
            _write_subject(settings, subject, own)
        except Exception as error:
            why = explain(error, settings.output_dir, f"sub-{subject}_page")
            written.failures.append(f"sub-{subject} has no page. {why}")
        else:
            written.pages += own.pages
            written.atlases += own.atlases
            written.failures += own.failures
    if with_index:
        written.failures += try_index(settings.output_dir)
    return written


def _write_subject(settings: ParticipantOutputs, subject: str, written: Written) -> None:
    """Write the page of one participant, and one per session where there are many."""
    accounts, embeddings = read_accounts(settings.output_dir, subject, embedding_label(settings))
    written.atlases += _atlases(accounts, settings)
    sessions = [(name, list(members)) for name, members in groupby(accounts, key=lambda account: account.session)]
    if len(sessions) <= MOST_SESSIONS:
        _write(settings, f"sub-{subject}", accounts, embeddings, sessions, written)
        return
    for name, members in sessions:
        own = {account.name for account in members}
        about = [one for one in embeddings if any(one.recording.startswith(f"{recording}_") for recording in own)]
        _write(settings, f"sub-{subject}_ses-{name or 'none'}", members, about, [(name, members)], written)
    _write(settings, f"sub-{subject}", accounts, embeddings, [], written)
    written.pages.insert(0, written.pages.pop())


def _write(
    settings: ParticipantOutputs,
    title: str,
    accounts: list[Account],
    embeddings: list[Status],
    sessions: list[tuple[str, list[Account]]],
    written: Written,
) -> None:
    output, configuration = settings.output_dir, settings.configuration_hash()
    dull = tuple(key for key in SAME if len({account.entities.get(key) for account in accounts}) == 1)
    shown = [(name, [one for each in own for one in _sections(each, settings, dull)]) for name, own in sessions]
    try:  # the programs that made the outputs, this one first
        chain = [" ".join(str(one[key]) for key in ("Name", "Version") if key in one) for one in made_by(output)]
    except DatasetError:
        chain = []
    text = render_page(
        "participant.html",
        command=command_of(settings.as_dict(), without=("participant_label",)),
        title=title,
        verdict=judge(accounts, embeddings, configuration),
        rows=[row for account in accounts for row in _rows(account, dull)],
        sessions=shown,
        pages=[(page.stem, relative_link(page, output)) for page in written.pages],
        settings=[
            (each.name, _in_words(getattr(settings, each.name)), str(each.metadata["text"]))
            for each in dataclasses.fields(settings)
            if each.metadata.get("section") in METHOD_SECTIONS
        ],
        methods=Markup(methods_html(settings, _atlases(accounts, settings), level=1)),
        chain=chain,
        configuration=configuration,
        links=[(Path(name).name, name) for name in LOGS if name != TABLE or (output / TABLE).is_file()],
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


def _rows(account: Account, dull: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows of the summary table: one per atlas, or one with the status of the recording."""
    base: dict[str, Any] = {"name": account.without("sub", *dull), "atlas": "", "anchor": f"{account.name}-0"}
    base["state"] = word_of(account)
    kept, whole = minutes_kept(account)
    numbers = {view.atlas: number for number, view in enumerate(account.views)}
    of_all = {"state": base["state"], "minutes": kept, "of_minutes": whole}
    rows = [
        {
            **(base | row | of_all),
            "anchor": f"{account.name}-{numbers.get(row['atlas'], 0)}",
            "no_value": len(account.uncovered.get(row["atlas"], [])),
        }
        for row in account.quality
    ]
    return rows or [base]


def _sections(account: Account, settings: ParticipantOutputs, dull: tuple[str, ...]) -> list[Section]:
    title, state = account.without("sub", "ses", *dull), (WORDS[account.status.state], account.status.reason)
    return [
        Section(f"{account.name}-{number}", title, view.atlas, *state, tuple(make_panels(account, view, settings)))
        for number, view in enumerate(account.views)
    ] or [Section(f"{account.name}-0", title, "", *state, ())]


def _in_words(value: Any) -> str:
    value = plain(value)
    text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return without_folders(text)
