"""Drawings of a cohort as SVG text: rows with intervals, curves, scatters, cells and histograms.

Arrays in; nothing is read or written. The names of entries are keys, in the order in which they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import special

from fcpower_bids.reports.kit.charts import (
    GREY,
    ROW_WIDTH,
    Chart,
    height_of_key,
    jitter,
    key_below,
    lay_out,
    reaching,
    rows_with_names,
    short,
    style,
    width_of,
    with_interval,
)
from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.svg import Box, Drawing, Scale, around, colour_table

WIDE, NARROW = 9.6, 4.8
"""Inches of several panels side by side, and of a lone one."""
LEFT, BELOW = 46.0, 32.0
"""Points for the name of an axis with its ticks."""
MANY_EDGES = 3000
"""More edges are drawn smaller and paler."""
FEW_COLUMNS = 6
"""With more columns a cell has room for two decimals, not three."""
MOST_TICKS = 8
MOST_MARKED = 30
"""A curve of more points is a line without marks."""
MANY_MODES = 60
"""More eigenvectors are drawn as thinner arrows."""
Curves = Mapping[str, np.ndarray]
"""By name: columns x and y, or x, y and the lower and upper end of a band."""


# Rows with names


def draw_folds(scores: Curves, pooled: Mapping[str, float], label: str, chance: float) -> str:
    """Draw the score (n,) of every fold by representation, with quartiles, mean (diamond) and pooled score (line)."""
    scale = reaching(*scores.values(), [pooled.get(title, np.nan) for title in scores], chance)
    sheet, (chart,) = rows_with_names(list(scores), {"": scale}, ROW_WIDTH, 0.62)
    chart.upright(chance, GREY, 0.9, "4 2")
    for number, (title, values) in enumerate(scores.items()):
        known = values[np.isfinite(values)]
        colour, _ = style(number)
        chart.dots(known, -number + jitter(known.size, 0.24), colour, 8, opacity=0.4)
        if known.size:
            low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
            chart.plot([low, high], [-number] * 2, "#000", 1.2)
            chart.plot([middle] * 2, [-number - 0.1, -number + 0.1], "#000", 1.2)
            chart.marks(known.mean(keepdims=True), np.array([-number]), "#fff", 26, "D", "#000")
        if np.isfinite(pooled.get(title, np.nan)):
            chart.plot([pooled[title]] * 2, [-number - 0.36, -number + 0.36], colour, 1.6, "1.6 2.2")
    chart.frame_below(label, most=6)
    return sheet.svg()


def draw_differences(
    titles: Sequence[str], columns: Curves, labels: Sequence[str], significant: float, dots: Curves | None = None
) -> str:
    """Draw differences with limits and p (n, 4), a row per entry, a panel per target; ``dots`` (m,) as a last row."""
    rows = list(titles) if dots is None else [*titles, "random filters"]
    clouds = {target: dots[target][np.isfinite(dots[target])] if dots else np.zeros(0) for target in columns}
    scales = {target: reaching(values[:, :3], clouds[target], 0.0) for target, values in columns.items()}
    sheet, charts = rows_with_names(rows, scales, WIDE, 0.2)
    place = -np.arange(len(titles), dtype=float)
    for chart, label, (target, values) in zip(charts, labels, columns.items(), strict=True):
        for number in range(len(rows)):
            chart.level(-number, "#ebebeb", 0.6)
        chart.upright(0.0, GREY, 0.9, "4 2")
        middle, low, high, p = values.T
        clear = np.nan_to_num(p, nan=1.0) < significant
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
            interval = with_interval(middle[number], low[number], high[number], "+")
            chart.answer(-number, f"{titles[number]}, {target}: {interval}{said}")
        chart.dots(clouds[target], -len(titles) + jitter(len(clouds[target]), 0.3), GREY, 6, opacity=0.6)
        chart.frame_below(label, most=5)
    return sheet.svg()


# Histograms


def draw_edge_motion(edges: Curves, n_people: int) -> str:
    """Draw the QC-FC correlations of the edges by representation, columns r and, where known, distance in mm."""
    has_distance = next(iter(edges.values())).shape[1] > 1
    sheet = Drawing(WIDE if has_distance or len(edges) > 1 else NARROW, 2.6)
    panels = len(edges) * (1 + has_distance)
    boxes = lay_out(sheet, 1, panels, (12, 10, 20, BELOW), (52 if has_distance else 22, 0))
    grid = np.linspace(-1, 1, 401)
    freedom = max(n_people - 2, 1)
    chance = np.clip(1 - grid**2, 1e-9, None) ** (freedom / 2 - 1) / special.beta(freedom / 2, 0.5)
    for number, (title, values) in enumerate(edges.items()):
        colour, _ = style(number)
        r = values[np.isfinite(values[:, 0]), 0]
        limit = min(1.0, 1.15 * max(float(np.abs(r).max(initial=0.1)), 2.5 / np.sqrt(n_people)))
        density, bins = np.histogram(r, bins=np.linspace(-1, 1, 81), density=len(r) > 0)
        top = 1.08 * max(float(density.max(initial=0)), float(chance.max()), 1e-9)
        chart = Chart(sheet, boxes[number * (1 + has_distance)], Scale(-limit, limit), Scale(0, top))
        chart.bars(bins, density, colour, 0.65)
        chart.plot(grid, chance, GREY, 1.4)
        chart.upright(0, "#000", 0.7)
        chart.title(title)
        chart.frame_below("correlation with mean FD", most=5)
        if not has_distance:
            continue
        known = values[np.isfinite(values).all(axis=1)]
        size, strength = (2, 0.15) if len(known) > MANY_EDGES else (5, 0.5)
        height, distance = np.abs(known[:, 0]), known[:, 1]
        top = 1.05 * float(height.max(initial=0.1))
        chart = Chart(sheet, boxes[number * 2 + 1], around(distance), Scale(0, top))
        chart.dots(distance, height, colour, size, opacity=strength)
        cuts = np.unique(np.quantile(distance, np.linspace(0, 1, 11)))
        bins = np.clip(np.searchsorted(cuts, distance, side="right") - 1, 0, len(cuts) - 2)
        middles = [(cuts[i] + cuts[i + 1]) / 2 for i in np.unique(bins)]
        chart.plot(middles, [float(np.median(height[bins == i])) for i in np.unique(bins)], "#000", 1.2)
        chart.frame_below("distance (mm)", most=5)
        chart.frame_left("|r| with mean FD", most=5)
    return sheet.svg()


# Curves


def draw_curves(
    panels: Sequence[tuple[str, str, str, Curves]], origin: float = np.nan, mark: float = np.nan, doubling: bool = False
) -> str:
    """Draw curves, each panel with its title, vertical and horizontal label; names have the same look everywhere.

    `origin`, `mark`: a level and an upright line. `doubling`: the horizontal axis is logarithmic.
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
            if len(values) > MOST_MARKED:
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


