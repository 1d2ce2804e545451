"""Drawings that compare many entries: differences with intervals, curves, gains in cells, pairs; arrays in, SVG out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fcpower_bids.reports.kit.charts import (
    GREY,
    Chart,
    height_of_key,
    jitter,
    key_below,
    lay_out,
    reaching,
    row_scale,
    short,
    style,
    width_of,
    with_interval,
)
from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.images import colour_table
from fcpower_bids.reports.kit.svg import Box, Drawing, Scale

FEW_COLUMNS = 6
"""With more columns a cell of a heat map has room for two decimals, not three."""
MOST_TICKS = 8
BELOW = 32.0
"""Points for the name of an axis with its ticks."""


def draw_differences(
    titles: Sequence[str],
    columns: Mapping[str, np.ndarray],
    labels: Sequence[str],
    significant: float,
    dots: Mapping[str, np.ndarray] | None = None,
) -> str:
    """Draw differences with intervals, one line per entry and one column per target. Columns (n, 4), dots (m,)."""
    rows = [*titles, "random filters"] if dots is not None else list(titles)
    sheet = Drawing(9.6, 0.8 + 0.2 * len(rows))
    boxes = lay_out(sheet, 1, len(columns), (_room_for(rows), 10, 20, BELOW), (16, 0))
    for box, label, (target, values) in zip(boxes, labels, columns.items(), strict=True):
        cloud = np.zeros(0) if dots is None else dots[target][np.isfinite(dots[target])]
        chart = Chart(sheet, box, reaching(values[:, :3], cloud, 0.0), row_scale(len(rows)))
        for number in range(len(rows)):
            chart.level(-number, "#ebebeb", 0.6)
        chart.upright(0.0, GREY, 0.9, "4 2")
        _draw_marks(chart, values, significant)
        for number, (title, (middle, low, high, p)) in enumerate(zip(titles, values.tolist(), strict=True)):
            if np.isfinite(middle):
                said = f", p = {p:.2g}" if np.isfinite(p) else ""
                chart.answer(-number, f"{title}, {target}: {with_interval(middle, low, high, '+')}{said}")
        chart.dots(cloud, -len(titles) + jitter(len(cloud), 0.3), GREY, 6, opacity=0.6)
        chart.title(short(target, 40))
        chart.frame_below(label, most=5)
        if box is boxes[0]:
            chart.name_rows(rows)
    return sheet.svg()


def _room_for(titles: Sequence[str]) -> float:
    return width_of([short(title) for title in titles]) + 12


def _draw_marks(chart: Chart, values: np.ndarray, significant: float) -> None:
    place = -np.arange(len(values), dtype=float)
    middle, low, high, p = values.T
    clear = np.nan_to_num(p, nan=1.0) < significant
    for wanted, marker, colour, filled in (
        (clear & (middle > 0), "^", AFTER, True),
        (clear & (middle < 0), "v", BEFORE, True),
        (np.isfinite(middle) & ~(clear & (middle != 0)), "o", "#595959", False),
    ):
        for row in np.flatnonzero(wanted):
            chart.plot((low[row], high[row]), (place[row], place[row]), colour, 1.3)
        face = colour if filled else "#fff"
        chart.marks(middle[wanted], place[wanted], face, 26, marker, colour)


def draw_curves(panels: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], label: str, origin: float = np.nan) -> str:
    """Draw curves over an axis that doubles: per panel its title, horizontal label and columns x, mean, SD by name."""
    sheet = Drawing(9.6 if len(panels) > 1 else 4.8, 2.9)
    key = {short(name): style(number) for _, _, curves in panels for number, name in enumerate(curves)}
    bottom = BELOW + height_of_key(list(key), sheet.width)
    boxes = lay_out(sheet, 1, len(panels), (46, 10, 20, bottom), (20, 0))
    every = np.concatenate([values for *_, curves in panels for values in curves.values()])
    spread = np.nan_to_num(every[:, 2])
    y = reaching(every[:, 1] - spread, every[:, 1] + spread, origin)
    for box, (title, horizontal, curves) in zip(boxes, panels, strict=True):
        places = np.unique(np.concatenate([values[:, 0] for values in curves.values()]))
        room = max((places[-1] / places[0]) ** 0.05, 1.05)
        chart = Chart(sheet, box, Scale(places[0] / room, places[-1] * room, decades=True), y)
        if np.isfinite(origin):
            chart.level(origin, GREY, 0.9, "4 2")
        for number, values in enumerate(curves.values()):
            colour, marker = style(number)
            x, mean, deviation = values.T
            chart.band(x, mean - deviation, mean + deviation, colour, 0.13)
            chart.marked_line(x, mean, colour, marker)
        chart.title(title)
        chart.name_below(horizontal, {one: f"{one:.3g}" if one < 1000 else f"{one:.0f}" for one in spaced(places)})
        if box is boxes[0]:
            chart.frame_left(label, most=6)
        else:
            sheet.line((box.left, box.left), (box.top, box.bottom), width=0.7)
    key_below(sheet, key)
    return sheet.svg()


def spaced(places: np.ndarray) -> list[float]:
    """Choose ticks from positive numbers so that their labels do not touch on a logarithmic axis; the ends stay."""
    places = np.sort(places)
    room = np.log(places[-1] / places[0]) / MOST_TICKS
    chosen = [float(places[0])]
    for place in places[1:-1]:
        if min(np.log(place / chosen[-1]), np.log(places[-1] / place)) >= room:
            chosen.append(float(place))
    return chosen if len(places) == 1 else [*chosen, float(places[-1])]


def draw_gains(
    matrices: Mapping[str, tuple[np.ndarray, np.ndarray]], rows: Sequence[str], columns: Sequence[str]
) -> str:
    """Draw gains as cells with their numbers; blue is a gain, red a loss. Shapes and units: matrices (R, C)."""
    digits = 3 if len(columns) * len(matrices) <= FEW_COLUMNS else 2
    limit = max(float(np.nanmax(np.abs(gains), initial=1e-3)) for gains, _ in matrices.values())
    table = colour_table("RdBu_r")[::-1]
    sheet = Drawing(9.6 if len(matrices) > 1 else 4.8, 1.0 + 0.3 * len(rows))
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


def draw_pairs(titles: Sequence[str], columns: Mapping[str, Mapping[str, np.ndarray]], labels: Sequence[str]) -> str:
    """Draw scores of the same entries under several representations, joined by lines. Columns (n,)."""
    sheet = Drawing(9.6 if len(columns) > 1 else 4.8, 1.1 + 0.26 * len(titles))
    key = {short(name): style(number) for scores in columns.values() for number, name in enumerate(scores)}
    bottom = BELOW + height_of_key(list(key), sheet.width)
    boxes = lay_out(sheet, 1, len(columns), (_room_for(titles), 10, 20, bottom), (16, 0))
    place = -np.arange(len(titles), dtype=float)
    for box, label, (target, scores) in zip(boxes, labels, columns.items(), strict=True):
        every = np.stack(list(scores.values()))
        chart = Chart(sheet, box, reaching(every), row_scale(len(titles)))
        for row in np.flatnonzero(np.isfinite(every).any(axis=0)):
            ends = (np.nanmin(every[:, row]), np.nanmax(every[:, row]))
            chart.plot(ends, (place[row], place[row]), GREY, 1.4)
        for number, values in enumerate(scores.values()):
            colour, marker = style(number)
            chart.marks(values, place, colour, 32, marker)
        for number, title in enumerate(titles):
            words = [f"{name} {values[number]:.3f}" for name, values in scores.items() if np.isfinite(values[number])]
            chart.answer(-number, f"{title}, {target}: {', '.join(words)}")
        chart.title(short(target, 40))
        chart.frame_below(label, most=5)
        if box is boxes[0]:
            chart.name_rows(titles)
    key_below(sheet, key)
    return sheet.svg()
