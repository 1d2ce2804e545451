"""``index.html``: every recording with the figures to decide by, and what was decided."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from fcpower_bids.cohort.decisions import DECISIONS, FILE, read_decisions
from fcpower_bids.errors import DatasetError, FcPowerError
from fcpower_bids.outputs.dataset import describe_without_folders, known_folders, without_folders
from fcpower_bids.outputs.names import preview_path
from fcpower_bids.outputs.status import DONE, SKIPPED, describe_reasons, explain, read_statuses
from fcpower_bids.outputs.tables import MISSING, read_toml
from fcpower_bids.reports.kit.page import render_page, write_page
from fcpower_bids.reports.person.previews import read_thumbnail
from fcpower_bids.reports.person.recording_facts import MOST_SESSIONS, Account, account_of
from fcpower_bids.reports.person.verdict import USED_WITH_CAUTION, WORDS, cautions_of, minutes_kept
from fcpower_bids.settings.command import command_of

INDEX = "index.html"
MOST_PICTURES = 5000
"""Recordings up to which each has a picture: half a kB each, and one more file to read."""


@dataclass(frozen=True)
class Figure:
    """A column of numbers: heading, decimals, and which side is the bad one (1 high, -1 low)."""

    heading: str
    digits: int
    bad: int


FIGURES = {
    "minutes": Figure("Minutes kept", 1, -1),
    "censored": Figure("Censored (%)", 1, 1),
    "mean_fd": Figure("Mean FD (mm)", 3, 1),
    "max_fd": Figure("Max FD (mm)", 2, 1),
    "degrees_of_freedom": Figure("Degrees of freedom", 0, -1),
    "coverage": Figure("Coverage (%)", 1, -1),
    "no_value": Figure("Parcels without a value", 0, 1),
    "leakage": Figure("Out of band (%)", 1, 1),
}
"""Of several atlases the worst counts."""


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
        "figures": [[one.heading, one.digits, one.bad] for one in FIGURES.values()],
        "file": FILE,
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
        file=FILE,
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
        "values": [_rounded(figures.get(name), one.digits) for name, one in FIGURES.items()],
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
    path = output_dir / FILE
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