# Scatters and cells


def draw_scatter(pairs: Curves, label: str, binary: bool) -> str:
    """Draw out-of-fold predictions against what was observed, columns observed and predicted, by representation."""
    columns, lines = min(len(pairs), 2), -(-len(pairs) // 2)
    sheet = Drawing(4.7, 0.2 + 2.4 * lines)
    boxes = lay_out(sheet, lines, columns, (LEFT, 8, 18, BELOW), (40, 38))
    for number, (box, (title, values)) in enumerate(zip(boxes, pairs.items(), strict=False)):
        observed, predicted = values.T
        colour, marker = style(number)
        place = observed + jitter(len(observed), 0.18) if binary else observed
        chart = Chart(sheet, box, reaching(place), reaching(predicted))
        chart.dots(place, predicted, colour, 14, marker, opacity=0.5)
        if len(observed) >= 4 and np.ptp(observed) > 0:
            ends = np.array([observed.min(), observed.max()])
            chart.plot(ends, np.polyval(np.polyfit(observed, predicted, 1), ends), "#000", 1.1)
        chart.title(short(title, round(box.width / 5)))
        chart.frame_left("" if number % columns else "predicted, out of fold", most=5, far=38)
        if binary:
            chart.name_below("", {0: "0", 1: "1"})
        else:
            chart.frame_below("", most=4)
    # once, since side by side two would overlap
    sheet.text((boxes[0].left + boxes[columns - 1].right) / 2, sheet.height - 4, label)
    return sheet.svg()


def centred_square(box: Box) -> Box:
    """Return the largest square in the middle of a rectangle, from its upper side."""
    side = min(box.width, box.height)
    return box._replace(left=box.left + (box.width - side) / 2, width=side, height=side)


def draw_sphere(modes: Mapping[str, tuple[np.ndarray, float]]) -> str:
    """Draw scaled eigenvectors as arrows from the centre, and the sphere that says how long one of them is."""
    limit = max(float(np.abs(places).max() / radius) for places, radius in modes.values()) * 1.05
    sheet = Drawing(NARROW, 2.7)
    boxes = lay_out(sheet, 1, len(modes), (6, 6, 20, 6), (6, 0))
    for box, (title, (places, radius)), colour in zip(boxes, modes.items(), (BEFORE, AFTER), strict=False):
        chart = Chart(sheet, centred_square(box), Scale(-limit, limit), Scale(-limit, limit))
        ends = places / radius
        middle = (float(chart.across(0)), float(chart.down(0)))
        size = float(chart.across(1)) - middle[0]
        sheet.add("circle", cx=middle[0], cy=middle[1], r=size, fill="#e0e0e0", stroke=GREY, stroke_width=0.8)
        gaps = np.full(len(ends), np.nan)
        x, y = (np.column_stack([np.zeros(len(ends)), ends[:, axis], gaps]).ravel() for axis in (0, 1))
        chart.plot(x, y, colour, 0.9 if len(ends) < MANY_MODES else 0.5, stroke_opacity=0.7)
        chart.title(title)
    return sheet.svg()


def draw_gains(
    matrices: Mapping[str, tuple[np.ndarray, np.ndarray]], rows: Sequence[str], columns: Sequence[str]
) -> str:
    """Draw gains (R, C) as cells with their numbers, and whether each is marked (R, C); blue is a gain, red a loss."""
    digits = 3 if len(columns) * len(matrices) <= FEW_COLUMNS else 2
    limit = max(float(np.nanmax(np.abs(gains), initial=1e-3)) for gains, _ in matrices.values())
    table = colour_table("RdBu_r")[::-1]
    sheet = Drawing(WIDE if len(matrices) > 1 else NARROW, 1.0 + 0.3 * len(rows))
    boxes = lay_out(sheet, 1, len(matrices), (width_of(rows) + 26, 10, 20, BELOW), (16, 0))
    for box, (title, (gains, marked)) in zip(boxes, matrices.items(), strict=True):
        wide, tall = box.width / len(columns), box.height / len(rows)
        for (i, j), gain in np.ndenumerate(gains):
            cell = Box(box.left + j * wide, box.top + i * tall, wide, tall)
            if not np.isfinite(gain):
                sheet.rectangle(cell, "#e6e6e6")
                continue
            sheet.rectangle(cell, "#" + table[round((len(table) - 1) * (1 + gain / limit) / 2)])
            words = f"{round(float(gain), digits) + 0.0:+.{digits}f}" + ("*" if marked[i, j] else "")
            ink = "#fff" if abs(gain) > 0.7 * limit else "#000"
            sheet.text(cell.left + wide / 2, cell.top + tall / 2 + 2.7, words, 7.5, fill=ink)
        chart = Chart(sheet, box, Scale(-0.5, len(columns) - 0.5), Scale(0, 1))
        for j, name in enumerate(columns):
            sheet.text(float(chart.across(j)), box.bottom + 12, name)
        sheet.text((box.left + box.right) / 2, box.bottom + 25, "people")
        chart.title(short(title, 60))
    first = boxes[0]
    for i, name in enumerate(rows):
        sheet.text(first.left - 6, first.top + (i + 0.5) * first.height / len(rows) + 3, name, anchor="end")
    sheet.text(10, (first.top + first.bottom) / 2, "minutes", turned=True)
    return sheet.svg()
