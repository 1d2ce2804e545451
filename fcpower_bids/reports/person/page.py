"""One page per participant, and the index of all recordings to decide by; ``--reports-only`` needs no more."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fcpower_bids.cohort.recordings import DECISIONS, EXCLUDE_FILE, read_decisions
from fcpower_bids.encoders import embedding_label
from fcpower_bids.errors import DatasetError, FcPowerError
from fcpower_bids.outputs.dataset import describe_without_folders, known_folders, without_folders
from fcpower_bids.outputs.names import preview_path
from fcpower_bids.outputs.status import DONE, SKIPPED, TABLE, Status, describe_reasons, explain, read_statuses
from fcpower_bids.outputs.tables import MISSING, made_by, read_toml
from fcpower_bids.reports.kit.methods import AtlasFacts, all_references, methods_text, to_html
from fcpower_bids.reports.kit.page import relative_link, render_page, write_page
from fcpower_bids.reports.person.brains import read_thumbnail
from fcpower_bids.reports.person.panels import make_panels
from fcpower_bids.reports.person.recording import (
    MOST_SESSIONS,
    USED_WITH_CAUTION,
    WORDS,
    Account,
    account_of,
    cautions_of,
    judge,
    minutes_kept,
    read_accounts,
)
from fcpower_bids.settings import ParticipantOutputs
from fcpower_bids.settings.command import command_of

INDEX = "index.html"
MOST_PICTURES = 5000
"""Recordings up to which each has a picture: half a kB each, and one more file to read."""


FIGURES = {
    "minutes": ("Minutes kept", 1),
    "censored": ("Censored (%)", 1),
    "mean_fd": ("Mean FD (mm)", 3),
    "max_fd": ("Max FD (mm)", 2),
    "degrees_of_freedom": ("Degrees of freedom", 0),
    "coverage": ("Coverage (%)", 1),
    "no_value": ("Parcels without a value", 0),
    "leakage": ("Out of band (%)", 1),
}
"""Heading and decimals; of several atlases the worst counts."""


def try_index(output_dir: Path) -> list[str]:
    """Write the index, and return why it could not be written, if so."""
    try:
        write_index(output_dir)
    except Exception as error:
        return [f"There is no new {INDEX}. {explain(error, output_dir, 'index_page')}"]
    return []


def write_index(output_dir: Path) -> Path | None:
    """Write the page of all recordings that have a status; none where there are none. Raises DatasetError."""
    statuses = read_statuses(output_dir)
    pictures = len(statuses) <= MOST_PICTURES
    accounts = (account_of(output_dir, status, thorough=False) for status in statuses)  # one person after the other
    people = groupby(accounts, key=lambda account: account.name.partition("_")[0])
    rows = [row for _, own in people for row in _rows(output_dir, list(own), pictures)]
    if not rows:
        return None
    try:  # the command that was last run on these outputs at participant level
        command = command_of(read_toml(output_dir / "logs" / "settings.toml"), without=("participant_label",))
    except (OSError, ValueError, DatasetError):
        command = ""
    decided, others = _decided(output_dir, [str(row["recording"]) for row in rows])
    content = {
        "figures": [list(about) for about in FIGURES.values()],
        "file": EXCLUDE_FILE,
        "columns": list(DECISIONS.columns),
        "rows": rows,
        "decided": decided,
        "others": others,
    }
    lines = describe_reasons([one for one in statuses if one.state not in (DONE, SKIPPED)])
    text = render_page(
        "index.html",
        unused=[describe_without_folders(line, known_folders(output_dir)) for line in lines],
        script_name="index.js",
        command=command,
        title="Recordings",
        n_rows=len(rows),
        pictures=pictures,
        most_pictures=MOST_PICTURES,
        file=EXCLUDE_FILE,
        content=content,
        pages=[(page.name, page.name) for page in sorted(output_dir.glob("group*.html"))],
    )
    return write_page(output_dir / INDEX, text)


def _rows(output_dir: Path, accounts: Sequence[Account], pictures: bool) -> Iterator[dict[str, Any]]:
    """Rows of one person; links lead to the page of the session where there is one each."""
    many = len(list(groupby(accounts, key=lambda account: account.session))) > MOST_SESSIONS
    for account in accounts:
        page = account.name.partition("_")[0] + (f"_ses-{account.session or 'none'}" if many else "")
        there = (output_dir / f"{page}.html").is_file()  # a list of other programs has none
        row = {"recording": account.name, "page": f"{page}.html#{account.name}-0" if there else ""}
        seen = _seen_from(account, pictures)
        doubted = account.status.state == DONE and seen["said"]
        yield row | {"state": USED_WITH_CAUTION if doubted else WORDS[account.status.state]} | seen


def _seen_from(account: Account, pictures: bool) -> dict[str, Any]:
    """Figures, cautions and picture of a recording; what is wrong with its files is a caution."""
    used = account.status.state == DONE
    said = [] if used else [account.status.reason]
    try:
        figures = _figures(account)
        said += cautions_of(account) if used else []
    except FcPowerError as error:
        return {"values": [None] * len(FIGURES), "said": [*said, without_folders(str(error))]}
    row: dict[str, Any] = {
        "values": [_rounded(figures.get(name), digits) for name, (_, digits) in FIGURES.items()],
        "said": said,
    }
    tables = [view.tables["bold"] for view in account.views if "bold" in view.tables] if pictures else []
    try:  # the carpet under the first atlas, where one was kept
        if picture := read_thumbnail(preview_path(tables[0])) if tables else b"":
            row["picture"] = base64.b64encode(picture).decode("ascii")
    except FcPowerError as error:
        said.append(without_folders(str(error)))
    return row


def _figures(account: Account) -> dict[str, float]:
    quality = account.quality
    if not quality:
        return {}
    first = quality[0]
    later = max(first["volumes"] - first["dummy_volumes"], 1)
    return {
        "minutes": minutes_kept(account)[0],
        "censored": 100 * first["censored_volumes"] / later,
        "mean_fd": first["mean_fd"],
        "max_fd": first["max_fd"],
        "degrees_of_freedom": first["degrees_of_freedom"],
        "coverage": 100 * min(row["mean_coverage"] for row in quality),
        "no_value": max(len(parcels) for parcels in account.uncovered.values()) if account.uncovered else math.nan,
        "leakage": 100 * max(row["band_leakage"] for row in quality),
    }


def _rounded(value: Any, digits: int) -> float | None:
    """One decimal more than is shown, unless that would be rounded to another figure than on other pages."""
    number = math.nan if value is None else float(value)
    if not math.isfinite(number):
        return None
    finer, shown = round(number, digits + 1), round(number, digits)
    return shown if abs(finer - shown) > 0.49 * 10**-digits else finer


def _decided(output_dir: Path, recordings: Sequence[str]) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Decision, reason and day by recording, and the rows about others, which saving must not lose."""
    path = output_dir / EXCLUDE_FILE
    found: dict[str, list[str]] = {}
    others = []
    labels = {name: dict(part.split("-", 1) for part in name.split("_") if "-" in part) for name in recordings}
    for one in read_decisions(path) if path.is_file() else ():
        meant = [one.recording] if one.recording else [name for name in labels if one.means(name, labels[name])]
        meant = [name for name in meant if name in labels]
        found |= {name: [one.decision, one.reason, one.decided] for name in meant}
        if not meant:
            others.append([cell or MISSING for cell in one.cells()])
    return found, others


