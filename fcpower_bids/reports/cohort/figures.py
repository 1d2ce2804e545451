"""Drawings of a cohort as SVG text; arrays in, nothing read or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from fcpower_bids.reports.kit.charts import (
    GREY,
    PALE,
    Chart,
    jitter,
    lay_out,
    reaching,
    row_scale,
    short,
    style,
    width_of,
)
from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.svg import SIZE, Box, Drawing, Scale, around

MANY_EDGES = 3000
"""More edges are drawn smaller and paler."""
LEFT, BELOW = 46.0, 32.0
"""Points for the name of an axis with its ticks."""


def draw_quality(values: Mapping[str, np.ndarray], marks: Mapping[str, np.ndarray]) -> str:
    """Draw one strip of recordings per measure; ``marks`` says which stand out."""
    columns = 4
    lines = -(-len(values) // columns)
    sheet = Drawing(9.6, 1.3 * lines)
    boxes = lay_out(sheet, lines, columns, (10, 10, 6, BELOW), (18, 38))
    for box, (title, numbers) in zip(boxes, values.items(), strict=False):
        chart = Chart(sheet, box, around(numbers), Scale(-0.5, 0.5))
        known, spread = np.isfinite(numbers), jitter(len(numbers), 0.3)
        plain, marked = known & ~marks[title], known & marks[title]
        chart.dots(numbers[plain], spread[plain], AFTER, 7, opacity=0.6)
        chart.dots(numbers[marked], spread[marked], BEFORE, 22, "^", opacity=0.6)
        if known.any():
            chart.upright(float(np.median(numbers[known])), "#000", 0.8)
        chart.frame_below(title, most=5)
    return sheet.svg()


def draw_edge_motion(edges: Mapping[str, np.ndarray], n_people: int) -> str:
    """Draw the QC-FC correlations of the edges by representation, columns r and, where known, distance in mm."""
    has_distance = next(iter(edges.values())).shape[1] > 1
    wide = has_distance or len(edges) > 1
    sheet = Drawing(9.6 if wide else 4.8, 2.6)
    count = len(edges) * (1 + has_distance)
    boxes = lay_out(sheet, 1, count, (12, 10, 20, BELOW), (52 if has_distance else 22, 0))
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
        if has_distance:
            _draw_distance(sheet, boxes[number * 2 + 1], values, colour)
    return sheet.svg()


def _draw_distance(sheet: Drawing, box: Box, values: np.ndarray, colour: str) -> None:
    known = values[np.isfinite(values).all(axis=1)]
    size, strength = (2, 0.15) if len(known) > MANY_EDGES else (5, 0.5)
    height = np.abs(known[:, 0])
    chart = Chart(sheet, box, around(known[:, 1]), Scale(0, 1.05 * float(height.max(initial=0.1))))
    chart.dots(known[:, 1], height, colour, size, opacity=strength)
    cuts = np.unique(np.quantile(known[:, 1], np.linspace(0, 1, 11)))
    bins = np.clip(np.searchsorted(cuts, known[:, 1], side="right") - 1, 0, len(cuts) - 2)
    middles = [(cuts[i] + cuts[i + 1]) / 2 for i in np.unique(bins)]
    chart.plot(middles, [float(np.median(height[bins == i])) for i in np.unique(bins)], "#000", 1.2)
    chart.frame_below("distance (mm)", most=5)
    chart.frame_left("|r| with mean FD", most=5)


def draw_folds(scores: Mapping[str, np.ndarray], pooled: Mapping[str, float], label: str, chance: float) -> str:
    """Draw the score of every fold by representation, with quartiles, mean (diamond) and pooled score (line)."""
    sheet = Drawing(4.7, 0.95 + 0.62 * len(scores))
    all_pooled = [pooled.get(title, np.nan) for title in scores]
    chart = _rows(sheet, list(scores), reaching(*scores.values(), all_pooled, chance), chance)
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


def _rows(sheet: Drawing, titles: Sequence[str], x: Scale, origin: float) -> Chart:
    """A chart with one named row per title, and a line at the value without meaning."""
    left = min(width_of([short(title) for title in titles]) + 12, 0.5 * sheet.width)
    (box,) = lay_out(sheet, 1, 1, (left, 10, 6, BELOW), (0, 0))
    chart = Chart(sheet, box, x, row_scale(len(titles)))
    chart.upright(origin, GREY, 0.9, "4 2")
    chart.name_rows(titles)
    return chart


def draw_intervals(
    rows: Sequence[tuple[str, float, float, float]],
    label: str,
    origin: float = 0.0,
    dots: Sequence[np.ndarray] = (),
) -> str:
    """Draw estimates with their intervals, one row each: title, estimate, low, high; ``dots`` are what they rest on."""
    sheet = Drawing(4.7, 0.8 + (0.7 if dots else 0.42) * len(rows))
    numbers = np.array([row[1:] for row in rows], dtype=float)
    chart = _rows(sheet, [row[0] for row in rows], reaching(numbers, *dots, origin), origin)
    for number, values in enumerate(dots):
        chart.dots(values, -number + jitter(len(values), 0.28), GREY, 7, opacity=0.35)
    for number, (_, middle, low, high) in enumerate(rows):
        chart.plot([low, high], [-number] * 2, AFTER, 1.6)
        chart.marks(np.array([middle]), np.array([-number]), AFTER, 28, "o")
    chart.frame_below(label, most=6)
    return sheet.svg()


def draw_null(null: Mapping[str, np.ndarray], label: str) -> str:
    """Draw the scores of permuted targets by representation; the first of each is the true one."""
    sheet = Drawing(4.7, 0.7 + 0.75 * len(null))
    names = [short(title, 18) for title in null]
    boxes = lay_out(sheet, len(null), 1, (width_of(names) + 12, 10, 6, BELOW), (0, 8))
    x = reaching(*null.values())
    for number, (box, name, scores) in enumerate(zip(boxes, names, null.values(), strict=True)):
        permuted = scores[1:][np.isfinite(scores[1:])]
        heights, edges = np.histogram(permuted, bins=30) if permuted.size else (np.zeros(1), np.zeros(2))
        chart = Chart(sheet, box, x, Scale(0, 1.05 * max(float(heights.max()), 1.0)))
        chart.bars(edges, heights, PALE)
        chart.upright(float(scores[0]), style(number)[0], 2.2)
        sheet.line((box.left, box.right), (box.bottom, box.bottom), width=0.7)
        sheet.text(box.left - 6, (box.top + box.bottom) / 2 + 3, name, anchor="end")
    chart.frame_below(label, most=6)
    return sheet.svg()


def draw_scatter(pairs: Mapping[str, np.ndarray], label: str, binary: bool) -> str:
    """Draw out-of-fold predictions against what was observed, columns observed and predicted, by representation."""
    columns = min(len(pairs), 2)
    lines = -(-len(pairs) // 2)
    sheet = Drawing(4.7, 0.2 + 2.4 * lines)
    boxes = lay_out(sheet, lines, columns, (LEFT, 8, 18, BELOW), (40, 38))
    for number, (box, (title, values)) in enumerate(zip(boxes, pairs.items(), strict=False)):
        observed, predicted = values.T
        colour, marker = style(number)
        place = observed + jitter(len(observed), 0.18) if binary else observed
        chart = Chart(sheet, box, reaching(place), reaching(predicted))
        chart.dots(place, predicted, colour, 14, marker, opacity=0.5)
        _draw_fit(chart, observed, predicted)
        chart.title(short(title, round(box.width / 5)))
        chart.frame_left("" if number % columns else "predicted, out of fold", most=5, far=38)
        if binary:
            chart.name_below("", {0: "0", 1: "1"})
        else:
            chart.frame_below("", most=4)
    # once, since side by side two would overlap
    sheet.text((boxes[0].left + boxes[columns - 1].right) / 2, sheet.height - 4, label)
    return sheet.svg()


def _draw_fit(chart: Chart, observed: np.ndarray, predicted: np.ndarray) -> None:
    """Least-squares line with the 95 % confidence band of its mean."""
    n = len(observed)
    if n < 4 or np.ptp(observed) == 0:
        return
    slope, intercept = np.polyfit(observed, predicted, 1)
    grid = np.linspace(observed.min(), observed.max(), 60)
    centred = observed - observed.mean()
    error = np.sqrt(((predicted - slope * observed - intercept) ** 2).sum() / (n - 2))
    width = special.stdtrit(n - 2, 0.975) * error * np.sqrt(1 / n + (grid - observed.mean()) ** 2 / (centred @ centred))
    line = slope * grid + intercept
    chart.band(grid, line - width, line + width, "#000", 0.14)
    chart.plot(grid, line, "#000", 1.1)


def draw_exponents(
    curves: Mapping[str, Mapping[str, np.ndarray]], chosen: Mapping[str, np.ndarray], reference: float
) -> str:
    """Draw score against exponent by criterion, and how often each exponent was chosen."""
    sheet = Drawing(9.6, 2.9)
    *boxes, last = lay_out(sheet, 1, len(curves) + 1, (LEFT, 10, 20, BELOW), (44, 0))
    bins = np.linspace(-0.025, 1.025, 22)
    heights = {name: np.histogram(alphas, bins=bins)[0] for name, alphas in chosen.items() if name in curves}
    top = 1.08 * max((int(one.max()) for one in heights.values()), default=1)
    counts = Chart(sheet, last, Scale(0, 1.03), Scale(0, max(top, 1.0)))
    key = {}
    for number, (criterion, curve) in enumerate(curves.items()):
        colour, marker = style(number + 1)
        y = reaching(curve["mean"], curve["low"], curve["high"])
        chart = Chart(sheet, boxes[number], Scale(0, 1.02), y)
        chart.band(curve["alpha"], curve["low"], curve["high"], colour, 0.18)
        chart.upright(reference, GREY, 0.9, "4 2")
        chart.marked_line(curve["alpha"], curve["mean"], colour, marker)
        chart.title(criterion)
        chart.frame_left("", most=6)
        chart.frame_below("exponent α", most=6)
        if criterion in heights:
            counts.bars(bins, heights[criterion], colour, 0.6)
            key[criterion] = (colour, "s")
    counts.upright(reference, GREY, 0.9, "4 2")
    counts.title("chosen by the training people")
    counts.frame_left("folds", most=min(6, max(1, int(top))))
    counts.frame_below("exponent α", most=6)
    if len(curves) > 1:
        counts.key(key)
    return sheet.svg()


def draw_lines(panels: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], label: str, mark: float = np.nan) -> str:
    """Draw curves: per panel its title, its vertical label and (x, y) columns by name."""
    sheet = Drawing(9.6 if len(panels) > 1 else 4.8, 2.7)
    names = [short(name) for *_, curves in panels for name in curves if len(curves) > 1]
    outside = width_of(names) + 24 if names else 0.0  # names within a panel would hide its curves
    boxes = lay_out(sheet, 1, len(panels), (LEFT, 10 + outside, 20, BELOW), (LEFT + 8 + outside, 0))
    for number, (box, (title, vertical, curves)) in enumerate(zip(boxes, panels, strict=True)):
        known = np.concatenate([values.reshape(-1, 2) for values in curves.values()] or [np.zeros((0, 2))])
        y = Scale(0, 1.03) if vertical.startswith("share") else reaching(known[:, 1])
        chart = Chart(sheet, box, reaching(known[:, 0], mark), y)
        chart.upright(mark, GREY, 0.9, "4 2")
        key = {}
        for place, (name, values) in enumerate(curves.items()):
            colour, marker = style(place if len(curves) > 1 else number + 1)
            if len(values):
                key[short(name)] = (colour, marker)
                chart.marked_line(values[:, 0], values[:, 1], colour, marker)
        chart.title(title)
        chart.frame_left(vertical, most=6)
        chart.frame_below(label, most=6)
        if len(curves) > 1:
            chart.key(key, at_right=True)
    return sheet.svg()


def draw_matches(matches: Mapping[str, tuple[np.ndarray, np.ndarray]], size: int) -> str:
    """Draw the match of each person by representation: places of the person and of the match among ``size`` people."""
    sheet = Drawing(9.6 if len(matches) > 1 else 4.8, 3.4)
    boxes = lay_out(sheet, 1, len(matches), (24, 10, 20, 26), (16, 0))
    dot = float(np.clip(2500 / size, 2, 30))
    for number, (box, (title, (person, match))) in enumerate(zip(boxes, matches.items(), strict=True)):
        side = min(box.width, box.height)
        square = box._replace(left=box.left + (box.width - side) / 2, width=side, height=side)
        chart = Chart(sheet, square, Scale(-0.7, size - 0.3), Scale(size - 0.3, -0.7))
        hit = person == match
        chart.dots(match[hit], person[hit], AFTER, dot, "s")
        chart.dots(match[~hit], person[~hit], BEFORE, 1.6 * dot, "X")
        sheet.line((square.left, square.left, square.right), (square.top, square.bottom, square.bottom), width=0.7)
        chart.title(title)
        sheet.text((square.left + square.right) / 2, square.bottom + 4 + SIZE, "most similar person")
        if number == 0:
            sheet.text(square.left - 8, (square.top + square.bottom) / 2, "person", turned=True)
    return sheet.svg()
