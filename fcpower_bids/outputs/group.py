"""The tables of ``group/``: each with a sidecar that repeats what its columns mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fcpower_bids._version import __version__
from fcpower_bids.outputs.tables import write_blocks, write_json
from fcpower_bids.records import Table
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.settings import Seed

LEFT_OUT = TableSpec(
    "left_out",
    "Analyses that `--analyses all`, or the default, could not do with this cohort.",
    join_columns(
        Column.text("analysis", "Analysis without tables that belong to this run", "Analysis"),
        Column.text(
            "state",
            "left out: the cohort or a choice does not allow it; failed: the program did; outdated: of another run",
            "State",
        ),
        Column.text("reason", "Why, in words; where the traceback is if it failed", "Why"),
    ),
    ("analysis",),
)


ENDINGS = (".tsv", ".tsv.gz")
MOST_PLAIN = 1_000_000
"""A table with more rows is compressed."""


def table_file(name: str, n_rows: int) -> str:
    """Return what the file of a table with so many rows is called."""
    return f"{name}{ENDINGS[n_rows > MOST_PLAIN]}"


def find_table(folder: Path, name: str) -> Path:
    """Return where a table is, compressed or not; where it would be if it is not there."""
    paths = [folder / f"{name}{ending}" for ending in ENDINGS]
    return next((path for path in paths if path.is_file()), paths[0])


def write_group_tables(folder: Path, tables: Mapping[str, Table], settings: Seed) -> None:
    """Write tables and sidecars, called as they are in ``tables``; one that was compressed, or was not, is replaced."""
    for name, table in tables.items():
        path = folder / table_file(name, table.n_rows)
        write_blocks(path, table.blocks(), table.spec)
        for ending in ENDINGS:
            if (other := folder / f"{name}{ending}") != path:
                other.unlink(missing_ok=True)
        about = {
            **table.spec.describe(table.columns),
            **table.facts,
            "Software": "fcpower_bids",
            "SoftwareVersion": __version__,
            "RandomSeed": settings.random_seed,
        }
        write_json(folder / f"{name}.json", about)
