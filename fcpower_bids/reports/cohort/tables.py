"""Tables and sidecars of the group level, the words for their numbers, and the parts of a page that show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.outputs.dataset import short_name
from fcpower_bids.outputs.group import FinishedAnalyses, find_table
from fcpower_bids.outputs.tables import read_declared, read_json
from fcpower_bids.reports.page import Cell, Grid, Panel, Sources, look_up, make_panel, relative_link, show_number
from fcpower_bids.reports.page import count as count
from fcpower_bids.schema import TABLES, Column
from fcpower_bids.settings import Settings

SIGNIFICANT = 0.05
MOST_ROWS = 2000
"""Rows of a table that a page shows; the page of a cohort of 40,000 would have 26 MB otherwise."""
MOST_EDGES = 10
"""Edges of a target and representation that a page shows."""


@dataclass(frozen=True)
class Section:
    """A part of the page: sentences that say what was found, drawings, tables."""

    anchor: str
    title: str
    sentences: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()
    grids: tuple[Grid, ...] = ()
    answers: tuple[str, ...] = ()  # the answer for every target, which the first lines of the page quote


@dataclass(frozen=True, eq=False)
class GroupTables:
    """The tables of ``group/``, read when they are asked for; one that is not there has no rows."""

    settings: Settings  # where the outputs are
    _frames: dict[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The output folder."""
        return self.settings.output_dir

    def path(self, name: str) -> Path:
        """Where a table is, or would be."""
        return find_table(self.settings.results, name)

    @cached_property
    def of_cohort(self) -> set[str]:
        """Tables of this cohort and these choices; others may lie beside, of a run whose notes are lost."""
        return FinishedAnalyses(self.settings.results).tables | {"scans", "excluded", "left_out"}

    def has(self, name: str) -> bool:
        """Whether a table is there."""
        return name in self.of_cohort and self.path(name).is_file()

    @cached_property
    def done(self) -> tuple[str, ...]:
        """Analyses whose tables are there."""
        left_out = {*self.rows("left_out").get("analysis", ())}
        return tuple(name for name in FinishedAnalyses(self.settings.results).names if name not in left_out)

    def lost(self) -> list[str]:
        """Tables that an analysis wrote which are no longer there."""
        tables = FinishedAnalyses(self.settings.results).tables
        return [path.name for path in map(self.path, sorted(tables)) if not path.is_file()]

    def rows(self, name: str) -> pd.DataFrame:
        """Read a table; without rows where it is not there. Raises DatasetError."""
        if name not in self._frames:
            most, spec = MOST_EDGES if name in ("edges", "edges_components") else 0, TABLES[name]
            nothing = pd.DataFrame(columns=[*spec.columns])
            self._frames[name] = read_declared(self.path(name), spec, most) if self.has(name) else nothing
        return self._frames[name]

    def facts(self, name: str) -> dict[str, Any]:
        """Read a sidecar; nothing where there is none. Raises DatasetError."""
        path = self.settings.results / f"{name}.json"
        return read_json(path) if path.is_file() else {}

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

    def title(self, representation: object) -> str:
        """A representation or an atlas as people call it."""
        name = str(representation)
        kind, _, encoder = name.partition(":")
        if kind == "embedding":
            return f"embedding {encoder}"
        exponent = "α" if math.isnan(self.alpha) else f"{self.alpha:g}"
        known = {"fc": "FC", "fc_power": f"FC^{exponent}", "fc_nested": "FC^α, α chosen in each fold"}
        return known.get(name) or (short_name(name) if name.startswith("atlas-") else name.replace("_", " "))

    @cached_property
    def pages(self) -> dict[str, str]:
        """Address of the page of each participant who has one."""
        return {path.stem: relative_link(path, self.root) for path in self.root.glob("sub-*.html")}

    def person(self, name: object) -> Cell:
        """A participant, linked to their page."""
        return Cell("n/a" if missing(name) else str(name), address=self.pages.get(str(name), ""))

    def panel(self, name: str, svg: str, **words: Any) -> Panel:
        """Return the figure of this name in ``panels.yml``, whose words have gaps for these."""
        sources = self.links(*look_up("panels", name).get("sources", "").split())
        return make_panel("panels", name, svg, sources, **words)

    def grid(self, name: str, rows: pd.DataFrame | None = None) -> Iterator[Grid]:
        """Yield the table of this name in ``grids.yml``, if it has rows; without ``rows`` those of its file."""
        about = look_up("grids", name)
        sources = about.get("sources", name).split()
        spec, shown = TABLES[sources[0]], self.rows(sources[0]) if rows is None else rows
        if shown.empty:
            return
        for column in {"representation", "reference", "atlas"} & set(shown):  # as people call them
            shown = shown.assign(**{column: [name if missing(name) else self.title(name) for name in shown[column]]})
        facts = self.facts(sources[0])
        rules = " ".join(str(facts[key]) for key in about.get("facts", "").split() if key in facts)
        columns = spec.shown(*about.get("columns", " ".join(spec.columns)).split())
        text, cells = rules or about.get("text", ""), {"participant_id": self.person, "other": self.person}
        shown = shown.dropna(axis=1, how="all")
        yield make_grid(shown, columns, about.get("title", ""), text, self.links(*sources), cells)


