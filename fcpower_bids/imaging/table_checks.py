"""The one gate for tables of others: encoding, names of columns, and as many fields in every row as in the header.

Readers of tables are lenient: a tab at the end of a row moves every value to the next column, without a word.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

NEAREST_BY_ITSELF = (3, 1)
EXACT: dict[str, Any] = (
    {"float_precision": "round_trip"} if tuple(map(int, version("pandas").split(".")[:2])) < NEAREST_BY_ITSELF else {}
)
"""Option that makes `pandas.read_csv` read a decimal as the nearest float; since 3.1 it is the default."""


def table_fault(path: Path) -> str | None:
    """Say what is wrong with a table whose fields are not quoted; None when nothing is. Raises OSError."""
    return content_fault(path.read_bytes())


def content_fault(content: bytes, separator: str = "\t") -> str | None:
    """:func:`table_fault` of the bytes of a table."""
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # the former begins as UTF-16 does
        return "is encoded as UTF-32: save it as UTF-8"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "is encoded as UTF-16: save it as UTF-8"
    try:
        content.isascii() or content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return f"is not encoded as UTF-8 (byte {error.start}): save it as UTF-8"
    if b"\0" in content:
        return "holds null bytes, as UTF-16 does and UTF-8 does not: save it as UTF-8, or copy it again"
    # bytes are split at line ends alone, and a tab or comma is never a part of another character of UTF-8
    header, *rows = content.removeprefix(codecs.BOM_UTF8).splitlines() or [b""]
    sign = separator.encode()
    widths = ((number, row.count(sign) + 1) for number, row in enumerate(rows, start=2) if row and not row.isspace())
    return rows_fault(header.decode("utf-8").split(separator), widths)


def rows_fault(names: Sequence[str], widths: Iterable[tuple[int, int]]) -> str | None:
    """Say what is wrong with the columns of a table; None when nothing is."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"has the column '{twice[0]}' twice: remove or rename one of them"
    for line, width in widths:
        if width != len(names):
            return f"has {width} fields in line {line} where its header has {len(names)}: correct it"
    return None
