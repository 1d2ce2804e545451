"""Drawings that compare many entries: differences with intervals, curves, gains in cells, pairs; arrays in, SVG out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fcpower_bids.reports.cohort.figures import GREY, composed, finish_rows, jitter, short, style
from fcpower_bids.reports.kit.figures import AFTER, BEFORE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW_COLUMNS = 6
"""With more columns a cell of a heat map has room for two decimals, not three."""
MOST_TICKS = 8


def draw_differences(
    titles: Sequence[str],
    columns: Mapping[str, np.ndarray],
    labels: Sequence[str],
    significant: float,
    dots: Mapping[str, np.ndarray] | None = None,
) -> str:
    """Draw differences with intervals, one line per entry and one column per target.

    Parameters
    ----------
    titles : sequence of str
        n entries.
    columns : mapping of str to ndarray, shape (n, 4)
        By target: difference, lower and upper limit, p; NaN where there is none.
    labels : sequence of str
        Of the horizontal axis of each column.
    significant : float
        Triangles mark entries with a p below it: up for a gain, down for a loss; the others are open circles.
    dots : mapping of str to ndarray, shape (m,), optional
        By target: further differences without intervals, drawn as a cloud in a last line.
    """
    n_rows = len(titles) + (dots is not None)
    with composed(9.6, 0.8 + 0.2 * n_rows) as (figure, svg):
        axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        for axis, label, (target, values) in zip(axes, labels, columns.items(), strict=True):
            _draw_marks(axis, values, significant)
            if dots is not None:
                cloud = dots[target][np.isfinite(dots[target])]
                axis.scatter(cloud, -len(titles) + jitter(len(cloud), 0.3), s=6, c=GREY, alpha=0.6, lw=0)
            axis.set(xlabel=label, title=short(target, 40))
            axis.grid(axis="y", color="0.92", linewidth=0.6)
            axis.set_axisbelow(True)
            finish_rows(axis, [*titles, "random filters"][:n_rows], 0.0)
    return svg[0]


def _draw_marks(axis: Axes, values: np.ndarray, significant: float) -> None:
    place = -np.arange(len(values), dtype=float)
    middle, low, high, p = values.T
    clear = np.nan_to_num(p, nan=1.0) < significant
    for wanted, marker, colour, filled in (
        (clear & (middle > 0), "^", AFTER, True),
        (clear & (middle < 0), "v", BEFORE, True),
        (np.isfinite(middle) & ~(clear & (middle != 0)), "o", "0.35", False),
    ):
        axis.hlines(place[wanted], low[wanted], high[wanted], color=colour, linewidth=1.3)
        face = colour if filled else "white"
        axis.scatter(middle[wanted], place[wanted], s=26, marker=marker, c=face, edgecolors=colour, lw=1, zorder=3)


def draw_curves(
    panels: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], label: str, origin: float = np.nan, band: bool = True
) -> str:
    """Draw curves over an axis that doubles: per panel its title, horizontal label and columns x, mean, SD by name.

    ``label`` is that of the vertical axis, ``origin`` the score of guessing.
    """
    with composed(9.6 if len(panels) > 1 else 4.8, 2.9) as (figure, svg):
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, horizontal, curves) in zip(axes, panels, strict=True):
            for number, (name, values) in enumerate(curves.items()):
                colour, marker = style(number)
                x, mean, spread = values.T
                axis.plot(x, mean, f"-{marker}", color=colour, markersize=5, label=short(name))
                if band and np.isfinite(spread).any():
                    axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.13, linewidth=0)
            axis.set_xscale("log")
            axis.xaxis.set_minor_locator(_nothing())
            places = spaced(np.unique(np.concatenate([values[:, 0] for values in curves.values()])))
            axis.set_xticks(places, [f"{place:.3g}" if place < 1000 else f"{place:.0f}" for place in places])
            axis.set(title=title, xlabel=horizontal)
            if np.isfinite(origin):
                axis.axhline(origin, color=GREY, linestyle="--", linewidth=0.9)
        axes[0].set_ylabel(label)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return svg[0]


def _nothing() -> object:
    from matplotlib.ticker import NullLocator  # slow to load, and most runs of a worker draw nothing

    return NullLocator()


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
    """Draw gains as cells with their numbers; blue is a gain, red a loss.

    Parameters
    ----------
    matrices : mapping of str to (ndarray, ndarray), shape (R, C)
        By title: gains, NaN where there is none, and which of them are marked with a star.
    rows, columns : sequence of str
        Minutes and people.
    """
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing

    digits = 3 if len(columns) * len(matrices) <= FEW_COLUMNS else 2
    limit = max(float(np.nanmax(np.abs(gains), initial=1e-3)) for gains, _ in matrices.values())
    colours = colormaps["RdBu"].with_extremes(bad="0.9")
    with composed(9.6 if len(matrices) > 1 else 4.8, 1.0 + 0.3 * len(rows)) as (figure, svg):
        axes = figure.subplots(1, len(matrices), sharey=True, squeeze=False)[0]
        for axis, (title, (gains, marked)) in zip(axes, matrices.items(), strict=True):
            axis.imshow(np.ma.masked_invalid(gains), cmap=colours, vmin=-limit, vmax=limit, aspect="auto")
            for (i, j), gain in np.ndenumerate(gains):
                if np.isfinite(gain):
                    said = f"{round(float(gain), digits) + 0.0:+.{digits}f}" + ("*" if marked[i, j] else "")
                    ink = "white" if abs(gain) > 0.7 * limit else "black"
                    axis.text(j, i, said, ha="center", va="center", color=ink, fontsize=7.5)
            axis.set_xticks(range(len(columns)), columns)
            axis.set_yticks(range(len(rows)), rows)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
            axis.set(xlabel="people", title=short(title, 60))
        axes[0].set_ylabel("minutes")
    return svg[0]


def draw_pairs(titles: Sequence[str], columns: Mapping[str, Mapping[str, np.ndarray]], labels: Sequence[str]) -> str:
    """Draw scores of the same entries under several representations, joined by lines.

    Parameters
    ----------
    titles : sequence of str
        n entries.
    columns : mapping of str to mapping of str to ndarray, shape (n,)
        By target, then by representation; NaN where there is none.
    labels : sequence of str
        Of the horizontal axis of each column.
    """
    with composed(9.6 if len(columns) > 1 else 4.8, 1.1 + 0.26 * len(titles)) as (figure, svg):
        axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        place = -np.arange(len(titles), dtype=float)
        for axis, label, (target, scores) in zip(axes, labels, columns.items(), strict=True):
            every = np.stack(list(scores.values()))
            known = np.isfinite(every).any(axis=0)
            axis.hlines(
                place[known], np.nanmin(every[:, known], axis=0), np.nanmax(every[:, known], axis=0), color=GREY
            )
            for number, (name, values) in enumerate(scores.items()):
                colour, marker = style(number)
                axis.scatter(values, place, s=32, c=colour, marker=marker, label=short(name), zorder=3)
            finish_rows(axis, titles, np.nan)
            axis.set(xlabel=label, title=short(target, 40))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return svg[0]
