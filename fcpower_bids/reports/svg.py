"""Shapes, text and images as SVG text, a fiftieth of the time of a plotting library."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

COLOURS = Path(__file__).parents[1] / "data" / "report" / "colours.json"
"""The colours of each map as ``rrggbb``, 256 or all it has: those of matplotlib, which takes half a second to load."""
STEPS = 16
"""Colours of an image: the eye distinguishes no more in noise, and a page with many images stays small."""


@lru_cache(maxsize=8)
def colour_table(name: str) -> list[str]:
    """Return the colours of a map as ``rrggbb``."""
    joined = json.loads(COLOURS.read_text(encoding="ascii"))[name]
    return [joined[start : start + 6] for start in range(0, len(joined), 6)]


def colours(name: str, steps: int = 256) -> np.ndarray:
    """Return so many colours of a map from its beginning to its end, uint8 of shape (steps, 3)."""
    whole = np.frombuffer(bytes.fromhex("".join(colour_table(name))), dtype=np.uint8).reshape(-1, 3)
    return whole[np.rint(np.linspace(0, len(whole) - 1, steps)).astype(int)]


def step_of(values: np.ndarray, low: float, high: float, steps: int = STEPS) -> np.ndarray:
    """Return which of so many equal steps between low and high each value lies in; what is not finite, in one more."""
    with np.errstate(invalid="ignore"):
        step = np.clip((np.nan_to_num(values) - low) * (steps / ((high - low) or 1.0)), 0, steps - 1)
    return np.where(np.isfinite(values), step, steps).astype(np.uint8)


def encode_png(pixels: np.ndarray, palette: np.ndarray | None = None) -> bytes:
    """Return a PNG of places in a palette (rows, columns), or of colours (rows, columns, 3), both uint8."""
    rows, columns = pixels.shape[:2]
    few = palette is not None and len(palette) <= 16
    depth, kind = (4 if few else 8), (2 if palette is None else 3)
    lines = pixels.reshape(rows, -1)
    if few:
        pairs = np.zeros((rows, columns + columns % 2), dtype=np.uint8)
        pairs[:, :columns] = lines
        lines = pairs[:, ::2] << 4 | pairs[:, 1::2]
    filtered = np.concatenate([np.zeros((rows, 1), dtype=np.uint8), lines], axis=1)  # 0: each line as it is
    chunks = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, depth, kind, 0, 0, 0))]
    if palette is not None:
        chunks.append(_chunk(b"PLTE", palette[:, :3].astype(np.uint8).tobytes()))
        if palette.shape[1] == 4:
            chunks.append(_chunk(b"tRNS", palette[:, 3].astype(np.uint8).tobytes()))
    return b"".join([*chunks, _chunk(b"IDAT", zlib.compress(filtered.tobytes(), 9)), _chunk(b"IEND", b"")])


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


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
    few = -(-len(x) // (MOST_POINTS // 2))
    kept: set[int] = set()
    for start in range(0, len(x), few):
        part = np.where(np.isfinite(y[start : start + few]), y[start : start + few], 0.0)
        kept |= {start + int(part.argmin()), start + int(part.argmax())}
    kept |= set(np.flatnonzero(~np.isfinite(y)).tolist())
    places = np.array(sorted(kept))
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
    """A rectangle of a drawing with a scale along each side."""

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