SAME = ("space", "res", "den")
"""Entities that a page does not repeat where they are the same for all recordings."""
LOGS = (TABLE, "logs/settings.toml", "logs/CITATION.md", "logs/CITATION.bib")


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
        try:
            own = _write_subject(settings, subject)
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


def _write_subject(settings: ParticipantOutputs, subject: str) -> Written:
    """Write the page of one participant, and one per session where there are many."""
    accounts, embeddings = read_accounts(settings.output_dir, subject, embedding_label(settings))
    own = Written(atlases=_atlases(accounts, settings))
    sessions = [(name, list(members)) for name, members in groupby(accounts, key=lambda account: account.session)]
    if len(sessions) <= MOST_SESSIONS:
        _write(settings, f"sub-{subject}", accounts, embeddings, sessions, own)
        return own
    for name, members in sessions:
        starts = tuple(f"{account.name}_" for account in members)
        about = [status for status in embeddings if status.recording.startswith(starts)]
        _write(settings, f"sub-{subject}_ses-{name or 'none'}", members, about, [(name, members)], own)
    _write(settings, f"sub-{subject}", accounts, embeddings, [], own)
    own.pages.insert(0, own.pages.pop())
    return own


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
    shown = [(name, [part for account in own for part in _parts(account, settings, dull)]) for name, own in sessions]
    try:  # the programs that made the outputs, this one first
        chain = [" ".join(str(one[key]) for key in ("Name", "Version") if key in one) for one in made_by(output)]
    except DatasetError:
        chain = []
    text = render_page(
        "participant.html",
        command=command_of(settings.as_dict(), without=("participant_label",)),
        title=title,
        verdict=judge(accounts, embeddings, configuration),
        rows=[row for account in accounts for row in _summary(account, dull)],
        sessions=shown,
        pages=[(page.stem, relative_link(page, output)) for page in written.pages],
        methods=Markup(to_html(methods_text(settings, _atlases(accounts, settings)), all_references(), level=1)),
        chain=chain,
        configuration=configuration,
        links=[(Path(name).name, name) for name in LOGS if name != TABLE or (output / TABLE).is_file()],
    )
    written.pages.append(write_page(settings.output_dir / f"{title}.html", text))
    panels = (panel for _, parts in shown for part in parts for panel in part["panels"])
    written.failures += [f"{title}.html: {panel.title}: {panel.failure}" for panel in panels if panel.failure]


