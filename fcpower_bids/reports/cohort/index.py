"""The index of all results of the group level in one output folder: one line and one link each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fcpower_bids.reports.cohort.methods import read_choices
from fcpower_bids.reports.cohort.tables import GroupTables
from fcpower_bids.reports.cohort.verdict import judge_cohort
from fcpower_bids.reports.kit.page import relative_link, render_page, write_page
from fcpower_bids.settings import Places
from fcpower_bids.settings.command import command_of

MADE_BY_A_RUN = "scans.tsv"


def list_results(settings: Places) -> list[Places]:
    """Return the places of all results that have a page: those without a name first, then by name."""
    named = sorted(path.parent.name for path in (settings.output_dir / "group").glob(f"*/{MADE_BY_A_RUN}"))
    each = [dataclasses.replace(settings, name=name) for name in ("", *named)]
    return [one for one in each if one.results_page.is_file()]


def write_index(settings: Places) -> Path | None:
    """Write ``group_index.html`` where there are results with a name; each line is the verdict of its page.

    The command at the foot is that of these results.
    """
    there = list_results(settings)
    if not any(one.name for one in there):
        return None
    rows = []
    for one in there:
        verdict = judge_cohort(GroupTables(one))
        address = relative_link(one.results_page, one.output_dir)
        rows.append((one.name or "without a name", address, verdict.mark, verdict.headline, verdict.figures))
    text = render_page(
        "group_index.html",
        command=command_of(read_choices(GroupTables(settings))),
        title="Results of the group level",
        dataset=settings.bids_dir.resolve().name,
        rows=rows,
    )
    return write_page(settings.output_dir / "group_index.html", text)
