"""One page per participant, and the index of all recordings to decide by; ``--reports-only`` needs no more."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fcpower_bids.cohort.people import without_zeros
from fcpower_bids.cohort.recordings import DECISIONS, EXCLUDE_FILE, REJECT, read_decisions
from fcpower_bids.encoders import embedding_label
from fcpower_bids.errors import FcPowerError
from fcpower_bids.outputs import dataset
from fcpower_bids.outputs.status import DONE, SKIPPED, TABLE, describe_reasons, explain, read_statuses
from fcpower_bids.outputs.tables import MISSING
from fcpower_bids.reports.accounts import (
    WORDS,
    Account,
    Parcellation,
    account_of,
    judge,
    read_accounts,
)
from fcpower_bids.reports.figures import read_previews
from fcpower_bids.reports.methods import all_references, methods_text, programs_of, to_html
from fcpower_bids.reports.page import Cell, Grid, render_page, show_number, write_page
from fcpower_bids.reports.panels import make_panels
from fcpower_bids.settings import Settings

INDEX = "index.html"
FIGURES = {
    "Minutes kept": 1,
    "Censored (%)": 1,
    "Mean FD (mm)": 3,
    "Max FD (mm)": 2,
    "Degrees of freedom": 0,
    "Coverage (%)": 1,
    "Parcels without a value": 0,
    "Out of band (%)": 1,
}
"""Headings and decimals."""


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
    accounts = (account_of(output_dir, status) for status in statuses)  # one person after the other
    people = groupby(accounts, key=lambda account: account.name.partition("_")[0])
    rows = [row for _, group in people for row in _rows(output_dir, list(group))]
    if not rows:
        return None
    decided, others = _decided(output_dir, [str(row["recording"]) for row in rows])
    content = {
        "file": EXCLUDE_FILE,
        "columns": list(DECISIONS.columns),
        "rows": rows,
        "decided": decided,
        "others": others,
    }
    carpet = ["Carpet"] if any("picture" in row for row in rows) else []
    lines = describe_reasons([status for status in statuses if status.state not in (DONE, SKIPPED)])
    text = render_page(
        "index.html",
        unused=[dataset.describe_without_folders(line, dataset.known_folders(output_dir)) for line in lines],
        further_script="index.js",
        title="Recordings",
        n_rows=len(rows),
        file=EXCLUDE_FILE,
        content=content,
        headings=("Recording", *carpet, "State", "Decision", "Reason", *FIGURES, "Cautions"),
        pages=[(page.name, page.name) for page in sorted(output_dir.glob("group*.html"))],
    )
    return write_page(output_dir / INDEX, text)


def _rows(output_dir: Path, accounts: Sequence[Account]) -> Iterator[dict[str, Any]]:
    """Rows of one person; what is wrong with the files of a recording is a caution."""
    for account in accounts:
        page = account.name.partition("_")[0]
        there = (output_dir / f"{page}.html").is_file()  # a list of other programs has none
        row: dict[str, Any] = {"recording": account.name, "page": f"{page}.html#{account.name}-0" if there else ""}
        # how the row of its decision begins
        row["whose"] = [page, *(labels_of(account.name).get(key, MISSING) for key in ("ses", "task", "run"))]
        row |= {"state": account.word, "values": _figures(account, account.quality), "said": account.sentences}
        try:
            tables = [table for view in account.views for table in view.files.get("bold", ())]
            # the carpet under the first atlas, where one was kept
            if picture := read_previews(dataset.preview_path(tables[0]), ("thumbnail",)) if tables else {}:
                row["picture"] = base64.b64encode(picture["thumbnail"].tobytes()).decode("ascii")
        except FcPowerError as error:
            row["said"] = [*account.sentences, dataset.without_folders(str(error))]
        yield row


def labels_of(name: str) -> dict[str, str]:
    """Entities in the name of a recording, as far as it has any."""
    return dict(part.split("-", 1) for part in name.split("_") if "-" in part)  # type: ignore[misc]


def _figures(account: Account, quality: Sequence[dict[str, Any]]) -> list[str]:
    """The figures of a recording by rows of its quality table, the worst of several atlases."""
    if not quality:
        return ["n/a"] * len(FIGURES)
    first, lacking = quality[0], [len(account.uncovered.get(row["atlas"], ())) for row in quality]
    figures = (
        first["seconds_kept"] / 60,
        100 * first["censored_volumes"] / max(first["volumes"] - first["dummy_volumes"], 1),
        first["mean_fd"],
        first["max_fd"],
        first["degrees_of_freedom"],
        100 * min(row["mean_coverage"] for row in quality),
        max(lacking),
        100 * max(row["band_leakage"] for row in quality),
    )
    return [show_number(float(value), digits) for value, digits in zip(figures, FIGURES.values(), strict=True)]


def _decided(output_dir: Path, recordings: Sequence[str]) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Decision, reason and day by recording, and the rows about others, which saving must not lose."""
    path, decisions, others = output_dir / EXCLUDE_FILE, dict[str, list[str]](), list[list[str]]()
    labels = {name: labels_of(name) for name in recordings}
    for decision in read_decisions(path) if path.is_file() else ():
        person = without_zeros(decision.wanted["sub"])
        meant = [name for name in labels if without_zeros(labels[name]["sub"]) == person]
        meant = [name for name in meant if decision.means(name, labels[name])]
        if decision.recording:
            meant = [name for name in (decision.recording,) if name in labels]
        for name in meant:
            if decisions.get(name, [""])[0] != REJECT:  # as `recordings.decide`, whatever follows
                decisions[name] = [decision.decision, decision.reason, decision.decided]
        others += [] if meant else [[cell or MISSING for cell in decision.cells()]]
    return decisions, others


