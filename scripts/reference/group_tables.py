"""Pages of the site about the tables of the group level, one per analysis, from their declarations.

``python -m scripts.reference.group_tables FOLDER`` writes them into a folder; ``make docs`` puts them into the site.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fcpower_bids import plugins
from fcpower_bids.analyses import ANALYSES, declared_tables
from fcpower_bids.reports.cohort.tables import COHORT_TABLES
from fcpower_bids.schema import Column, TableSpec
from fcpower_bids.store import write_text


def tables_by_title() -> dict[str, tuple[TableSpec, ...]]:
    """Return every table of the group level, by the title of its page."""
    by_analysis = {f"`{name}`": declared_tables(name) for name in ANALYSES}
    return {
        "The cohort": COHORT_TABLES,
        **by_analysis,
        **dict(zip(plugins.places("tables"), plugins.load("tables"), strict=True)),
    }


def table_pages() -> dict[str, str]:
    """Return the pages by the names of their files."""
    return {
        file_name(title): "\n".join([f"# Tables of {title}\n", *map(_describe, tables)])
        for title, tables in tables_by_title().items()
    }


def file_name(title: str) -> str:
    """Return the name of the page with this title."""
    return re.sub(r"\W+", "-", title.lower()).strip("-") + ".md"


def list_pages() -> str:
    """Return a list of the tables with links to their pages below ``tables/``."""
    rows = (
        f"| [{title}](tables/{file_name(title)}) | {', '.join(f'`{table.name}`' for table in tables)} |"
        for title, tables in tables_by_title().items()
    )
    return "\n".join(["| analysis | tables |", "|---|---|", *rows]) + "\n"


def describe_tables() -> str:
    """Describe all tables of the group level as Markdown."""
    return "\n".join(table_pages().values())


def _describe(table: TableSpec) -> str:
    """Meaning and columns of one table."""
    rows = [_row(one) for one in table.columns.values()]
    return "\n".join([f"## `{table.name}.tsv`\n\n{table.meaning}\n", "| column | meaning |", "|---|---|", *rows, ""])


def _row(one: Column) -> str:
    name = one.written if " " in one.written else f"`{one.written}`"
    return f"| {name} | {one.meaning.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    for name, text in table_pages().items():
        write_text(Path(sys.argv[1]) / name, text)
