"""The tables of ``group/``: each with a sidecar that repeats what its columns mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fcpower_bids._version import __version__
from fcpower_bids.outputs.tables import write_declared, write_json
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


def write_group_tables(folder: Path, tables: Mapping[str, Table], settings: Seed) -> None:
    """Write tables and sidecars, called as they are in ``tables``."""
    for name, table in tables.items():
        write_declared(folder / f"{name}.tsv", table.frame, table.spec)
        about = {
            **table.spec.describe(table.columns),
            **table.facts,
            "Software": "fcpower_bids",
            "SoftwareVersion": __version__,
            "RandomSeed": settings.random_seed,
        }
        write_json(folder / f"{name}.json", about)
