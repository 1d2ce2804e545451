"""Drawings of a cohort as SVG text: rows with intervals, scaled eigenvectors and brains.

Arrays in; nothing is read or written. The names of entries are keys, in the order in which they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from fcpower_bids.reports.kit.charts import (
    GREY,
    NARROW,
    WIDE,
    Chart,
    Curves,
    jitter,
    lay_out,
    reaching,
    rows_with_names,
)
from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.svg import POINTS, Box, Drawing, Scale, colour_table, colours, encode_png

MANY_MODES = 60
"""More eigenvectors are drawn as thinner arrows."""
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
        chart.dots(clouds[target], -len(titles) + jitter(len(clouds[target]), 0.3), GREY, 6, opacity=0.6)
        chart.frame_below(label, most=5)
    return sheet.svg()


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