ABOUT_FIGURES = (
    "FD: framewise displacement, the movement from one volume to the next. Out of band: power outside the pass-band "
    "after cleaning. Coverage: share of the voxels of the parcels that were scanned."
)
LOGS = (TABLE, "logs/settings.toml", "logs/CITATION.md", "logs/CITATION.bib")


def write_pages(
    settings: Settings, subjects: Sequence[str], with_index: bool = False
) -> tuple[list[Parcellation], list[str]]:
    """Write the pages of some participants, and the index then; return the atlases that they show, and the failures.

    What is wrong with the page of one does not stop the others.
    """
    atlases, failures = list[Parcellation](), list[str]()
    for subject in subjects:
        try:
            atlases += _write_subject(settings, subject)
        except Exception as error:
            why = explain(error, settings.output_dir, f"sub-{subject}_page")
            failures.append(f"sub-{subject} has no page. {why}")
    if with_index:
        failures += try_index(settings.output_dir)
    return atlases, failures


def _write_subject(settings: Settings, subject: str) -> list[Parcellation]:
    """Write the page of one participant: a section for each recording under each atlas. Returns the latter."""
    output = settings.output_dir
    accounts, embeddings = read_accounts(output, subject, embedding_label(settings.method))
    sections = []
    for account in accounts:  # one without panels where nothing was written
        about = {"title": account.name, "state": WORDS[account.status.state], "reason": account.status.reason}
        made = [(view.atlas, make_panels(account, view, settings)) for view in account.views] or [("", [])]
        for n, (atlas, panels) in enumerate(made):
            sections.append({**about, "anchor": f"{account.name}-{n}", "atlas": atlas, "panels": panels})
    views = [view for account in accounts for view in account.views]
    known = [view for view in views if any("Atlas" in facts for facts in view.facts.values())]
    atlases = sorted({view.parcels(output) for view in known})
    text = render_page(
        "participant.html",
        title=f"sub-{subject}",
        verdict=judge(accounts, embeddings),
        table=_summary(accounts),
        sections=sections,
        methods=Markup(to_html(methods_text(settings, atlases), all_references(), level=1)),
        chain=programs_of(output),
        configuration=settings.method.configuration_hash(),
        links=[(Path(name).name, name) for name in LOGS if name != TABLE or (output / TABLE).is_file()],
    )
    write_page(output / f"sub-{subject}.html", text)
    return atlases


def _summary(accounts: Sequence[Account]) -> Grid:
    """The table of the recordings: one row per atlas, or one with the state alone."""
    rows: list[tuple[Cell, ...]] = []
    for account in accounts:
        name = account.name
        numbers = {view.atlas: number for number, view in enumerate(account.views)}
        for row in account.quality or [{"atlas": ""}]:
            address = f"#{account.name}-{numbers.get(row['atlas'], 0)}"
            first = Cell(name, name, address), Cell(dataset.short_name(row["atlas"])), Cell(account.word)
            values = _figures(account, [row]) if account.quality else [""] * len(FIGURES)
            rows.append((*first, *(Cell(value, value) for value in values)))
    header = ("Recording", "Atlas", "State", *FIGURES)
    return Grid("", ABOUT_FIGURES, header, tuple(rows))
