"""Shapes and charts as SVG text, a fiftieth of the time of a plotting library; arrays in."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

POINTS = 72
"""Per inch: the unit of everything here, as of sizes of letters."""
DOTS = 100
"""Pixels per inch beyond which no eye sees more; an image with fewer shows its pixels as squares."""
SIZE, SMALL = 8.5, 6.5
"""Points of letters."""
LETTERS = "DejaVu Sans,Verdana,Arial,sans-serif"
"""Verdana is as wide where DejaVu is not installed."""
MOST_POINTS = 1800
"""Of a line; a longer one keeps the lowest and the highest of neighbours."""
POWER = re.compile(r"(FC|10)\^(-?\d+(?:\.\d+)?|α)")
RAISED = r'\1<tspan dy="-.45em" font-size="75%">\2</tspan><tspan dy=".34em">&#8203;</tspan>'
"""An exponent; the empty part behind it brings what follows back to the line."""
LIGHTER = {
    **{"#000": "#e6edf3", "#0072B2": "#56b4e9", "#D55E00": "#ff8a3d", "#a3361b": "#ff9c85"},
    **{"#ebebeb": "#2b333c", "#595959": "#a5afba"},
}
DARK = (
    "<style>@media screen and (prefers-color-scheme:dark){.sheet{fill:#0f1419}text:not([fill]){fill:#e6edf3}"
    + "".join(
        f'[stroke="{colour}"]{{stroke:{other}}}[fill="{colour}"]{{fill:{other}}}' for colour, other in LIGHTER.items()
    )
    + "}</style>"
)
"""Colours of sheet, ink and dark marks on a dark page."""


class Box(NamedTuple):
    """A rectangle in points from the upper left corner."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right end."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower end."""
        return self.top + self.height


class Drawing:
    """A white sheet of so many inches; equal drawings give equal text."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width * POINTS, height * POINTS
        self.parts: list[str] = []

    def add(self, shape: str, content: str = "", /, **attributes: str | float) -> None:
        """Add an element; ``stroke_width`` stands for ``stroke-width``, and content is markup."""
        listed = "".join(f' {name.replace("_", "-")}="{_value(value)}"' for name, value in attributes.items())
        self.parts.append(f"<{shape}{listed}>{content}</{shape}>" if content else f"<{shape}{listed}/>")

    def rectangle(self, box: Box, fill: str, **attributes: str | float) -> None:
        """Add a filled rectangle."""
        self.add("rect", x=box.left, y=box.top, width=box.width, height=box.height, fill=fill, **attributes)

    def line(
        self, x: np.ndarray | Sequence[float], y: np.ndarray | Sequence[float], colour: str = "#000",
        width: float = 0.8, dashes: str = "", **attributes: str | float,
    ) -> None:  # fmt: skip
        """Add a line through points (n,), with a gap where one is not finite."""
        if dashes:
            attributes["stroke_dasharray"] = dashes
        x, y = _thin(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
        known = np.isfinite(x) & np.isfinite(y)
        begins = known & ~np.concatenate([[False], known[:-1]])
        points = zip(np.where(begins[known], "M", "L"), x[known], y[known], strict=True)
        path = "".join(f"{letter}{across:.1f} {down:.1f}" for letter, across, down in points)
        self.add("path", d=path, fill="none", stroke=colour, stroke_width=width, stroke_linejoin="round", **attributes)

    def text(
        self, x: float, y: float, text: str, size: float = SIZE, anchor: str = "middle", turned: bool = False,
        **attributes: str | float,
    ) -> None:  # fmt: skip
        """Add text that ends, begins or has its middle at a point, standing on it; turned, it is read upwards."""
        if turned:
            attributes["transform"] = f"rotate(-90 {_value(x)} {_value(y)})"
        if size != SIZE:
            attributes["font_size"] = size
        if anchor != "start":
            attributes["text_anchor"] = anchor
        self.add("text", POWER.sub(RAISED, escape(text, quote=False)), x=x, y=y, **attributes)

    def image(self, box: Box, png: bytes, pixels: int) -> None:
        """Add an image that fills a rectangle; with fewer ``pixels`` in a row than can be seen they stay squares."""
        squares = {"style": "image-rendering:pixelated"} if pixels < box.width * DOTS / POINTS else {}
        address = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
        self.add(
            "image", x=box.left, y=box.top, width=box.width, height=box.height,
            preserveAspectRatio="none", href=address, **squares,
        )  # fmt: skip

    def clip(self, box: Box) -> str:
        """Return what an element needs as ``clip_path`` to be seen within a rectangle only."""
        name = f"c{len(self.parts)}"
        shown = f'<rect x="{_value(box.left)}" y="{_value(box.top)}" width="{_value(box.width)}" '
        self.add("clipPath", f'{shown}height="{_value(box.height)}"/>', id=name)
        return f"url(#{name})"

    def svg(self) -> str:
        """Return the drawing as text."""
        width, height = _value(self.width), _value(self.height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" '
            f'viewBox="0 0 {width} {height}" font-family="{LETTERS}" font-size="{SIZE}">\n'
            f'{DARK}<rect width="100%" height="100%" fill="#fff" class="sheet"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep of a long line the lowest and the highest point of each few neighbours, in their order."""
    if len(x) <= MOST_POINTS:
        return x, y
    known, starts = np.where(np.isfinite(y), y, 0.0), np.arange(0, len(x), -(-len(x) // (MOST_POINTS // 2)))
    parts = zip(starts, np.split(known, starts[1:]), strict=True)
    ends = [start + place for start, part in parts for place in (part.argmin(), part.argmax())]
    places = np.union1d(ends, np.flatnonzero(~np.isfinite(y)))
    return x[places], y[places]


class Scale(NamedTuple):
    """Scale of an axis from a low to a high value."""

    low: float
    high: float

    def share(self, values: np.ndarray | Sequence[float] | float) -> np.ndarray:
        """Return where values lie between low (0) and high (1)."""
        return np.asarray((np.asarray(values, dtype=float) - self.low) / ((self.high - self.low) or 1.0))

    def ticks(self, most: int) -> list[float]:
        """Return at most so many round values."""
        span = (self.high - self.low) or 1.0
        unit = 10.0 ** np.floor(np.log10(span / most))
        step = next(unit * factor for factor in (1, 2, 2.5, 5, 10, 20) if span / (unit * factor) <= most)
        places = np.arange(np.ceil(self.low / step - 1e-9), np.floor(self.high / step + 1e-9) + 1)
        return [float(place * step) + 0.0 for place in places]  # no minus zero


def around(values: np.ndarray) -> Scale:
    """Return a scale with a little room on both sides of values."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return Scale(low - room, high + room)


class Axes:
    """A rectangle of a drawing with a scale along each side; what is drawn later lies above."""

    def __init__(self, drawing: Drawing, box: Box, x: Scale, y: Scale) -> None:
        self.drawing, self.box, self.x, self.y = drawing, box, x, y
        self.inside = drawing.clip(box)

    def across(self, values: np.ndarray | Sequence[float] | float) -> np.ndarray:
        """Return x in points."""
        return np.asarray(self.box.left + self.x.share(values) * self.box.width)

    def down(self, values: np.ndarray | Sequence[float] | float) -> np.ndarray:
        """Return y in points."""
        return np.asarray(self.box.bottom - np.clip(self.y.share(values), -9, 9) * self.box.height)

    def plot(
        self, x: np.ndarray | Sequence[float], y: np.ndarray | Sequence[float], colour: str = "#000",
        width: float = 0.8, dashes: str = "", **attributes: str | float,
    ) -> None:  # fmt: skip
        """Draw a line through points given in values, as far as it lies within."""
        self.drawing.line(self.across(x), self.down(y), colour, width, dashes, clip_path=self.inside, **attributes)

    def level(self, value: float, colour: str, width: float = 0.9, dashes: str = "") -> None:
        """Draw a level line over the whole width."""
        self.plot((self.x.low, self.x.high), (value, value), colour, width, dashes)

    def frame_left(self, label: str, most: int = 6, far: float = 34) -> None:
        """Draw the left side with its ticks and its name, which stands so many points outside."""
        left = self.box.left
        self.drawing.line((left, left), (self.box.top, self.box.bottom), width=0.7)
        for value in self.y.ticks(most):
            place = float(self.down(value))
            self.drawing.line((left - 3, left), (place, place), width=0.7)
            self.drawing.text(left - 5, place + 0.36 * SIZE, f"{value:.6g}", anchor="end")
        self.drawing.text(left - far, (self.box.top + self.box.bottom) / 2, label, turned=True)

    def frame_below(self, label: str, most: int = 8) -> None:
        """Draw the lower side with its ticks and its name."""
        self.name_below(label, {value: f"{value:.6g}" for value in self.x.ticks(most)})

    def name_below(self, label: str, places: Mapping[float, str]) -> None:
        """Draw the lower side with ticks of these places and words."""
        bottom = self.box.bottom
        self.drawing.line((self.box.left, self.box.right), (bottom, bottom), width=0.7)
        for value, word in places.items():
            place = float(self.across(value))
            self.drawing.line((place, place), (bottom, bottom + 3), width=0.7)
            self.drawing.text(place, bottom + 4 + SIZE, word)
        self.drawing.text((self.box.left + self.box.right) / 2, bottom + 7 + 2.2 * SIZE, label)

    def marks(
        self, x: np.ndarray, y: np.ndarray, colour: str, area: float, marker: str = "o", **look: str | float
    ) -> None:
        """Draw points of so many square points as shapes."""
        known = np.isfinite(x) & np.isfinite(y)
        places = zip(self.across(x[known]), self.down(y[known]), strict=True)
        if shapes := "".join(_shape(a, b, float(np.sqrt(area / np.pi)), marker) for a, b in places):
            self.drawing.add("g", shapes, fill=colour, **look)

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


BEFORE, AFTER = "#D55E00", "#0072B2"
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


def reaching(*values: np.ndarray | Sequence[float] | float) -> Scale:
    """Scale that holds all these values, with a little room."""
    return around(np.concatenate([np.ravel(np.asarray(numbers, dtype=float)) for numbers in values]))


def draw_rows(titles: Sequence[str], values: np.ndarray, label: str, origin: float) -> str:
    """Draw values with limits and p (n, 4), a row per entry, against an origin."""
    names, below = [short(title) for title in titles], BELOW + 2
    sheet = Drawing(NARROW, (0.2 if len(titles) > FEW_ROWS else 0.3) * len(titles) + (10 + below) / POINTS)
    room = min(LETTER * max(map(len, names), default=0) + 12, 0.5 * sheet.width)
    (box,) = side_by_side(sheet, 1, room, 6, below, 16)
    scale = SHARES if label.startswith("share") else reaching(values[:, :3], origin)
    chart = Axes(sheet, box, scale, Scale(-len(titles) + 0.45, 0.55))
    place = -np.arange(len(titles), dtype=float)
    for name, row in zip(names, place, strict=True):
        sheet.text(box.left - 6, float(chart.down(row)) + 0.36 * SIZE, name, anchor="end")
        chart.level(row, "#ebebeb", 0.6)
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
        chart = Axes(sheet, box, reaching(along(places), np.asarray(mark)), y)
        if np.isfinite(origin):
            chart.level(origin, GREY, 0.9, "4 2")
        for value in np.ravel(mark):
            chart.upright(value)
        for name in filter(looks.get, curves):
            (colour, marker), values = looks[name], curves[name]
            across, (low, high) = along(values[:, 0]), _ends(values).T
            if points:  # a cloud of points that let others be seen, and of very many a part
                some = slice(None, None, -(-len(across) // MOST_DOTS) or 1)
                chart.marks(across[some], values[some, 1], colour, 14, marker, fill_opacity=0.5)
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
