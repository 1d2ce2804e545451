"""Tables of people or spreadsheets: separator, encoding and decimal commas are guessed, nothing that moves a value."""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from unicodedata import category, normalize

from fcpower_bids.errors import DatasetError
from fcpower_bids.imaging.table_checks import rows_fault

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
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16 does
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
        (b"", "utf-8"),
    ):
        if content.startswith(mark):
            try:
                text = content.decode(encoding)
            except UnicodeDecodeError:
                break
            if "\0" not in text:
                return text, []
            break
    if b"\0" in content:
        raise DatasetError(
            f"{path} holds null bytes: it is no text, or UTF-16 or UTF-32 that does not say so. Save it as TSV or CSV "
            "(UTF-8)."
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
