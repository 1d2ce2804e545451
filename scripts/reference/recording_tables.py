"""Columns of the tables of a recording and of pretraining, filled into their pages from their declarations.

``python -m scripts.reference.recording_tables docs/outputs.md`` prints the page with them, as ``make docs`` has it.
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
from fcpower_bids.slices.pretraining.run_state import ALIGNMENT, LOG, SEEDS

TRAINING = {f"encoder/{table.name}": table for table in (LOG, ALIGNMENT, SEEDS)}
"""Tables of pretraining, by their places in the output folder."""


def declared_tables() -> tuple[TableSpec, ...]:
    """Return every declared table of the participant level."""
    return (
        STATUS_TABLE,
        DECISIONS,
        PARCELS,
        *(measure.table for measure in MEASURES.values()),
        VOLUMES,
    )


def fill_columns(page: str) -> str:
    """Append the columns of every declared table to the section that has its name as heading."""
    tables = {table.name: table for table in declared_tables()} | TRAINING
    for name, table in tables.items():
        rows = [f"| `{one.written}` | {one.unit or '-'} | {one.meaning} |\n" for one in table.columns.values()]
        columns = "".join(["\n| column | unit | meaning |\n|---|---|---|\n", *rows])
        section = rf"^(#+ `{re.escape(name)}\.tsv`\n(?:(?!#).*\n)*?)(?=\n#|\Z)"
        page = re.sub(section, lambda found, columns=columns: found[1] + columns, page, flags=re.M)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    sys.stdout.write(fill_columns(Path(sys.argv[1]).read_text(encoding="utf-8")))
