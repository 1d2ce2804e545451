"""Charts as SVG text: panels side by side, points, bands, bars and rows with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

import numpy as np

from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.svg import DOTS, POINTS, SIZE, Axes, Box, Drawing, Scale, around, encode_png

SHADES = (BEFORE, AFTER, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"
GREY, PALE = "#8c8c8c", "#bfbfbf"
MANY_POINTS = 300
"""More points are drawn as an image, which is smaller than so many shapes."""
STEPS = 16
"""Opacities of such an image."""
WIDE = 0.56 * SIZE
"""Mean width of a letter in points."""
ROW_WIDTH, ROW_HEIGHT = 4.7, 0.42
"""Inches of a sheet of named rows and of each of its rows."""
BELOW_ROWS = 34
"""Points for the name of its axis with the ticks."""
CORNERS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "s": ((-0.89, -0.89), (0.89, -0.89), (0.89, 0.89), (-0.89, 0.89)),
    "D": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
    "^": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    "v": ((0, 1.1), (1.1, -0.9), (-1.1, -0.9)),
    "P": (
        *((-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4)),
        *((0.4, 1.1), (-0.4, 1.1), (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4)),
    ),
    "*": tuple(
        (float(r * np.sin(k * np.pi / 5)), float(-r * np.cos(k * np.pi / 5)))
        for k, r in enumerate((1.3, 0.55) * 5)
    ),
    "X": (
        *((-1.1, -0.7), (-0.7, -1.1), (0, -0.4), (0.7, -1.1), (1.1, -0.7), (0.4, 0)),
        *((1.1, 0.7), (0.7, 1.1), (0, 0.4), (-0.7, 1.1), (-1.1, 0.7), (-0.4, 0)),
    ),
}  # fmt: skip
"""Corners of the markers, in radii; a circle has none."""


def style(number: int) -> tuple[str, str]:
    """Colour and marker of the representation in this place."""
    return SHADES[number % len(SHADES)], MARKERS[number % len(MARKERS)]


def jitter(size: int, width: float) -> np.ndarray:
    """Spread points side by side, always in the same way, shape (size,) between -width and width."""
    return width * (2 * ((np.arange(size) * 0.6180339887) % 1) - 1)


def short(title: str, most: int = 34) -> str:
    """Cut a title that is too long for a drawing."""
    return title if len(title) <= most else title[: most - 1] + "…"


def width_of(texts: Sequence[str]) -> float:
    """Return the room in points that the longest of some texts takes."""
    return WIDE * max(map(len, texts), default=0)


def lay_out(
    drawing: Drawing, rows: int, columns: int, margins: tuple[float, float, float, float], gaps: tuple[float, float]
) -> list[Box]:
    """Divide a sheet into equal panels, row by row; margins (left, right, top, bottom) and gaps in points."""
    left, right, top, bottom = margins
    wide = (drawing.width - left - right - gaps[0] * (columns - 1)) / columns
    tall = (drawing.height - top - bottom - gaps[1] * (rows - 1)) / rows
    return [
        Box(left + column * (wide + gaps[0]), top + row * (tall + gaps[1]), wide, tall)
        for row in range(rows)
        for column in range(columns)
    ]


class Chart(Axes):
    """A panel with points, bands and bars; what is drawn later lies above."""

    def dots(
        self, x: np.ndarray, y: np.ndarray, colour: str, area: float, marker: str = "o", opacity: float = 1.0
    ) -> None:
        """Draw points of so many square points; many of them as an image."""
        known = np.isfinite(x) & np.isfinite(y)
        if known.sum() > MANY_POINTS:
            self._cloud(self.across(x[known]), self.down(y[known]), colour, float(np.sqrt(area / np.pi)), opacity)
        else:
            self._shapes(x[known], y[known], area, marker, {"fill": colour, "fill_opacity": opacity})

    def marks(self, x: np.ndarray, y: np.ndarray, colour: str, area: float, marker: str, edge: str = "none") -> None:
        """Draw points as shapes, however many, with an edge where one is named."""
        known = np.isfinite(x) & np.isfinite(y)
        self._shapes(x[known], y[known], area, marker, {"fill": colour, "stroke": edge})

    def _shapes(self, x: np.ndarray, y: np.ndarray, area: float, marker: str, look: Mapping[str, str | float]) -> None:
        radius = float(np.sqrt(area / np.pi))
        points = zip(self.across(x), self.down(y), strict=True)
        if marker == "o":
            shapes = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius:.2f}"/>' for a, b in points)
        else:
            shapes = "".join(f'<path d="{_polygon(a, b, radius, CORNERS[marker])}"/>' for a, b in points)
        if shapes:
            self.drawing.add("g", shapes, **look)

    def _cloud(self, across: np.ndarray, down: np.ndarray, colour: str, radius: float, opacity: float) -> None:
        """Draw many points as an image of the colour, denser where more of them lie."""
        scale = DOTS / POINTS
        columns, rows = max(1, round(self.box.width * scale)), max(1, round(self.box.height * scale))
        count = np.zeros((rows, columns))
        reach = np.arange(-int(radius * scale), int(radius * scale) + 1)
        disc = [(i, j) for i in reach for j in reach if i * i + j * j <= max(1.0, (radius * scale) ** 2)]
        place = np.stack([(down - self.box.top) * scale, (across - self.box.left) * scale]).astype(int)
        for i, j in disc:
            row, column = place[0] + i, place[1] + j
            inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            np.add.at(count, (row[inside], column[inside]), 1)
        step = np.ceil((STEPS - 1) * (1 - (1 - opacity) ** count)).astype(np.uint8)
        shade = np.frombuffer(bytes.fromhex(colour[1:]), dtype=np.uint8)
        palette = np.column_stack([np.tile(shade, (STEPS, 1)), np.linspace(0, 255, STEPS).astype(np.uint8)])
        self.drawing.image(self.box, encode_png(step, palette), columns)

    def marked_line(self, x: np.ndarray, y: np.ndarray, colour: str, marker: str) -> None:
        """Draw a line through points, each with its marker."""
        self.plot(x, y, colour, 1.4)
        self.marks(x, y, colour, 16, marker)

    def band(self, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str, opacity: float) -> None:
        """Fill between two lines, where both are known."""
        known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
        if known.sum() < 2:
            return
        ends = np.concatenate([self.across(x[known]), self.across(x[known])[::-1]])
        heights = np.concatenate([self.down(low[known]), self.down(high[known])[::-1]])
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(ends, heights, strict=True)) + "Z"
        self.drawing.add("path", d=path, fill=colour, fill_opacity=opacity, clip_path=self.inside)

    def bars(self, edges: np.ndarray, heights: np.ndarray, colour: str, opacity: float = 1.0) -> None:
        """Draw a histogram from the edges (n + 1,) and the heights (n,) of its bars."""
        zero, ends, tops = float(self.down(0.0)), self.across(edges), self.down(heights)
        path = "".join(
            f"M{left:.1f} {zero:.1f}V{top:.1f}H{right:.1f}V{zero:.1f}"
            for left, right, top, height in zip(ends[:-1], ends[1:], tops, heights, strict=True)
            if height > 0
        )
        if path:
            self.drawing.add("path", d=path, fill=colour, fill_opacity=opacity, clip_path=self.inside)

    def shade(
        self, middle: float, end: float, colour: str = PALE, half: float = 0.3, start: float | None = None
    ) -> None:
        """Shade a strip around a height between two values; without a start from the left side."""
        if np.isfinite(end):
            top, bottom = (float(self.down(middle + side * half)) for side in (1, -1))
            ends = self.across([self.x.low if start is None else start, end])
            left, right = np.sort(np.clip(ends, self.box.left, self.box.right))
            self.drawing.rectangle(Box(left, top, right - left, bottom - top), colour, fill_opacity=0.4)

    def upright(self, value: float, colour: str, width: float = 0.9, dashes: str = "") -> None:
        """Draw an upright line over the whole height."""
        if np.isfinite(value):
            self.plot((value, value), (self.y.low, self.y.high), colour, width, dashes)

    def title(self, text: str) -> None:
        """Write a title above the panel."""
        if text:
            self.drawing.text((self.box.left + self.box.right) / 2, self.box.top - 6, text, 9)

    def answer(self, height: float, text: str, half: float = 0.45) -> None:
        """Show a text where the pointer rests on a row."""
        top, bottom = (float(self.down(height + side * half)) for side in (1, -1))
        row = Box(self.box.left, top, self.box.width, bottom - top)
        self.drawing.rectangle(row, "none", pointer_events="all", content=f"<title>{escape(text, quote=False)}</title>")

    def name_rows(self, titles: Sequence[str]) -> None:
        """Write the names of rows, which lie at 0, -1, -2, ..., to the left of the panel."""
        for number, title in enumerate(titles):
            self.drawing.text(self.box.left - 6, float(self.down(-number)) + 0.36 * SIZE, short(title), anchor="end")


def row_scale(rows: int) -> Scale:
    """Scale of panels with so many named rows from the top."""
    return Scale(-rows + 0.45, 0.55)


def reaching(*values: np.ndarray | Sequence[float] | float) -> Scale:
    """Scale that holds all these values, with a little room."""
    return around(np.concatenate([np.ravel(np.asarray(one, dtype=float)) for one in values]))


def rows_with_names(
    titles: Sequence[str],
    scales: Mapping[str, Scale],
    width: float,
    height: float,
    key: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Drawing, list[Chart]]:
    """Return a sheet of named rows, each of so many inches, with a panel per scale, and the key of marks below it."""
    keys = height_of_key(list(key), width * POINTS) if key else 0.0
    above, below, names = (20 if any(scales) else 6), BELOW_ROWS + keys, [short(title) for title in titles]
    sheet = Drawing(width, height * len(titles) + (above + below + 4) / POINTS)
    room = min(width_of(names) + 12, 0.5 * sheet.width)
    boxes = lay_out(sheet, 1, len(scales), (room, 10, above, below), (16, 0))
    charts = []
    for box, (title, scale) in zip(boxes, scales.items(), strict=True):
        chart = Chart(sheet, box, scale, row_scale(len(titles)))
        chart.title(short(title, 40))
        charts.append(chart)
    charts[0].name_rows(names)
    if key:
        key_below(sheet, key)
    return sheet, charts


def draw_row_bars(
    titles: Sequence[str],
    values: np.ndarray,
    label: str,
    interval: tuple[np.ndarray, np.ndarray] | None = None,
    levels: Sequence[np.ndarray] = (),
    within: np.ndarray | None = None,
    colours: Sequence[str] = (),
) -> str:
    """Draw a bar (n,) per title from zero on a scale up to 1, with ends of intervals, levels and diamonds, as SVG."""
    scale = Scale(min(0.0, float(np.nanmin(values))), 1.02)
    sheet, (chart,) = rows_with_names(titles, {"": scale}, ROW_WIDTH, ROW_HEIGHT)
    for row in range(len(titles)):
        chart.shade(-row, values[row], colours[row] if colours else style(row)[0], start=0.0)
        if interval is not None:
            chart.plot([interval[0][row], interval[1][row]], [-row] * 2, "#000", 1.2)
        for level in levels:
            chart.plot([level[row]] * 2, [-row - 0.36, -row + 0.36], "#000", 1.2, "3 2")
        ends = () if interval is None else (interval[0][row], interval[1][row])
        chart.answer(-row, f"{titles[row]}: {with_interval(values[row], *ends)}")
    if within is not None:
        chart.marks(within, -np.arange(len(titles), dtype=float), "#fff", 26, "D", "#000")
    chart.frame_below(label, most=6)
    return sheet.svg()


def with_interval(value: float, low: float = np.nan, high: float = np.nan, sign: str = "") -> str:
    """Write a value, and its 95 % limits where they are known."""
    limits = f" (95 % {low:{sign}.3f} to {high:{sign}.3f})" if np.isfinite(low) and np.isfinite(high) else ""
    return f"{value:{sign}.3f}{limits}"


def key_below(drawing: Drawing, entries: Mapping[str, tuple[str, str]]) -> None:
    """Name colours and markers at the foot of the sheet, in rows of up to four."""
    names = list(entries)
    wide = width_of(names) + 28
    columns = max(1, min(4, len(names), int(drawing.width // wide)))
    lines = -(-len(names) // columns)
    left = (drawing.width - wide * columns) / 2
    for number, (name, (colour, marker)) in enumerate(entries.items()):
        row, column = divmod(number, columns)
        _sample(drawing, left + wide * column, drawing.height - 6 - 12.5 * (lines - 1 - row), name, colour, marker)


def height_of_key(entries: Sequence[str], drawing_width: float) -> float:
    """Return the points that `key_below` takes on a sheet of so many points."""
    columns = max(1, min(4, len(entries), int(drawing_width // (width_of(entries) + 28))))
    return 12.5 * -(-len(entries) // columns) + 4


def _sample(drawing: Drawing, left: float, middle: float, name: str, colour: str, marker: str) -> None:
    if marker == "o":
        drawing.add("circle", cx=left + 5, cy=middle - 3, r=2.6, fill=colour)
    elif marker in CORNERS:
        drawing.add("path", d=_polygon(left + 5, middle - 3, 2.6, CORNERS[marker]), fill=colour)
    else:
        drawing.line((left - 2, left + 12), (middle - 3, middle - 3), colour, 1.4, marker.replace("-", ""))
    drawing.text(left + 14, middle, name, anchor="start")


def _polygon(x: float, y: float, radius: float, corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x + radius * a:.1f} {y + radius * b:.1f}" for a, b in corners) + "Z"


def network_spans(networks: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return name, first and one past the last place of each run of equal networks."""
    spans, start = [], 0
    for name, members in groupby(networks):
        stop = start + len(list(members))
        spans.append((name, start, stop))
        start = stop
    return spans
