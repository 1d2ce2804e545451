"""Tables and sidecars of the group level, and the parts of a page that show them."""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fcpower_bids.errors import DatasetError, FcPowerError
from fcpower_bids.outputs.dataset import describe_without_folders, known_folders
from fcpower_bids.outputs.group import FinishedAnalyses, find_table
from fcpower_bids.outputs.status import explain
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.reports.kit.page import relative_link, show_number
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.schema import TABLES, Column, TableSpec
from fcpower_bids.settings import Places

SIGNIFICANT = 0.05
FEW_ROWS = 14
"""A table with more rows scrolls in a window of its own."""
MOST_ROWS = 2000
"""Rows of a table that a page shows; the page of a cohort of 40,000 would have 26 MB otherwise."""
MOST_READ = 500_000
"""Rows of a long table that are read at a time."""
UNREADABLE = (OSError, ValueError, EOFError, zlib.error)
"""Exceptions raised by reading a damaged table; the latter two where it is compressed."""
Sources = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cell:
    """One cell of a table: text, sorting key, link, and marks for outliers and the best."""

    text: str
    value: Any = ""
    address: str = ""
    outlier: bool = False
    best: bool = False


@dataclass(frozen=True)
class Grid:
    """A sortable table of a page; ``title`` and ``text`` as for a panel."""

    title: str
    text: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sources: Sources = ()

    @property
    def tall(self) -> bool:
        """Whether it has so many rows that it gets a window of its own."""
        return len(self.rows) > FEW_ROWS

    @property
    def shown(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows that the page shows: the first ones."""
        return self.rows[:MOST_ROWS]

    @property
    def rest(self) -> str:
        """Sentence about the rows that it does not show."""
        if len(self.rows) <= MOST_ROWS:
            return ""
        return f"The first {MOST_ROWS:,} of {len(self.rows):,} rows; the tables behind this page have the others too."


@dataclass(frozen=True)
class Section:
    """A part of the page: sentences that say what was found, drawings, tables."""

    anchor: str
    title: str
    sentences: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()
    grids: tuple[Grid, ...] = ()
    verdicts: tuple[str, ...] | None = None  # the answer for every target; None where the first sentence is the answer

    @property
    def answers(self) -> tuple[str, ...]:
        """Sentences that the first lines of the page quote."""
        return self.sentences[:1] if self.verdicts is None else self.verdicts


@dataclass(frozen=True)
class Part:
    """A part of the page: maker of its sections, and their share in the first lines of the page."""

    # takes the `GroupTables`; returns the sections, the first with the anchor and the title of the part
    make: Callable[[GroupTables], Sequence[Section]]
    anchor: str
    title: str
    place: int  # parts with smaller numbers stand before it
    quoted: bool = False  # whether the first lines quote its answers
    answers: tuple[str, ...] = ()  # beginnings of a first sentence that belongs in the headline
    # the smallest p of what it may find, corrected for all that it tests; NaN where nothing was tested
    smallest_p: Callable[[GroupTables], float] | None = None


@dataclass(frozen=True, eq=False)
class GroupTables:
    """The tables of ``group/``, read when they are asked for; one that is not there is None."""

    settings: Places  # where the outputs are
    problems: dict[str, str] = field(default_factory=dict)  # broken tables with their faults; their content is left out
    # parts of the page that a mistake of the program has stopped, and where its traceback is
    failures: dict[str, str] = field(default_factory=dict)
    causes: list[Exception] = field(default_factory=list)  # those mistakes
    _frames: dict[str, pd.DataFrame | None] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The output folder."""
        return self.settings.output_dir

    def path(self, name: str) -> Path:
        """Where a table is, or would be."""
        return find_table(self.settings.results, name)

    def explain(self, error: Exception, part: str) -> str:
        """Say on the page why a part of it cannot be made; it is a failure unless a table is to blame."""
        reason = explain(error, self.root, f"group_page_{part}")
        if not isinstance(error, FcPowerError):
            self.failures[part] = reason
            self.causes.append(error)
        return describe_without_folders(reason, known_folders(self.root))

    def has(self, name: str) -> bool:
        """Whether a table is there and of this cohort; an analysis that this run was not asked for may have another."""
        return self.path(name).is_file() and (name == "left_out" or name not in self._outdated)

    @cached_property
    def done(self) -> tuple[str, ...]:
        """Analyses whose tables are of this cohort."""
        left_out = {*self.rows("left_out").get("analysis", ())}
        return tuple(name for name in FinishedAnalyses(self.settings.results).names if name not in left_out)

    @cached_property
    def _outdated(self) -> frozenset[str]:
        """Tables of analyses of other people, data or choices: they stay in the folder, and no page shows them."""
        finished = FinishedAnalyses(self.settings.results)
        return finished.tables_of({*finished.names} - {*self.done})

    def frame(self, name: str) -> pd.DataFrame | None:
        """Read a table; None where it is not there, has no rows, or is broken."""
        if name not in self._frames:
            table = None
            try:
                table = read_long(self.path(name), TABLES[name]) if self.has(name) else None
            except DatasetError as error:
                self.problems[name] = describe_without_folders(str(error), known_folders(self.root))
            self._frames[name] = None if table is None or table.empty else table
        return self._frames[name]

    def rows(self, name: str) -> pd.DataFrame:
        """Read a table; without rows and columns where it is not there."""
        table = self.frame(name)
        return pd.DataFrame() if table is None else table

    def facts(self, name: str) -> dict[str, Any]:
        """Read a sidecar; nothing where there is none."""
        path = self.settings.results / f"{name}.json"
        return read_json(path) if path.is_file() and name not in self._outdated else {}

    def predicted(self) -> pd.DataFrame:
        """Read the predictions of single people; their means over repeats where only these are there."""
        table = self.frame("predictions")
        return self.rows("prediction_means") if table is None else table

    def people(self, name: str) -> int:
        """How many people a table has that may have millions of rows; 0 where it is not there, or is broken."""
        path, column = self.path(name), "participant_id"
        if not self.has(name):
            return 0
        options: dict[str, Any] = {"sep": "\t", "dtype": str, "usecols": [column], "quoting": csv.QUOTE_NONE}
        try:
            parts = pd.read_csv(path, chunksize=MOST_READ, **options)
            return len(set().union(*(part[column].unique() for part in parts)))
        except UNREADABLE as error:
            self.problems[name] = f"{path.name} cannot be read as a tab-separated table ({error}). {REMEDY}"
            return 0

    def links(self, *names: str) -> Sources:
        """Names and addresses of those tables that are there."""
        paths = [self.path(name) for name in names if self.has(name)]
        return tuple((path.name, relative_link(path, self.root)) for path in paths)

    @cached_property
    def alpha(self) -> float:
        """Exponent of the representation ``fc_power``; NaN where no sidecar says it."""
        for name in TABLES:
            if "Alpha" in self.facts(name):
                return float(self.facts(name)["Alpha"])
        return math.nan

    def title(self, representation: str) -> str:
        """A representation as people call it."""
        kind, _, encoder = representation.partition(":")
        if kind == "embedding":
            return f"embedding {encoder}"
        exponent = "α" if math.isnan(self.alpha) else f"{self.alpha:g}"
        known = {"fc": "FC", "fc_power": f"FC^{exponent}", "fc_nested": "FC^α, α chosen in each fold"}
        return known.get(representation, representation)

    def titled(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Call the representations of a table as people call them."""
        named = [column for column in ("representation", "reference") if column in frame]
        titles = {
            column: [name if missing(name) else self.title(str(name)) for name in frame[column]] for column in named
        }
        return frame.assign(**titles)

    @cached_property
    def pages(self) -> dict[str, str]:
        """Address of the page of each participant who has one."""
        return {path.stem: relative_link(path, self.root) for path in self.root.glob("sub-*.html")}

    def person(self, name: str) -> Cell:
        """A participant, linked to their page."""
        return Cell(name, name, self.pages.get(name, ""))


REMEDY = "Run the group level again."


def read_long(path: Path, spec: TableSpec) -> pd.DataFrame:
    """Read a table of the group level, with text as text and ``n/a`` as missing. Raises DatasetError."""
    options: dict[str, Any] = {"sep": "\t", "na_values": ["n/a"], "keep_default_na": False, "quoting": csv.QUOTE_NONE}
    kinds = {key: str for key, one in spec.columns.items() if one.is_text}
    try:
        table = pd.read_csv(path, dtype=kinds, **options)
    except UNREADABLE as error:
        raise DatasetError(f"{path.name} cannot be read as a tab-separated table ({error}). {REMEDY}") from error
    lacking = [key for key in spec.needed if key not in table.columns]
    if lacking:
        raise DatasetError(f"{path.name} has no column {' and no column '.join(lacking)}. {REMEDY}")
    numbers = [key for key in spec.needed if not spec.columns[key].is_text]
    text = [key for key in numbers if len(table) and not pd.api.types.is_numeric_dtype(table[key])]
    if text:
        raise DatasetError(f"{path.name} holds text where numbers belong, in the column {' and '.join(text)}. {REMEDY}")
    return table


def make_grid(
    frame: pd.DataFrame,
    columns: Iterable[Column],
    title: str = "",
    text: str = "",
    sources: Sources = (),
    cells: Mapping[str, Callable[[Any], Cell]] | None = None,
) -> Grid:
    """Show the columns that a frame has under their headings; ``cells`` shows some in another way than by kind."""
    shown = [column for column in columns if column.key in frame.columns]
    show = {one.key: cell_of(one) for one in shown} | dict(cells or {})
    values = [[show[one.key](value) for value in frame[one.key].tolist()] for one in shown]
    rows = tuple(zip(*values, strict=True))
    return Grid(title, text, tuple(one.heading for one in shown), rows, sources)


def cell_of(column: Column) -> Callable[[Any], Cell]:
    """Return what shows the values of a column."""
    if column.is_text:
        return text_cell
    return p_cell if column.kind == "p" else number_cell(column.digits)


def text_cell(value: Any) -> Cell:
    """Show text; what is missing as ``n/a``."""
    return Cell("n/a" if missing(value) else str(value))


def number_cell(digits: int) -> Callable[[Any], Cell]:
    """Return what shows numbers with so many decimals."""

    def cell(value: Any) -> Cell:
        return Cell(show_number(value, digits), "n/a" if missing(value) else value)

    return cell


def p_cell(value: Any) -> Cell:
    """Show a p-value."""
    return Cell(show_p(value), "n/a" if missing(value) else value)


def show_p(p: float) -> str:
    """Show a p-value with three decimals, smaller ones as ``< 0.001``."""
    return "n/a" if missing(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def say_p(p: float) -> str:
    """A p-value in a sentence."""
    return f"p {show_p(p)}" if p < 0.001 else f"p = {show_p(p)}"


def smallest_of(p: Iterable[float]) -> float:
    """The smallest of several p, times their number; NaN without any."""
    known = [float(each) for each in p if not missing(each)]
    return min(1.0, len(known) * min(known)) if known else math.nan


def percent(share: float, digits: int = 0) -> str:
    """A share in percent."""
    return "n/a" if missing(share) else f"{100 * share:.{digits}f} %"


def missing(value: Any) -> bool:
    """Whether a value of a table is missing."""
    return value is None or value != value


def count(number: int, one: str, many: str = "") -> str:
    """``1 scan``, ``2 scans``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(words: Iterable[str], most: int = 6) -> str:
    """``a, b and c``; after so many words the number of the others."""
    words = list(words)
    if len(words) > most:
        return ", ".join(words[:most]) + f" and {len(words) - most} more"
    return " and ".join(([", ".join(words[:-1])] if len(words) > 1 else []) + words[-1:])


def make_checked(part: Part, tables: GroupTables) -> Sequence[Section]:
    """Make sections; one that cannot be made says why, and the others are made."""
    try:
        return part.make(tables)
    except Exception as error:
        said = f"This part could not be made. {tables.explain(error, part.anchor)}"
        return [Section(part.anchor, part.title, (said,))]