Rule = Callable[[GroupTables], Iterable[str]]


class Chapter(NamedTuple):
    """A part of the page that is there if one of its tables has rows."""

    title: str
    needed: str  # tables
    grids: Sequence[str | tuple[str, Callable[[GroupTables], pd.DataFrame]]] = ()  # of grids.yml, and their rows
    answer: Rule = lambda tables: ()  # sentences that the first lines quote
    more: Rule = lambda tables: ()  # sentences that they do not quote
    draw: Callable[[GroupTables], Iterable[Panel]] = lambda tables: ()


def make_grid(
    frame: pd.DataFrame,
    columns: Iterable[Column],
    title: str = "",
    text: str = "",
    sources: Sources = (),
    cells: Mapping[str, Callable[[Any], Cell]] | None = None,
) -> Grid:
    """Show the columns that a frame has under their headings; ``cells`` shows some in another way than by kind."""
    shown, head, rest = [column for column in columns if column.key in frame.columns], frame.head(MOST_ROWS), ""
    show = {column.key: partial(_show, column) for column in shown} | dict(cells or {})
    values = [[show[column.key](value) for value in head[column.key].tolist()] for column in shown]
    if len(head) < len(frame):
        rest = f"The first {MOST_ROWS:,} of {len(frame):,} rows; the tables behind this page have the others too."
    return Grid(title, text, tuple(column.heading for column in shown), tuple(zip(*values, strict=True)), sources, rest)


def _show(column: Column, value: Any) -> Cell:
    if column.is_text:
        return Cell("n/a" if missing(value) else score_label(value) if column.key == "score" else str(value))
    text = show_p(value) if column.kind == "p" else show_number(value, column.digits)
    return Cell(text, "n/a" if missing(value) else value)


# Words for numbers


def show_p(p: float) -> str:
    """Show a p-value with three decimals, smaller ones as ``< 0.001``."""
    return "n/a" if missing(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def say_p(p: float) -> str:
    """A p-value in a sentence."""
    return f"p {show_p(p)}" if p < 0.001 else f"p = {show_p(p)}"


def percent(share: float, digits: int = 0) -> str:
    """A share in percent."""
    return "n/a" if missing(share) else f"{100 * share:.{digits}f} %"


def missing(value: Any) -> bool:
    """Whether a value of a table is missing."""
    return value is None or value != value


def score_label(score: object) -> str:
    """A score as a sentence calls it."""
    return {"auc": "AUC", "accuracy": "accuracy"}.get(str(score), "r")


# Rows of a table


def targets_of(frame: pd.DataFrame) -> list[str]:
    """Targets in the order of the table."""
    return list(dict.fromkeys(frame["target"].astype(str)))


def own_rows(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Rows of a target."""
    return frame[frame["target"].astype(str) == target]


def by_representation(frame: pd.DataFrame, target: str) -> dict[str, pd.DataFrame]:
    """Rows of a target by representation, in the order of the table."""
    return {str(name): part for name, part in own_rows(frame, target).groupby("representation", sort=False)}


def square(part: pd.DataFrame, first: str, second: str, value: str) -> tuple[list[str], np.ndarray]:
    """Return names and symmetric matrix of a table that has each pair of names once; NaN for a pair it lacks."""
    a, b = (part[column].fillna("n/a").astype(str).tolist() for column in (first, second))
    names = list(dict.fromkeys([*a, *b]))
    place = {name: number for number, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    for i, j, number in zip(map(place.get, a), map(place.get, b), part[value], strict=True):
        matrix[i, j] = matrix[j, i] = number
    return names, matrix
