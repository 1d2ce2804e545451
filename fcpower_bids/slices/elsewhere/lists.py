"""A list of files: one row per recording, with what the files do not say themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.core.connectome.matrix_formats import ORDERS, SCALES
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.spreadsheets import read_spreadsheet
from fcpower_bids.records import Entities
from fcpower_bids.slices.elsewhere.layouts import MATRIX, SERIES, Offered, check_names, label_of

COLUMNS = (
    *("participant_id", "path", "session_id", "task", "run", "kind", "key", "scale", "order", "orientation", "atlas"),
    *("repetition_time", "minutes", "mean_fd", "strategy"),
)


def read_list(table: Path) -> list[Offered]:
    """Read a list of series or connectomes. Raises DatasetError."""
    sheet = read_spreadsheet(table)
    lacking = [name for name in ("participant_id", "path") if name not in sheet.names]
    unknown = [name for name in sheet.names if name not in COLUMNS]
    if lacking or unknown:
        fault = f"lacks the column {lacking[0]}" if lacking else f"has the unknown column {unknown[0]}"
        raise DatasetError(f"{table} {fault}. Its columns can be: {', '.join(COLUMNS)}.")
    cells = (dict(zip(sheet.names, row, strict=True)) for row in sheet.rows)
    offered = [_offer(_Row(row, table, line)) for row, line in zip(cells, sheet.lines, strict=True)]
    if not offered:
        raise DatasetError(f"{table} has no rows. Write one per recording.")
    check_names(offered)
    return offered


@dataclass(frozen=True)
class _Row:
    """One line of the list."""

    cells: Mapping[str, str]
    table: Path
    line: int

    def text(self, name: str, default: str = "") -> str:
        return self.cells.get(name) or default

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise DatasetError(f"{self.table}, line {self.line}: {name} is '{value}', not one of {', '.join(allowed)}.")
        return value

    def number(self, name: str) -> float:
        value = self.text(name, "nan")
        try:
            found = float(value)
        except ValueError:
            raise DatasetError(f"{self.table}, line {self.line}: {name} is '{value}', not a number.") from None
        if found < 0:
            raise DatasetError(f"{self.table}, line {self.line}: {name} is {value}, below 0.")
        return found

    def entities(self) -> Entities:
        found = [("sub", label_of(self.text("participant_id").removeprefix("sub-"), self.table))]
        for key, column, default in (("ses", "session_id", ""), ("task", "task", "rest"), ("run", "run", "")):
            text = self.text(column, default).removeprefix(f"{key}-").removesuffix(".0")
            if text:
                found.append((key, label_of(text, self.table)))
        return tuple(found)


def _offer(row: _Row) -> Offered:
    if not row.text("participant_id") or not row.text("path"):
        raise DatasetError(f"{row.table}, line {row.line} lacks participant_id or path.")
    path = (row.table.parent / row.text("path")).resolve()
    _refuse_another(row)
    return Offered(
        path,
        row.choice("kind", (SERIES, MATRIX), SERIES if path.name.endswith(".ptseries.nii") else MATRIX),
        row.entities(),
        (("atlas", label_of(row.text("atlas", "listed"), row.table)),),
        key=row.text("key"),
        scale=row.choice("scale", SCALES, "r"),
        order=row.choice("order", ORDERS, "upper"),
        parcels_first=row.choice("orientation", ("time", "parcels"), "time") == "parcels",
        repetition_time=row.number("repetition_time"),
        seconds=row.number("minutes") * 60,
        mean_fd=row.number("mean_fd"),
        strategy=row.text("strategy", "unknown"),
    )


def _refuse_another(row: _Row) -> None:
    """Refuse a row whose path names another person: lines of two columns have slipped against each other."""
    label = row.text("participant_id").removeprefix("sub-")
    named = set(re.findall(r"(?:^|[/_])sub-([A-Za-z0-9+]+)", row.text("path")))
    if others := sorted(one for one in named if one.lstrip("0").casefold() != label.lstrip("0").casefold()):
        raise DatasetError(
            f"{row.table}, line {row.line}: the path {row.text('path')} is of sub-{others[0]}, and participant_id says "
            f"{label}. Correct one of them."
        )
