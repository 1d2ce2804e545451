"""Columns of every table, declared in the module that writes it; sidecar, headings and documentation follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["number", "text", "p", "flag"]
SERIES_VOLUMES = "NumberOfVolumesUsed"
"""Entry of the JSON of a series that says how many rows it has."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str  # how the code calls it
    meaning: str  # for sidecar and documentation, one phrase
    # one of "number", "text", "p", "flag": how it is read and shown; "p" is a probability, "flag" is ``true`` or
    # ``false``
    kind: Kind = "number"
    # heading, digits: on a page: its heading, and decimals of its numbers
    heading: str = ""
    digits: int = 3
    unit: str = ""  # empty for pure numbers and text
    levels: Mapping[str, str] | None = None  # meaning of each value, where there are few
    optional: bool = False  # whether a table may lack it
    name: str = ""  # how the file calls it; as the code does where empty

    @classmethod
    def number(cls, key: str, meaning: str, heading: str = "", digits: int = 3, **others: Any) -> Column:
        """Declare a column of numbers."""
        return cls(key, meaning, "number", heading, digits, **others)

    @classmethod
    def text(cls, key: str, meaning: str, heading: str = "", **others: Any) -> Column:
        """Declare a column of text."""
        return cls(key, meaning, "text", heading, **others)

    @classmethod
    def flag(cls, key: str, meaning: str, heading: str = "", **others: Any) -> Column:
        """Declare a column of ``true`` and ``false``."""
        return cls(key, meaning, "flag", heading, **others)

    @classmethod
    def p(cls, key: str, meaning: str, heading: str = "", **others: Any) -> Column:
        """Declare a column of probabilities."""
        return cls(key, meaning, "p", heading, **others)

    @property
    def written(self) -> str:
        """Name in the file."""
        return self.name or self.key

    @property
    def is_text(self) -> bool:
        """Whether its values are text even where they look like numbers."""
        return self.kind in ("text", "flag")

    def describe(self) -> dict[str, Any]:
        """Its entry in a sidecar, with BIDS's keys."""
        said: dict[str, Any] = {"Description": self.meaning}
        if self.unit:
            said["Units"] = self.unit
        if self.levels:
            said["Levels"] = dict(self.levels)
        return said


Columns = Mapping[str, Column]


def join_columns(*each: Column | Columns) -> dict[str, Column]:
    """Put columns and groups of columns together by their keys, in their order; a later one replaces an earlier one."""
    found: dict[str, Column] = {}
    for one in each:
        found |= {one.key: one} if isinstance(one, Column) else dict(one)
    return found


def pick_columns(those: Columns, keys: Iterable[str], **others: Any) -> dict[str, Column]:
    """Choose columns by key, in the order of ``keys``, with other fields where given."""
    return {key: replace(those[key], **others) for key in keys}


@dataclass(frozen=True)
class TableSpec:
    """One table."""

    name: str  # of the file, without ending; of tables of a recording what stands after its entities
    meaning: str  # one sentence for the documentation
    columns: Columns  # by key, in the order of the file
    keys: tuple[str, ...] = ()  # columns that together identify a row; empty where rows need not differ

    def __post_init__(self) -> None:
        """A key that is no column is a slip of ours."""
        unknown = set(self.keys) - set(self.columns)
        if unknown:
            raise KeyError(f"{self.name}: {sorted(unknown)} are keys and no columns")

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
        """Entries of the columns in a sidecar, of all or of those named."""
        chosen = self.columns.values() if keys is None else [self.columns[key] for key in keys]
        return {one.written: one.describe() for one in chosen}

    def as_written(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Call the columns of a frame as the file does."""
        return frame.rename(columns={key: one.written for key, one in self.columns.items()})

    def row_as_read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Call the columns of one row of a file as the code does."""
        keys = {one.written: key for key, one in self.columns.items()}
        return {keys.get(name, name): value for name, value in row.items()}

    def as_read(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Call the columns of a file as the code does."""
        return frame.rename(columns={one.written: key for key, one in self.columns.items()})
