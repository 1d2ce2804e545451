"""Charts as SVG text: rows with names, curves, scaled eigenvectors and connections in a brain; arrays in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import pandas as pd

from fcpower_bids.reports.figures import AFTER, BEFORE
from fcpower_bids.reports.svg import POINTS, SIZE, Axes, Box, Drawing, Scale, around

SHADES = (BEFORE, AFTER, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^v"
GREY = "#8c8c8c"
MOST_DOTS = 1000
"""Of more points every so many is drawn."""
LETTER = 0.56 * SIZE
"""Mean width of a letter in points."""
WIDE, NARROW = 9.6, 4.8
"""Inches of several panels side by side, and of a lone one."""
LEFT, BELOW = 46.0, 32.0
"""Points for the name of an axis with its ticks."""
MOST_TICKS = 8
MOST_MARKED = 30
"""A curve of more points is a line without marks."""
Curves = Mapping[str, np.ndarray]
"""By name: columns x and y, or x, y and the lower and upper end of a band."""
SHARES, FEW_ROWS = Scale(-0.02, 1.03), 8
"""Scale of shares, and rows up to which there is more room for each."""
LINE = 12.5
"""Points of a line of a key."""
CORNERS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "s": ((-0.89, -0.89), (0.89, -0.89), (0.89, 0.89), (-0.89, 0.89)),
    "D": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
    "^": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    "v": ((0, 1.1), (1.1, -0.9), (-1.1, -0.9)),
}  # fmt: skip
"""Corners of the markers, in radii; a circle has none."""


def short(title: str, most: int = 34) -> str:
    """Cut a title that is too long for a drawing."""
    return title if len(title) <= most else title[: most - 1] + "…"


def side_by_side(drawing: Drawing, number: int, left: float, top: float, bottom: float, gap: float) -> list[Box]:
    """Divide a sheet into panels; margins and gap in points."""
    wide = (drawing.width - left - 10 - gap * (number - 1)) / number
    tall = drawing.height - top - bottom
    return [Box(left + column * (wide + gap), top, wide, tall) for column in range(number)]


def _shape(x: float, y: float, radius: float, marker: str) -> str:
    if marker == "o":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"/>'
    corners = "L".join(f"{x + radius * a:.1f} {y + radius * b:.1f}" for a, b in CORNERS[marker])
    return f'<path d="M{corners}Z"/>'


class Chart(Axes):
    """A panel with points, bands and bars; what is drawn later lies above."""

    def marks(
        self, x: np.ndarray, y: np.ndarray, colour: str, area: float, marker: str = "o", **look: str | float
    ) -> None:
        """Draw points of so many square points as shapes."""
        known = np.isfinite(x) & np.isfinite(y)
        places = zip(self.across(x[known]), self.down(y[known]), strict=True)
        if shapes := "".join(_shape(a, b, float(np.sqrt(area / np.pi)), marker) for a, b in places):
            self.drawing.add("g", shapes, fill=colour, **look)

    def dots(self, x: np.ndarray, y: np.ndarray, colour: str, area: float, marker: str = "o") -> None:
        """Draw a cloud of points that let others be seen, and of very many a part."""
        step = -(-len(x) // MOST_DOTS) or 1
        self.marks(x[::step], y[::step], colour, area, marker, fill_opacity=0.5)

    def band(self, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> None:
        """Fill between two lines, where both are known."""
        known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
        if known.sum() < 2:
            return
        ends = np.concatenate([self.across(x[known]), self.across(x[known])[::-1]])
        heights = np.concatenate([self.down(low[known]), self.down(high[known])[::-1]])
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(ends, heights, strict=True)) + "Z"
        self.drawing.add("path", d=path, fill=colour, fill_opacity=0.15, clip_path=self.inside)

    def upright(self, value: float) -> None:
        """Draw an upright dashed line over the whole height."""
        if np.isfinite(value):
            self.plot((value, value), (self.y.low, self.y.high), GREY, 0.9, "4 2")

    def title(self, text: str) -> None:
        """Write a title above the panel."""
        if text:
            self.drawing.text((self.box.left + self.box.right) / 2, self.box.top - 6, text, 9)


def reaching(*values: np.ndarray | Sequence[float] | float) -> Scale:
    """Scale that holds all these values, with a little room."""
    return around(np.concatenate([np.ravel(np.asarray(numbers, dtype=float)) for numbers in values]))


def rows_with_names(
    titles: Sequence[str], scales: Mapping[str, Scale], width: float, height: float
) -> tuple[Drawing, list[Chart]]:
    """Return a sheet of named rows, each of so many inches, with a panel per scale."""
    above, names = (20 if any(scales) else 6), [short(title) for title in titles]
    below = BELOW + 2
    sheet = Drawing(width, height * len(titles) + (above + below + 4) / POINTS)
    room = min(LETTER * max(map(len, names), default=0) + 12, 0.5 * sheet.width)
    charts = []
    for box, (title, scale) in zip(
        side_by_side(sheet, len(scales), room, above, below, 16), scales.items(), strict=True
    ):
        chart = Chart(sheet, box, scale, Scale(-len(titles) + 0.45, 0.55))
        chart.title(short(title, 40))
        charts.append(chart)
    for number, name in enumerate(names):
        sheet.text(charts[0].box.left - 6, float(charts[0].down(-number)) + 0.36 * SIZE, name, anchor="end")
    return sheet, charts


def draw_rows(titles: Sequence[str], columns: Curves, labels: Sequence[str], origins: Sequence[float] = ()) -> str:
    """Draw values with limits and p (n, 4), a row per entry, a panel per column, against origins (0: differences)."""
    origins, scales = origins or [0.0] * len(labels), {}
    for (name, values), label, origin in zip(columns.items(), labels, origins, strict=True):
        scales[name] = SHARES if label.startswith("share") else reaching(values[:, :3], origin)
    height = 0.2 if len(titles) > FEW_ROWS else 0.3
    sheet, charts = rows_with_names(titles, scales, WIDE if len(columns) > 1 else NARROW, height)
    place = -np.arange(len(titles), dtype=float)
    for chart, label, values, origin in zip(charts, labels, columns.values(), origins, strict=True):
        for middle in place:
            chart.level(middle, "#ebebeb", 0.6)
        chart.upright(origin)
        middle, low, high, p = values.T
        clear = (np.nan_to_num(p, nan=1.0) < 0.05) & (middle != 0)
        for wanted, marker, colour, face in (
            (clear & (middle > 0), "^", AFTER, AFTER),
            (clear & (middle < 0), "v", BEFORE, BEFORE),
            (np.isfinite(middle) & ~clear, "o", "#595959", "#fff"),
        ):
            for row in np.flatnonzero(wanted & np.isfinite(low) & np.isfinite(high)):
                chart.plot((low[row], high[row]), (place[row], place[row]), colour, 1.3)
            chart.marks(middle[wanted], place[wanted], face, 26, marker, stroke=colour)
        chart.frame_below(label, most=5)
    return sheet.svg()


def draw_standing(names: Sequence[str], figures: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Draw where values (n,) stand among those of all (N,): a row per name, a panel per figure, all as a grey cloud."""
    scales = {title: reaching(everyone) for title, (_, everyone) in figures.items()}
    sheet, charts = rows_with_names(names, scales, WIDE, 0.3)
    for chart, (values, everyone) in zip(charts, figures.values(), strict=True):
        aside = 0.3 * (2 * ((np.arange(len(everyone)) * 0.6180339887) % 1) - 1)  # the same side by side every time
        for row, value in enumerate(values):
            chart.dots(everyone, aside - row, GREY, 8)
            chart.marks(np.array([value]), np.array([-float(row)]), AFTER, 40, stroke="#000")
        chart.frame_below("", most=5)
    return sheet.svg()


