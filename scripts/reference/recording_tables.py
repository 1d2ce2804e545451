"""Columns of the tables of the participant level, filled into a page from their declarations.

``python -m scripts.reference.recording_tables docs/outputs.md`` writes the page anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fcpower_bids.cohort.decisions import DECISIONS
from fcpower_bids.measures import MEASURES
from fcpower_bids.outputs.dataset import PARCELS
from fcpower_bids.outputs.recording import VOLUMES
from fcpower_bids.outputs.status import STATUS_TABLE
from fcpower_bids.schema import TableSpec
from fcpower_bids.slices.sharing.sources import COMBINED
from fcpower_bids.store import write_text
from fcpower_bids.workflows.run_progress import RESOURCES


def declared_tables() -> tuple[TableSpec, ...]:
    """Return every declared table of the participant level."""
    return (
        STATUS_TABLE,
        COMBINED,
        DECISIONS,
        RESOURCES,
        PARCELS,
        *(measure.table for measure in MEASURES.values()),
        VOLUMES,
    )


def fill_columns(page: str) -> str:
    """Set the columns below the headings of all declared tables; the rest of the page stays.

    Raises
    ------
    KeyError
        A table has no heading with columns below it.
    """
    for table in declared_tables():
        rows = [f"| `{one.written}` | {one.unit or '-'} | {one.meaning} |\n" for one in table.columns.values()]
        heading = rf"^### `{re.escape(table.name)}\.tsv`$"
        place = rf"({heading}(?:(?!^#).*\n)*?\| column \| unit \| meaning \|\n\|[-|]+\n)(?:\|.*\n)+"
        page, count = re.subn(place, lambda found, rows=rows: found[1] + "".join(rows), page, flags=re.M)  # type: ignore[misc]
        if count != 1:
            raise KeyError(f"### `{table.name}.tsv` and its columns")
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_text(path, fill_columns(path.read_text(encoding="utf-8")))
