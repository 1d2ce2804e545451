"""Columns of every table, as ``data/columns.tsv`` and ``data/tables.tsv`` declare them; sidecars and pages follow."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

Kind = Literal["number", "text", "p", "flag"]
SERIES_VOLUMES = "NumberOfVolumesUsed"
"""Entry of the JSON of a series that says how many rows it has."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str
    meaning: str  # for sidecar and documentation, one phrase
    kind: Kind = "number"  # how it is read and shown; "p" is a probability, "flag" is ``true`` or ``false``
    heading: str = ""  # on a page
    digits: int = 3  # decimals of its numbers on a page
    unit: str = ""  # empty for pure numbers and text
    levels: Mapping[str, str] | None = None  # meaning of each value, where there are few
    optional: bool = False  # whether a table may lack it

    @property
    def is_text(self) -> bool:
        """Whether its values are text even where they look like numbers."""
        return self.kind in ("text", "flag")


@dataclass(frozen=True)
class TableSpec:
    """One table."""

    name: str  # of the file, without ending; of tables of a recording what stands after its entities
    owner: str  # the analysis or level that writes it
    meaning: str  # one sentence for the documentation
    columns: Mapping[str, Column]  # by key, in the order of the file
    keys: tuple[str, ...] = ()  # columns that together identify a row; empty where rows need not differ

    @property
    def needed(self) -> tuple[str, ...]:
        """Keys of the columns that no table of this kind lacks."""
        return tuple(key for key, column in self.columns.items() if not column.optional)

    def shown(self, *keys: str) -> tuple[Column, ...]:
        """Columns for a page, in the order of the page."""
        return tuple(self.columns[key] for key in keys)

    def check(self, keys: Sequence[str]) -> None:
        """Compare with the columns of a frame. Raises TypeError: one is not declared, or a needed one is missing."""
        unknown = [key for key in keys if key not in self.columns]
        lacking = [key for key in self.needed if key not in keys]
        if unknown or lacking:
            raise TypeError(f"The table {self.name} has columns not declared ({unknown}) or lacks some ({lacking}).")

    def describe(self, keys: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Entries of the columns in a sidecar, with BIDS's keys, of all or of those named."""
        entries = {}
        for key in self.columns if keys is None else keys:
            column = self.columns[key]
            about = {"Description": column.meaning, "Units": column.unit, "Levels": dict(column.levels or {})}
            entries[key] = {name: value for name, value in about.items() if value}
        return entries


def read_rows(name: str) -> list[dict[str, str]]:
    """Rows of one of the two files."""
    with (Path(__file__).parent / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _read_tables() -> dict[str, TableSpec]:
    """Join the two files: a column of ``columns.tsv`` holds for the tables it names, or for all others."""
    known: dict[tuple[str, str], Column] = {}
    for row in read_rows("columns.tsv"):
        kind: Any = row["kind"] or "number"
        levels = json.loads(row["levels"]) if row["levels"] else None
        column = Column(row["key"], row["meaning"], kind, row["heading"], int(row["digits"] or 3), row["unit"], levels)
        known |= {(table, column.key): column for table in row["tables"].split() or [""]}
    tables = {}
    for row in read_rows("tables.tsv"):
        name, columns, keys = row["table"], {}, []
        for word in row["columns"].split(", "):
            key = word.strip("*?")
            column = known.get((name, key)) or known["", key]
            columns[key] = replace(column, optional=True) if word.endswith("?") else column
            keys += [key] if word.startswith("*") else []
        tables[name] = TableSpec(name, row["owner"], row["meaning"], columns, tuple(keys))
    return tables


TABLES = _read_tables()
"""Every table that is written, by name: ``*`` marks the columns that identify a row, ``?`` those that may lack."""