def network_spans(networks: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return name, first and one past the last place of each run of equal networks."""
    spans, start = [], 0
    for name, members in groupby(networks):
        stop = start + len(list(members))
        spans.append((name, start, stop))
        start = stop
    return spans


# Curves


def draw_curves(
    panels: Sequence[tuple[str, str, str, Curves]],
    origin: float = np.nan,
    mark: float | tuple[float, ...] = np.nan,
    doubling: bool = False,
    points: bool = False,
) -> str:
    """Draw curves, each panel with its title, vertical and horizontal label; a name looks the same in all panels.

    `origin`, `mark`: a level, and upright lines. `doubling`: the horizontal axis is logarithmic. `points`: no lines.
    """
    sheet = Drawing(WIDE if len(panels) > 1 else NARROW, 2.9)
    names = dict.fromkeys(name for *_, curves in panels for name, values in curves.items() if len(values))
    looks = {name: (SHADES[n % len(SHADES)], MARKERS[n % len(MARKERS)]) for n, name in enumerate(names)}
    key = {short(name): looks[name] for name in names} if any(len(curves) > 1 for *_, curves in panels) else {}
    wide = LETTER * max(map(len, key), default=0) + 28  # of a name in the key, which has up to four in a line
    columns = max(1, min(4, len(key), int(sheet.width // wide)))
    lines = -(-len(key) // columns)
    bottom = BELOW + (LINE * lines + 4 if key else 0)
    same = len({vertical for _, vertical, *_ in panels}) == 1
    boxes = side_by_side(sheet, len(panels), LEFT, 20, bottom, 20 if same else LEFT + 8)
    everything = [values for *_, curves in panels for values in curves.values()]
    for number, (box, (title, vertical, horizontal, curves)) in enumerate(zip(boxes, panels, strict=True)):
        places = np.unique(np.concatenate([values[:, 0] for values in curves.values()] or [np.zeros(0)]))
        along = np.log if doubling else np.asarray
        heights = [_ends(values).ravel() for values in (everything if same else curves.values())]
        y = SHARES if vertical.startswith("share") else reaching(*heights, origin)
        chart = Chart(sheet, box, reaching(along(places), np.asarray(mark)), y)
        if np.isfinite(origin):
            chart.level(origin, GREY, 0.9, "4 2")
        for value in np.ravel(mark):
            chart.upright(value)
        for name in filter(looks.get, curves):
            (colour, marker), values = looks[name], curves[name]
            across, (low, high) = along(values[:, 0]), _ends(values).T
            if points:
                chart.dots(across, values[:, 1], colour, 14, marker)
                continue
            if values.shape[1] > 2:
                chart.band(across, low, high, colour)
            chart.plot(across, values[:, 1], colour, 1.4)
            if len(values) <= MOST_MARKED:
                chart.marks(across, values[:, 1], colour, 16, marker)
        chart.title(title)
        if doubling:
            words = {np.log(place): f"{place:.3g}" if place < 1000 else f"{place:.0f}" for place in spaced(places)}
            chart.name_below(horizontal, words)
        else:
            chart.frame_below(horizontal, most=6)
        if number and same:
            sheet.line((box.left, box.left), (box.top, box.bottom), width=0.7)
        else:
            chart.frame_left(vertical, most=6)
    for number, (name, (colour, marker)) in enumerate(key.items()):
        row, column = divmod(number, columns)
        left, base = sheet.width / 2 + wide * (column - columns / 2), sheet.height - 6 - LINE * (lines - 1 - row)
        sheet.add("g", _shape(left + 5, base - 3, 2.6, marker), fill=colour)
        sheet.text(left + 14, base, name, anchor="start")
    return sheet.svg()


def with_band(cells: pd.DataFrame) -> np.ndarray:
    """Return x, mean and the ends of a band of one standard deviation from columns x, mean and deviation."""
    x, mean, deviation = cells.to_numpy(dtype=float).T
    return np.column_stack([x, mean, mean - deviation, mean + deviation])


def _ends(values: np.ndarray) -> np.ndarray:
    """Lower and upper end (n, 2) of the band of a curve; its values where it has none."""
    if values.shape[1] == 2:
        return values[:, [1, 1]]
    return np.where(np.isfinite(values[:, 2:]), values[:, 2:], values[:, 1:2])


def spaced(places: np.ndarray) -> list[float]:
    """Choose ticks from ascending positive numbers whose labels do not touch on a logarithmic axis; the ends stay."""
    if not len(places):
        return []
    room, chosen = np.log(places[-1] / places[0]) / MOST_TICKS, [float(places[0])]
    for place in places[1:-1]:
        if min(np.log(place / chosen[-1]), np.log(places[-1] / place)) >= room:
            chosen.append(float(place))
    return chosen if len(places) == 1 else [*chosen, float(places[-1])]
