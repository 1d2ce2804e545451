"""Strips of one person: interval and best guess over the training values; pairs of scans over the likelihood ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fcpower_bids.reports.kit.charts import row_sheet
from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.svg import Drawing, Scale

WIDTH, HEIGHT = 4.4, 1.3
GREY, BLUE, DARK = "#c3c9d0", AFTER, "#000"
FARTHEST = 1e6
"""Likelihood ratio at which the axis ends; larger ones are drawn there."""


def draw_strip(values: Mapping[str, Any], low: float, high: float, guess: float, unit: str, known: float) -> str:
    """Draw training values between round ones as bars, and below them an interval with its best guess, as SVG text.

    ``known`` is the known value of the person, NaN where there is none.
    """
    edges, people = np.asarray(values["Edges"], dtype=float), np.asarray(values["People"], dtype=float)
    ends = [*edges[[0, -1]], low, high, *([known] if known == known else [])]
    sheet, scale = Drawing(WIDTH, HEIGHT), Scale(min(ends), max(ends))
    left, width, ground = 12.0, sheet.width - 24, 46.0

    def at(value: float) -> float:
        return left + width * float(scale.share(value))

    heights = people / np.diff(edges)
    for start, end, height in zip(edges[:-1], edges[1:], heights / heights.max(), strict=True):
        sheet.add("rect", x=at(start), y=ground - 34 * height, width=at(end) - at(start), height=34 * height, fill=GREY)
    average = float(np.average((edges[1:] + edges[:-1]) / 2, weights=people))
    sheet.line([at(average)] * 2, [8, ground], DARK, 1, "3 2")
    near_end = at(average) > 0.6 * sheet.width
    sheet.text(at(average) + (-4 if near_end else 4), 9, "average", anchor="end" if near_end else "start")
    sheet.line([at(low), at(high)], [ground + 9] * 2, BLUE, 5)
    sheet.add("circle", cx=at(guess), cy=ground + 9, r=5.5, fill="#fff", stroke=BLUE, stroke_width=2.5)
    if known == known:
        sheet.line([at(known)] * 2, [ground + 2, ground + 16], "#a3361b", 2.5)
    sheet.line([left, left + width], [ground + 20] * 2, DARK, 0.8)
    for tick in scale.ticks(7):
        sheet.line([at(tick)] * 2, [ground + 20, ground + 23], DARK, 0.8)
        sheet.text(at(tick), ground + 33, scale.word(tick))
    sheet.text(left + width, ground + 45, unit, anchor="end")
    return sheet.svg()


def draw_ratios(titles: Sequence[str], ratios: np.ndarray, limit: float) -> str:
    """Draw likelihood ratios (n,) as rows on a scale of decades, with the limits of the two verdicts, as SVG text."""
    sheet, chart = row_sheet(titles, [], Scale(1 / FARTHEST, FARTHEST, decades=True))
    for value, colour in ((1 / limit, BEFORE), (limit, AFTER)):
        chart.upright(value, colour, 1.2, "4 2")
    chart.upright(1.0, GREY)
    shown = np.clip(ratios, 1 / FARTHEST, FARTHEST)
    chart.marks(shown, -np.arange(len(ratios), dtype=float), DARK, 30, "o")
    chart.frame_below("how much likelier of one person than of two", most=7)
    return sheet.svg()