def _atlases(accounts: Sequence[Account], settings: ParticipantOutputs) -> list[AtlasFacts]:
    """Return the atlases that the present choices were run with."""
    found = set()
    for account in accounts:
        for view in account.views if account.configuration == settings.configuration_hash() else ():
            parcels, about = view.parcellation(settings.output_dir), view.about
            source = str(about.get("Source", "n/a"))
            found.add(AtlasFacts(view.atlas, str(about["Space"]), len(parcels.table), source, parcels.citation))
    return sorted(found)


def _summary(account: Account, dull: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows of the summary table: one per atlas, or one with the status of the recording."""
    doubted = account.status.state == DONE and cautions_of(account)
    state, (kept, whole) = USED_WITH_CAUTION if doubted else WORDS[account.status.state], minutes_kept(account)
    base = {"name": account.without("sub", *dull), "atlas": "", "anchor": f"{account.name}-0", "state": state}
    numbers = {view.atlas: number for number, view in enumerate(account.views)}
    rows = []
    for row in account.quality:
        own = {"anchor": f"{account.name}-{numbers.get(row['atlas'], 0)}", "minutes": kept, "of_minutes": whole}
        own["no_value"] = len(account.uncovered.get(row["atlas"], []))
        rows.append({**base, **row, "state": state, **own})
    return rows or [base]


def _parts(account: Account, settings: ParticipantOutputs, dull: tuple[str, ...]) -> list[dict[str, Any]]:
    """The recording under each atlas, with its panels; one part without where nothing was written."""
    status, made = account.status, [(view.atlas, make_panels(account, view, settings)) for view in account.views]
    base = {"title": account.without("sub", "ses", *dull), "state": WORDS[status.state], "reason": status.reason}
    return [
        {**base, "anchor": f"{account.name}-{number}", "atlas": atlas, "panels": panels}
        for number, (atlas, panels) in enumerate(made or [("", [])])
    ]
