"""The page of a cohort, made from the tables of ``group/`` and the quality tables; ``--reports-only`` needs no more."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from markupsafe import Markup

from fcpower_bids.errors import Incomplete
from fcpower_bids.outputs.group import ENDINGS
from fcpower_bids.reports.cohort.methods import group_methods, read_choices
from fcpower_bids.reports.cohort.sections import page_parts
from fcpower_bids.reports.cohort.tables import GroupTables, Section, make_checked
from fcpower_bids.reports.cohort.verdict import judge_cohort, short_answers
from fcpower_bids.reports.kit.methods import all_references, to_html, write_citations
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
    """Write ``group_index.html`` where there are results with a name; each line is the verdict of its page."""
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


SHOWN = (*ENDINGS, ".json", ".toml", ".md", ".bib")
"""Files of the folder that the page leads to."""


def write_group_report(settings: Places) -> tuple[Path, list[str]]:
    """Write ``group.html``, or ``group_NAME.html``, and the index where there are several. Raises Incomplete.

    Returns the page and the results in short, line by line.
    """
    tables = GroupTables(settings)
    sections = make_sections(tables)
    methods, problem = _methods(tables)
    command = command_of(read_choices(tables))
    verdict = judge_cohort(tables, sections)
    text = render_page(
        "group.html",
        command=command,
        methods=Markup(to_html(methods, all_references(), level=1)) if methods else "",
        without_methods=problem,
        title=f"Group report: {settings.name}" if settings.name else "Group report",
        dataset=settings.bids_dir.resolve().name,
        verdict=verdict,
        sections=sections,
        links=_links(tables),
    )
    page = write_page(settings.results_page, text)
    write_index(settings)
    if tables.failures:
        reasons = " ".join(tables.failures.values())
        raise Incomplete(f"A part of {page.name} is missing. {reasons}") from tables.causes[0]
    return page, short_answers(verdict, tables)


def _methods(tables: GroupTables) -> tuple[str, str]:
    """Write the methods text into the folder of the tables; return it, and why there is none."""
    try:
        markdown = group_methods(tables)
    except Exception as error:
        return "", f"The methods text could not be made. {tables.explain(error, 'methods')}"
    if markdown:
        write_citations(tables.root, tables.settings.results, markdown)
    return markdown, ""


def make_sections(tables: GroupTables) -> list[Section]:
    """Make every section that has tables, in the order of the page."""
    return [section for part in page_parts() for section in make_checked(part, tables)]


def _links(tables: GroupTables) -> list[tuple[str, str]]:
    """Every file of ``group/``, for a reader who wants the numbers."""
    files = [path for path in sorted(tables.settings.results.glob("*")) if path.name.endswith(SHOWN)]
    return [(path.name, relative_link(path, tables.root)) for path in files]
