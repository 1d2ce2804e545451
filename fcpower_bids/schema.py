"""Tables: the columns of ours, as ``data/columns.tsv`` and ``data/tables.tsv`` declare them, and the gate for others'.

Sidecars and pages follow the declarations. Readers of tables are lenient: a tab at the end of a row moves every value
to the next column, without a word. Of tables of people or spreadsheets separator, encoding and decimal commas are
guessed, nothing that moves a value.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unicodedata import category, normalize

from fcpower_bids.errors import DatasetError

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
        tables[name] = TableSpec(name, row["owner"], columns, tuple(keys))
    return tables


TABLES = _read_tables()
"""Every table that is written, by name: ``*`` marks the columns that identify a row, ``?`` those that may lack."""


NEAREST_BY_ITSELF = (3, 1)
EXACT: dict[str, Any] = (
    {"float_precision": "round_trip"} if tuple(map(int, version("pandas").split(".")[:2])) < NEAREST_BY_ITSELF else {}
)
"""Option that makes `pandas.read_csv` read a decimal as the nearest float; since 3.1 it is the default."""


def table_fault(table: Path | bytes) -> str | None:
    """Say what is wrong with a table (or its bytes) whose fields are not quoted; None if nothing is. Raises OSError."""
    content = table if isinstance(table, bytes) else table.read_bytes()
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "is encoded as UTF-16: save it as UTF-8"
    try:
        content.isascii() or content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return f"is not encoded as UTF-8 (byte {error.start}): save it as UTF-8"
    if b"\0" in content:
        return "holds null bytes, as UTF-16 does and UTF-8 does not: save it as UTF-8, or copy it again"
    # bytes are split at line ends alone, and a tab is never a part of another character of UTF-8
    header, *rows = content.removeprefix(codecs.BOM_UTF8).splitlines() or [b""]
    widths = ((line, row.count(b"\t") + 1) for line, row in enumerate(rows, start=2) if row and not row.isspace())
    return rows_fault(header.decode("utf-8").split("\t"), widths)


def rows_fault(names: Sequence[str], widths: Iterable[tuple[int, int]]) -> str | None:
    """Say what is wrong with the columns of a table; None when nothing is."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"has the column '{twice[0]}' twice: remove or rename one of them"
    for line, width in widths:
        if width != len(names):
            return f"has {width} fields in line {line} where its header has {len(names)}: correct it"
    return None


MISSING = ("", "n/a", "N/A", "NA", "NaN", "nan", "null")
"""Cells without a value."""
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How files of spreadsheets begin (``.xlsx``, ``.ods``; ``.xls``)."""
GZIP = b"\x1f\x8b"
INVISIBLE = "Cf"
"""Unicode category of characters that only change how others are shown."""
SEPARATORS = "\t;,"
DECIMAL = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")
NUMBER = re.compile(r"[-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?")


class Spreadsheet(NamedTuple):
    """A table as it stands in the file."""

    names: tuple[str, ...]  # one per column
    # one per line that is not blank, a cell per column, without blanks around it; ``""`` is missing
    rows: list[list[str]]
    lines: list[int]  # the line in the file of each row, counted from 1
    notes: tuple[str, ...]  # guesses


def read_spreadsheet(path: Path) -> Spreadsheet:
    """Read a table of text cells. Raises DatasetError."""
    text, notes = _decode(path)
    if not text.isascii():  # accents as one letter, without the invisible marks that come with copied text
        text = normalize("NFC", "".join(letter for letter in text if category(letter) != INVISIBLE))
    header = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(SEPARATORS, key=lambda sign: len(next(csv.reader([header], delimiter=sign), [])))
    if not header:
        raise DatasetError(f"{path} cannot be read as a table: it is empty. Copy it again.")
    reader, numbered = csv.reader(text.splitlines(True), delimiter=separator, strict=True, skipinitialspace=True), []
    try:  # rows with the line that they end in; blank ones are left out
        for row in reader:
            if any(cells := [cell.strip() for cell in row]):
                numbered.append((reader.line_num, cells))
    except csv.Error as error:
        raise DatasetError(
            f"{path} cannot be read as a table (line {reader.line_num}: {error}). Correct it."
        ) from error
    names, rows, lines = numbered[0][1], [row for _, row in numbered[1:]], [line for line, _ in numbered[1:]]
    if not names[-1] and all(len(row) == len(names) and not row[-1] for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]  # a separator at the end of every line, the first too
    if fault := rows_fault(names, zip(lines, map(len, rows), strict=True)):
        raise DatasetError(f"{path} {fault}.")
    if "" in names:
        raise DatasetError(f"{path} has no name over its column {names.index('') + 1}: write one, or remove it.")
    rows = [["" if cell in MISSING else cell for cell in row] for row in rows]
    notes += _with_points(path, names, rows)
    return Spreadsheet(tuple(names), rows, lines, tuple(notes))


def is_table(path: Path) -> bool:
    """Whether a file is there that need not be. Raises DatasetError."""
    if path.is_file():
        return True
    if os.path.lexists(path):
        kind = "a link that leads to no file" if path.is_symlink() else "no file"
        raise DatasetError(f"{path} is {kind}. Put the table there, or remove it.")
    return False


def _decode(path: Path) -> tuple[str, list[str]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read as a table ({error.strerror}). Check path and permissions."
        ) from error
    if content.startswith(GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DatasetError(f"{path} cannot be read as a table: {error}. Copy it again.") from error
    if content.startswith(WORKBOOKS):
        raise DatasetError(
            f"{path} is a file of a spreadsheet program. Save its sheet as TSV or CSV (UTF-8) and give that."
        )
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    with suppress(UnicodeDecodeError):
        if "\0" not in (text := content.decode("utf-16" if is_wide else "utf-8-sig")):
            return text, []
    if b"\0" in content:
        raise DatasetError(
            f"{path} holds null bytes: it is no text, or UTF-16 that does not say so. Save it as TSV or CSV (UTF-8)."
        )
    return content.decode("latin-1"), [f"{path.name} is not UTF-8; it was read as Latin-1."]


def _with_points(path: Path, names: Sequence[str], rows: Iterable[list[str]]) -> list[str]:
    """Write numbers with decimal points, in place, where a column has commas for them."""
    table, changed = list(rows), []
    for number, name in enumerate(names):
        cells = [row[number] for row in table if row[number]]
        with_comma = [cell for cell in cells if DECIMAL.fullmatch(cell)]
        if not with_comma or not all(NUMBER.fullmatch(cell) for cell in cells):
            continue
        if all(THOUSANDS.fullmatch(cell) for cell in with_comma):
            raise DatasetError(
                f"{path} has {with_comma[0]} in the column {name}, which may be {with_comma[0].replace(',', '.')} or "
                f"{with_comma[0].replace(',', '')}. Write numbers with a decimal point and without other marks."
            )
        changed.append(name)
        for row in table:
            row[number] = row[number].replace(",", ".")
    return [f"{path.name} has decimal commas in {', '.join(changed)}; they were read as points."] if changed else []
