"""Drawings of a cohort as SVG text; arrays in, nothing read or written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from fcpower_bids.reports.cohort.drawing import drawing
from fcpower_bids.reports.kit.figures import AFTER, BEFORE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = (BEFORE, AFTER, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"
MANY_POINTS = 300
"""More points are drawn as an image, which is smaller than so many shapes."""
MANY_CURVES = 4
"""More are named beside the panel, where the names hide none of them."""
GREY = "0.55"


@contextmanager
def composed(width: float, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """Yield what `drawing` yields, with axes that make room for their labels."""
    with drawing(width, height) as (figure, svg):
        figure.set_layout_engine("constrained")
        yield figure, svg
        for axis in figure.axes:
            axis.title.set_fontsize(9)
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)  # here, for matplotlib would draw everything twice to find the room
            figure.set_layout_engine("none")


def style(number: int) -> tuple[str, str]:
    """Colour and marker of the representation in this place."""
    return SHADES[number % len(SHADES)], MARKERS[number % len(MARKERS)]


def jitter(size: int, width: float) -> np.ndarray:
    """Spread points beside each other, always in the same way, shape (size,) between -width and width."""
    return width * (2 * ((np.arange(size) * 0.6180339887) % 1) - 1)


def draw_quality(values: Mapping[str, np.ndarray], marks: Mapping[str, np.ndarray]) -> str:
    """Draw one strip of recordings per measure; ``marks`` says which stand out."""
    columns = 4
    lines = -(-len(values) // columns)
    with composed(9.6, 1.3 * lines) as (figure, svg):
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, (title, numbers) in zip(axes, values.items(), strict=False):
            known = np.isfinite(numbers)
            spread = jitter(len(numbers), 0.3)
            many = bool(known.sum() > MANY_POINTS)
            for wanted, marker, colour, size in (
                (known & ~marks[title], "o", AFTER, 7),
                (known & marks[title], "^", BEFORE, 22),
            ):
                axis.scatter(
                    numbers[wanted], spread[wanted], s=size, c=colour, marker=marker, alpha=0.6, lw=0, rasterized=many
                )
            if known.any():
                axis.axvline(float(np.median(numbers[known])), color="black", linewidth=0.8)
            axis.set(yticks=[], ylim=(-0.5, 0.5))
            axis.spines["left"].set_visible(False)
            axis.set_xlabel(title)
        for axis in axes[len(values) :]:
            axis.set_axis_off()
    return svg[0]


def draw_edge_motion(edges: Mapping[str, np.ndarray], n_people: int) -> str:
    """Draw the QC-FC correlations of the edges by representation, columns r and, where known, distance in mm."""
    has_distance = next(iter(edges.values())).shape[1] > 1
    with composed(9.6 if has_distance or len(edges) > 1 else 4.8, 2.6) as (figure, svg):
        axes = figure.subplots(1, len(edges) * (1 + has_distance), squeeze=False)[0]
        grid = np.linspace(-1, 1, 401)
        freedom = max(n_people - 2, 1)
        slope = np.sqrt(freedom) / np.clip(1 - grid**2, 1e-9, None) ** 1.5
        chance = stats.t.pdf(grid * np.sqrt(freedom / np.clip(1 - grid**2, 1e-9, None)), freedom) * slope
        for number, (title, values) in enumerate(edges.items()):
            colour, _ = style(number)
            axis = axes[number * (1 + has_distance)]
            r = values[np.isfinite(values[:, 0]), 0]
            axis.hist(r, bins=np.linspace(-1, 1, 81), density=True, color=colour, alpha=0.65)
            axis.plot(grid, np.where(np.isfinite(chance), chance, 0), color=GREY, linewidth=1.4)
            limit = min(1.0, 1.15 * max(float(np.abs(r).max(initial=0.1)), 2.5 / np.sqrt(n_people)))
            axis.set(yticks=[], xlim=(-limit, limit), title=title, xlabel="correlation with mean FD")
            axis.axvline(0, color="black", linewidth=0.7)
            if has_distance:
                _draw_distance(axes[number * 2 + 1], values, colour)
    return svg[0]


def _draw_distance(axis: Axes, values: np.ndarray, colour: str) -> None:
    known = values[np.isfinite(values).all(axis=1)]
    many = len(known) > 10 * MANY_POINTS
    size, strength = (2, 0.15) if many else (5, 0.5)
    axis.scatter(known[:, 1], np.abs(known[:, 0]), s=size, c=colour, alpha=strength, lw=0, rasterized=True)
    cuts = np.unique(np.quantile(known[:, 1], np.linspace(0, 1, 11)))
    bins = np.clip(np.searchsorted(cuts, known[:, 1], side="right") - 1, 0, len(cuts) - 2)
    middles = [(cuts[i] + cuts[i + 1]) / 2 for i in np.unique(bins)]
    axis.plot(middles, [float(np.median(np.abs(known[bins == i, 0]))) for i in np.unique(bins)], "k-", linewidth=1.2)
    axis.set(xlabel="distance (mm)", ylabel="|r| with mean FD", ylim=(0, None))


def draw_folds(scores: Mapping[str, np.ndarray], pooled: Mapping[str, float], label: str, chance: float) -> str:
    """Draw the score of every fold by representation, with quartiles, mean (diamond) and pooled score (line)."""
    with composed(4.7, 0.95 + 0.62 * len(scores)) as (figure, svg):
        axis = figure.subplots()
        for number, (title, values) in enumerate(scores.items()):
            known = values[np.isfinite(values)]
            colour, _ = style(number)
            place = -number + jitter(known.size, 0.24)
            axis.scatter(known, place, s=8, c=colour, alpha=0.4, lw=0, rasterized=known.size > MANY_POINTS)
            if known.size:
                low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
                axis.plot([low, high], [-number] * 2, color="black", linewidth=1.2)
                axis.plot([middle] * 2, [-number - 0.1, -number + 0.1], color="black", linewidth=1.2)
                axis.plot(known.mean(), -number, "D", color="white", markeredgecolor="black", markersize=6)
            if np.isfinite(pooled.get(title, np.nan)):
                axis.plot([pooled[title]] * 2, [-number - 0.36, -number + 0.36], ":", color=colour, linewidth=1.6)
        finish_rows(axis, list(scores), chance)
        axis.set_xlabel(label)
    return svg[0]


def finish_rows(axis: Axes, titles: Sequence[str], origin: float) -> None:
    """Name the rows of a drawing from the top, and draw a line at the value that says nothing."""
    axis.axvline(origin, color=GREY, linewidth=0.9, linestyle="--", zorder=0)
    axis.set_yticks([-i for i in range(len(titles))], [short(title) for title in titles])
    axis.set_ylim(-len(titles) + 0.45, 0.55)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)


def short(title: str, most: int = 34) -> str:
    """Cut a title that is too long for a drawing."""
    return title if len(title) <= most else title[: most - 1] + "…"


def draw_intervals(
    rows: Sequence[tuple[str, float, float, float]],
    label: str,
    origin: float = 0.0,
    dots: Sequence[np.ndarray] = (),
) -> str:
    """Draw estimates with their intervals, one row each: title, estimate, low, high; ``dots`` are what they rest on."""
    with composed(4.7, 0.8 + (0.7 if dots else 0.42) * len(rows)) as (figure, svg):
        axis = figure.subplots()
        for number, values in enumerate(dots):
            spread = -number + jitter(len(values), 0.28)
            axis.scatter(values, spread, s=7, c=GREY, alpha=0.35, lw=0, rasterized=len(values) > MANY_POINTS)
        for number, (_, middle, low, high) in enumerate(rows):
            axis.plot([low, high], [-number] * 2, color=AFTER, linewidth=1.6)
            axis.plot(middle, -number, "o", color=AFTER, markersize=6)
        finish_rows(axis, [row[0] for row in rows], origin)
        axis.set_xlabel(label)
    return svg[0]


def draw_null(null: Mapping[str, np.ndarray], label: str) -> str:
    """Draw the scores of permuted targets by representation; the first of each is the true one."""
    with composed(4.7, 0.7 + 0.75 * len(null)) as (figure, svg):
        axes = figure.subplots(len(null), 1, sharex=True, squeeze=False)[:, 0]
        for number, (axis, (title, scores)) in enumerate(zip(axes, null.items(), strict=True)):
            permuted = scores[1:][np.isfinite(scores[1:])]
            axis.hist(permuted, bins=30, color="0.75")
            axis.axvline(scores[0], color=style(number)[0], linewidth=2.2)
            axis.set(yticks=[])
            axis.set_ylabel(short(title, 18), rotation=0, ha="right", va="center")
            axis.spines["left"].set_visible(False)
        axes[-1].set_xlabel(label)
    return svg[0]


def draw_scatter(pairs: Mapping[str, np.ndarray], label: str, binary: bool) -> str:
    """Draw out-of-fold predictions against what was observed, columns observed and predicted, by representation."""
    lines = -(-len(pairs) // 2)
    with composed(4.7, 0.2 + 2.4 * lines) as (figure, svg):
        axes = figure.subplots(lines, min(len(pairs), 2), squeeze=False).ravel()
        for axis in axes[len(pairs) :]:
            axis.set_axis_off()
        for number, (axis, (title, values)) in enumerate(zip(axes, pairs.items(), strict=False)):
            observed, predicted = values.T
            colour, marker = style(number)
            place = observed + jitter(len(observed), 0.18) if binary else observed
            many = len(observed) > MANY_POINTS
            axis.scatter(place, predicted, s=14, c=colour, marker=marker, alpha=0.5, lw=0, rasterized=many)
            if binary:
                axis.set_xticks([0, 1])
            _draw_fit(axis, observed, predicted)
            axis.set_title(title)
        figure.supxlabel(label, fontsize=axes[0].xaxis.label.get_size())  # once: beside each other two would overlap
        for axis in axes[: len(pairs) : 2]:
            axis.set_ylabel("predicted, out of fold")
    return svg[0]


def _draw_fit(axis: Axes, observed: np.ndarray, predicted: np.ndarray) -> None:
    """Least-squares line with the 95 % confidence band of its mean."""
    n = len(observed)
    if n < 4 or np.ptp(observed) == 0:
        return
    slope, intercept = np.polyfit(observed, predicted, 1)
    grid = np.linspace(observed.min(), observed.max(), 60)
    centred = observed - observed.mean()
    error = np.sqrt(((predicted - slope * observed - intercept) ** 2).sum() / (n - 2))
    width = stats.t.ppf(0.975, n - 2) * error * np.sqrt(1 / n + (grid - observed.mean()) ** 2 / (centred @ centred))
    line = slope * grid + intercept
    axis.plot(grid, line, color="black", linewidth=1.1)
    axis.fill_between(grid, line - width, line + width, color="black", alpha=0.14, linewidth=0)


def draw_exponents(
    curves: Mapping[str, Mapping[str, np.ndarray]], chosen: Mapping[str, np.ndarray], reference: float
) -> str:
    """Draw score against exponent by criterion, and how often each exponent was chosen.

    Parameters
    ----------
    curves : mapping of str to mapping
        By criterion: ``alpha``, ``mean``, ``low`` and ``high``, each of shape (A,).
    chosen : mapping of str to ndarray
        By criterion: the exponent of each fold.
    reference : float
        The exponent of the paper, drawn as a line.
    """
    with composed(9.6, 2.9) as (figure, svg):
        axes = figure.subplots(1, len(curves) + 1, squeeze=False)[0]
        bins = np.linspace(-0.025, 1.025, 22)
        for number, (criterion, curve) in enumerate(curves.items()):
            axis, (colour, marker) = axes[number], style(number + 1)
            axis.plot(curve["alpha"], curve["mean"], f"-{marker}", color=colour, markersize=4)
            axis.fill_between(curve["alpha"], curve["low"], curve["high"], color=colour, alpha=0.18, linewidth=0)
            axis.set(xlabel="exponent α", title=criterion, xlim=(0, 1.02))
            if criterion in chosen:
                axes[-1].hist(chosen[criterion], bins=bins, color=colour, alpha=0.6, label=criterion)
        axes[-1].set(xlabel="exponent α", title="chosen by the training people", ylabel="folds", xlim=(0, 1.03))
        axes[-1].yaxis.get_major_locator().set_params(integer=True)
        for axis in axes:
            axis.axvline(reference, color=GREY, linestyle="--", linewidth=0.9)
        if len(curves) > 1:
            axes[-1].legend(frameon=False)
    return svg[0]


def draw_lines(panels: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], label: str, mark: float = np.nan) -> str:
    """Draw curves: per panel its title, its vertical label and (x, y) columns by name."""
    with composed(9.6 if len(panels) > 1 else 4.8, 2.7) as (figure, svg):
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for number, (axis, (title, vertical, curves)) in enumerate(zip(axes, panels, strict=True)):
            for place, (name, values) in enumerate(curves.items()):
                colour, marker = style(place if len(curves) > 1 else number + 1)
                if len(values):
                    axis.plot(values[:, 0], values[:, 1], f"-{marker}", color=colour, markersize=4, label=name)
            if np.isfinite(mark):
                axis.axvline(mark, color=GREY, linestyle="--", linewidth=0.9)
            axis.set(xlabel=label, ylabel=vertical, title=title)
            if vertical.startswith("share"):
                axis.set_ylim(0, 1.03)
            if len(curves) > MANY_CURVES:
                axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
            elif len(curves) > 1:
                axis.legend(frameon=False)
    return svg[0]


def draw_matches(matches: Mapping[str, tuple[np.ndarray, np.ndarray]], size: int) -> str:
    """Draw who was taken for whom by representation: places of the person and of the match among ``size`` people."""
    with composed(9.6 if len(matches) > 1 else 4.8, 3.4) as (figure, svg):
        axes = figure.subplots(1, len(matches), squeeze=False)[0]
        for axis, (title, (person, match)) in zip(axes, matches.items(), strict=True):
            hit = person == match
            options: dict[str, Any] = {"lw": 0, "rasterized": len(person) > MANY_POINTS}
            dot = float(np.clip(2500 / size, 2, 30))
            axis.scatter(match[hit], person[hit], s=dot, c=AFTER, marker="s", **options)
            axis.scatter(match[~hit], person[~hit], s=1.6 * dot, c=BEFORE, marker="X", **options)
            axis.set(xlim=(-0.7, size - 0.3), ylim=(size - 0.3, -0.7), aspect="equal", title=title)
            axis.set(xlabel="most similar person", xticks=[], yticks=[])
        axes[0].set_ylabel("person")
    return svg[0]
