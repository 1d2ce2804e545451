"""Drawings of a cohort as SVG text: rows with intervals, curves, scaled eigenvectors and brains.

Arrays in; nothing is read or written. The names of entries are keys, in the order in which they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from fcpower_bids.reports.kit.charts import (
    GREY,
    Chart,
    height_of_key,
    jitter,
    key_below,
    lay_out,
    reaching,
    rows_with_names,
    short,
    style,
    with_interval,
)
from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.svg import POINTS, Box, Drawing, Scale, colour_table, colours, encode_png

WIDE, NARROW = 9.6, 4.8
"""Inches of several panels side by side, and of a lone one."""
LEFT, BELOW = 46.0, 32.0
"""Points for the name of an axis with its ticks."""
MOST_TICKS = 8
MOST_MARKED = 30
"""A curve of more points is a line without marks."""
MANY_MODES = 60
"""More eigenvectors are drawn as thinner arrows."""
Curves = Mapping[str, np.ndarray]
"""By name: columns x and y, or x, y and the lower and upper end of a band."""
Place = tuple[float, float, float]
"""Where a parcel is, in mm of MNI space."""
VIEWS = (((1, 2), -1), ((0, 1), 0), ((1, 2), 1))
"""Two axes of space and the hemisphere (-1 left, 1 right, 0 both), from the left, from above and from the right."""
SCALE, GAP = 0.75, 12.0
"""Points per mm, and between two views."""
MAP = "RdBu_r"


# Rows with names


def draw_rows(
    titles: Sequence[str], columns: Curves, labels: Sequence[str], origin: float = 0.0, dots: Curves | None = None
) -> str:
    """Draw values with limits and p (n, 4), a row per entry, a panel per target; ``dots`` (m,) as a last row.

    Without an origin, NaN, they are no differences.
    """
    rows = list(titles) if dots is None else [*titles, "random filters"]
    clouds = {target: dots[target][np.isfinite(dots[target])] if dots else np.zeros(0) for target in columns}
    scales = {target: reaching(values[:, :3], clouds[target], origin) for target, values in columns.items()}
    sheet, charts = rows_with_names(rows, scales, WIDE, 0.2)
    place = -np.arange(len(titles), dtype=float)
    for chart, label, (target, values) in zip(charts, labels, columns.items(), strict=True):
        for number in range(len(rows)):
            chart.level(-number, "#ebebeb", 0.6)
        chart.upright(origin, GREY, 0.9, "4 2")
        middle, low, high, p = values.T
        clear = np.nan_to_num(p, nan=1.0) < 0.05
        for wanted, marker, colour, face in (
            (clear & (middle > 0), "^", AFTER, AFTER),
            (clear & (middle < 0), "v", BEFORE, BEFORE),
            (np.isfinite(middle) & ~(clear & (middle != 0)), "o", "#595959", "#fff"),
        ):
            for row in np.flatnonzero(wanted):
                chart.plot((low[row], high[row]), (place[row], place[row]), colour, 1.3)
            chart.marks(middle[wanted], place[wanted], face, 26, marker, colour)
        for number in np.flatnonzero(np.isfinite(middle)).tolist():
            said = f", p = {p[number]:.2g}" if np.isfinite(p[number]) else ""
            interval = with_interval(middle[number], low[number], high[number], "" if np.isnan(origin) else "+")
            chart.answer(-number, f"{titles[number]}, {target}: {interval}{said}")
        chart.dots(clouds[target], -len(titles) + jitter(len(clouds[target]), 0.3), GREY, 6, opacity=0.6)
        chart.frame_below(label, most=5)
    return sheet.svg()


# Curves


def draw_curves(
    panels: Sequence[tuple[str, str, str, Curves]],
    origin: float = np.nan,
    mark: float = np.nan,
    doubling: bool = False,
    points: bool = False,
) -> str:
    """Draw curves, each panel with its title, vertical and horizontal label; names have the same look everywhere.

    `origin`, `mark`: a level and an upright line. `doubling`: the horizontal axis is logarithmic. `points`: no lines.
    """
    sheet = Drawing(WIDE if len(panels) > 1 else NARROW, 2.9)
    names = dict.fromkeys(name for *_, curves in panels for name, values in curves.items() if len(values))
    looks = {name: style(number) for number, name in enumerate(names)}
    key = {short(name): looks[name] for name in names} if any(len(curves) > 1 for *_, curves in panels) else {}
    bottom = BELOW + (height_of_key(list(key), sheet.width) if key else 0)
    same = len({vertical for _, vertical, *_ in panels}) == 1
    boxes = lay_out(sheet, 1, len(panels), (LEFT, 10, 20, bottom), (20 if same else LEFT + 8, 0))
    everything = [values for *_, curves in panels for values in curves.values()]
    for number, (box, (title, vertical, horizontal, curves)) in enumerate(zip(boxes, panels, strict=True)):
        places = np.unique(np.concatenate([values[:, 0] for values in curves.values()] or [np.zeros(0)]))
        x = reaching(places, mark)
        if doubling:
            room = max((places[-1] / places[0]) ** 0.05, 1.05)
            x = Scale(places[0] / room, places[-1] * room, decades=True)
        heights = [_ends(values).ravel() for values in (everything if same else curves.values())]
        y = Scale(0, 1.03) if vertical.startswith("share") else reaching(*heights, origin)
        chart = Chart(sheet, box, x, y)
        if np.isfinite(origin):
            chart.level(origin, GREY, 0.9, "4 2")
        chart.upright(mark, GREY, 0.9, "4 2")
        for name in filter(looks.get, curves):
            (colour, marker), values = looks[name], curves[name]
            low, high = _ends(values).T
            if values.shape[1] > 2:
                chart.band(values[:, 0], low, high, colour, 0.15)
            if points:
                chart.dots(values[:, 0], values[:, 1], colour, 14, marker, opacity=0.5)
            elif len(values) > MOST_MARKED:
                chart.plot(values[:, 0], values[:, 1], colour, 1.4)
            else:
                chart.marked_line(values[:, 0], values[:, 1], colour, marker)
        chart.title(title)
        if doubling:
            words = {place: f"{place:.3g}" if place < 1000 else f"{place:.0f}" for place in spaced(places)}
            chart.name_below(horizontal, words)
        else:
            chart.frame_below(horizontal, most=6)
        if number and same:
            sheet.line((box.left, box.left), (box.top, box.bottom), width=0.7)
        else:
            chart.frame_left(vertical, most=6)
    if key:
        key_below(sheet, key)
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
    """Choose ticks from positive numbers so that their labels do not touch on a logarithmic axis; the ends stay."""
    places = np.sort(places)
    room = np.log(places[-1] / places[0]) / MOST_TICKS
    chosen = [float(places[0])]
    for place in places[1:-1]:
        if min(np.log(place / chosen[-1]), np.log(places[-1] / place)) >= room:
            chosen.append(float(place))
    return chosen if len(places) == 1 else [*chosen, float(places[-1])]


# Eigenvectors and brains


def draw_sphere(modes: Mapping[str, tuple[np.ndarray, float]]) -> str:
    """Draw scaled eigenvectors as arrows from the centre, and the sphere that says how long one of them is."""
    limit = max(float(np.abs(places).max() / radius) for places, radius in modes.values()) * 1.05
    sheet = Drawing(NARROW, 2.7)
    boxes = lay_out(sheet, 1, len(modes), (6, 6, 20, 6), (6, 0))
    for box, (title, (places, radius)), colour in zip(boxes, modes.items(), (BEFORE, AFTER), strict=False):
        side = min(box.width, box.height)
        square = Box(box.left + (box.width - side) / 2, box.top, side, side)
        chart = Chart(sheet, square, Scale(-limit, limit), Scale(-limit, limit))
        ends = places / radius
        middle = (float(chart.across(0)), float(chart.down(0)))
        size = float(chart.across(1)) - middle[0]
        sheet.add("circle", cx=middle[0], cy=middle[1], r=size, fill="#e0e0e0", stroke=GREY, stroke_width=0.8)
        gaps = np.full(len(ends), np.nan)
        x, y = (np.column_stack([np.zeros(len(ends)), ends[:, axis], gaps]).ravel() for axis in (0, 1))
        chart.plot(x, y, colour, 0.9 if len(ends) < MANY_MODES else 0.5, stroke_opacity=0.7)
        chart.title(title)
    return sheet.svg()


@lru_cache(maxsize=1)
def outlines() -> tuple[tuple[bytes, tuple[float, float], tuple[float, float]], ...]:
    """Return a brain from the left, above and right as PNG, with the lowest and highest mm of its two axes."""
    from nilearn.datasets import load_mni152_brain_mask  # slow to load, and few pages draw brains

    mask = load_mni152_brain_mask(resolution=2)
    inside, affine = np.asarray(mask.dataobj) > 0, mask.affine
    palette = np.array([[255, 255, 255], [233, 236, 239], [120, 128, 136]], dtype=np.uint8)
    views = []
    for axes, _ in VIEWS:
        shape = inside.any(axis=({0, 1, 2} - set(axes)).pop())
        inner = shape.copy()
        for axis in (0, 1):
            inner &= np.roll(shape, 1, axis) & np.roll(shape, -1, axis)
        pixels = np.where(inner, 1, np.where(shape, 2, 0)).astype(np.uint8).T[::-1]
        low = [affine[axis, 3] - 0.5 * affine[axis, axis] for axis in axes]
        high = [start + affine[axis, axis] * size for start, axis, size in zip(low, axes, shape.shape, strict=True)]
        views.append((encode_png(pixels, palette), (low[0], high[0]), (low[1], high[1])))
    return tuple(views)


def draw_brain(places: Sequence[Place], ends: Sequence[tuple[int, int]], values: Sequence[float], label: str) -> str:
    """Draw a number for each connection of two places as SVG text; the largest lie on top."""
    at, shown = np.asarray(places, dtype=float), np.asarray(values, dtype=float)
    limit = float(np.abs(shown).max()) or 1.0
    table, steps = colour_table(MAP), np.round(127.5 * (1 + shown / limit)).astype(int)
    views = outlines()
    widths = [SCALE * (across[1] - across[0]) for _, across, _ in views]
    height = max(SCALE * (down[1] - down[0]) for *_, down in views)
    sheet = Drawing((sum(widths) + GAP * len(views) + 60) / POINTS, height / POINTS)
    left = 0.0
    for (png, across, down), (axes, side), width in zip(views, VIEWS, widths, strict=True):
        sheet.image(Box(left, 0, width, SCALE * (down[1] - down[0])), png, 100)
        x, y = left + SCALE * (at[:, axes[0]] - across[0]), SCALE * (down[1] - at[:, axes[1]])
        seen = side * at[:, 0] >= 0
        for number in np.argsort(np.abs(shown), kind="stable").tolist():
            colour = f"#{table[steps[number]]}"
            a, b = ends[number]
            if seen[a] and seen[b]:
                sheet.line((x[a], x[b]), (y[a], y[b]), colour, 1.4)
                for end in (a, b):
                    sheet.add("circle", cx=x[end], cy=y[end], r=1.7, fill="#000")
        left += width + GAP
    bar = Box(left + 6, 0.15 * sheet.height, 9, 0.7 * sheet.height)
    sheet.image(bar, encode_png(colours(MAP)[::-1, None]), 256)
    for share, value in ((0.0, limit), (0.5, 0.0), (1.0, -limit)):
        sheet.text(bar.right + 3, bar.top + share * bar.height + 3, f"{value:.2g}", anchor="start")
    sheet.text(bar.left, bar.top - 8, label, anchor="start")
    return sheet.svg()
