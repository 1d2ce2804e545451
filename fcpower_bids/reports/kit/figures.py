"""Small drawings of one recording as SVG text; arrays in, nothing read or written."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fcpower_bids.core.connectome.spd import eigendecompose, power_weights, spectral_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEFORE, AFTER, CENSORED, DUMMY = "#D55E00", "#0072B2", "#E69F00", "#999999"
"""Okabe and Ito's colours, which people of every colour vision tell apart; line style or text repeats what they say."""
EXPONENTS = (0.0, 0.1, 0.35, 0.6, 1.0)
"""Exponents of the paper's figure of one connectome along the path from the identity to raw FC."""
SIDE = 150
"""Rows of a small matrix."""
RIGHT = 0.905
"""Where the time axis ends, of 1; beside it are the names of networks."""
MOST_NETWORKS, ROOM_FOR_NAME = 40, 0.055
"""Above so many they say nothing; smaller shares of a carpet have no name beside them."""
DOTS = 100
"""Pixels per inch of the images inside a drawing."""
STEPS = 16
"""Colours of an image: the eye tells no more apart in noise, and a page with many images stays small."""
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # Verdana is as wide where DejaVu is not installed
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fcpower_bids",
    "image.interpolation": "nearest",
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """Yield a figure of so many inches, and a list that afterwards holds its SVG; equal drawings give equal text."""
    import matplotlib  # slow to load, and most runs of a worker draw nothing
    from matplotlib.figure import Figure

    svg: list[str] = []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        yield figure, svg
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", dpi=DOTS, metadata={"Date": None, "Creator": None})
        svg.append(buffer.getvalue())


def draw_motion(
    volumes: Mapping[str, np.ndarray],
    threshold: float,
    repetition_time: float,
    carpets: Mapping[str, np.ndarray],
    networks: Sequence[tuple[str, float, float]] = (),
) -> str:
    """Draw framewise displacement, DVARS and the carpets over one axis of time.

    Parameters
    ----------
    volumes : mapping of str to ndarray, shape (T,)
        ``framewise_displacement`` (mm), ``dvars``, ``dummy`` and ``kept`` (0 or 1).
    threshold : float
        Censoring threshold in mm; 0 for none.
    repetition_time : float
        Seconds; 0 where it is unknown, then time is in volumes.
    carpets : mapping of str to ndarray, shape (rows, T)
        Standardised parcel series by title; NaN where there is no value.
    networks : sequence of (str, float, float)
        Name of each network, and where it begins and ends among the rows of a carpet, as shares of these.
    """
    traces = [("framewise_displacement", "FD (mm)"), ("dvars", "DVARS")]
    traces = [(name, label) for name, label in traces if np.isfinite(volumes[name]).any()]
    heights = [1.0] * len(traces) + [1.7] * len(carpets)
    scale, unit = (repetition_time / 60, "minutes") if repetition_time else (1.0, "volumes")
    time = np.arange(len(volumes["kept"])) * scale
    with drawing(9.6, 0.4 + 0.8 * sum(heights)) as (figure, svg):
        axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        total = figure.get_figheight()
        figure.subplots_adjust(
            left=0.07, right=RIGHT if carpets else 0.995, bottom=0.42 / total, top=1 - 0.08 / total, hspace=0.12
        )
        for axis in axes:
            axis.yaxis.set_label_coords(-0.055, 0.5)  # under each other, without measuring the labels of the ticks
        for axis in axes[:-1]:
            axis.xaxis.set_visible(False)
        for axis, (name, label) in zip(axes, traces, strict=False):
            axis.plot(time, volumes[name], color="black", linewidth=0.8)
            axis.set_ylabel(label)
            _shade_volumes(axis, volumes, scale)
        if traces and traces[0][0] == "framewise_displacement" and threshold:
            axes[0].axhline(threshold, color=BEFORE, linestyle="--", linewidth=0.9)
            axes[0].set_ylim(0, max(1.15 * np.nanmax(volumes["framewise_displacement"]), 1.3 * threshold))
        for axis, (title, carpet) in zip(axes[len(traces) :], carpets.items(), strict=True):
            _draw_carpet(axis, title, carpet, (-0.5 * scale, (len(time) - 0.5) * scale))
            _name_networks(axis, networks)
        if carpets:
            _draw_scale(figure, axes[-1].get_position().y0)
        axes[-1].set_xlabel(unit)
        axes[-1].set_xlim(-0.5 * scale, (len(time) - 0.5) * scale)
    return svg[0]


def _shade_volumes(axis: Axes, volumes: Mapping[str, np.ndarray], scale: float) -> None:
    """Mark dummy volumes in hatched grey, censored ones in orange with a tick at the top."""
    dummy = volumes["dummy"] > 0
    styles: list[tuple[np.ndarray, dict[str, Any]]] = [
        (dummy, {"facecolor": "none", "edgecolor": DUMMY, "hatch": "////", "linewidth": 0}),
        (~dummy & (volumes["kept"] == 0), {"color": CENSORED, "alpha": 0.55, "linewidth": 0}),
    ]
    for wanted, style in styles:
        runs = [((first - 0.5) * scale, (last - first + 1) * scale) for first, last in _runs(wanted)]
        if runs:
            axis.broken_barh(runs, (0, 1), transform=axis.get_xaxis_transform(), **style)
    places = np.flatnonzero(~dummy & (volumes["kept"] == 0)) * scale
    top = np.ones(len(places))
    axis.plot(places, top, "v", color="black", markersize=2.6, transform=axis.get_xaxis_transform(), clip_on=False)


def _runs(wanted: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], wanted.astype(int), [0]])))
    return [(int(first), int(stop) - 1) for first, stop in zip(edges[::2], edges[1::2], strict=True)]


def _draw_carpet(axis: Axes, title: str, carpet: np.ndarray, ends: tuple[float, float]) -> None:
    """Draw a carpet; ``ends`` are where its first volume begins and its last one ends."""
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing

    colours = colormaps["gray"].resampled(STEPS).with_extremes(bad=CENSORED)
    shown = np.ma.masked_invalid(carpet)
    axis.imshow(shown, aspect="auto", cmap=colours, vmin=-2, vmax=2, extent=(*ends, len(carpet), 0))
    axis.set_yticks([])
    axis.set_ylabel(title)


def _name_networks(axis: Axes, networks: Sequence[tuple[str, float, float]]) -> None:
    """Put a bar and a name beside the rows of each network; names only where there is room."""
    if not 1 < len(networks) <= MOST_NETWORKS:
        return
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing

    starts, stops = (1 - np.array([one[place] for one in networks]) for place in (1, 2))
    colours = colormaps["tab20"](np.arange(len(networks)) % 20)
    axis.barh(
        starts, np.full(len(networks), 0.008), stops - starts, 1.004,
        align="edge", color=colours, transform=axis.transAxes, clip_on=False,
    )  # fmt: skip
    for name, first, stop in networks:
        if stop - first > ROOM_FOR_NAME:
            axis.text(1.016, 1 - (first + stop) / 2, name[:14], transform=axis.transAxes, va="center", fontsize=6.5)


def _draw_scale(figure: Figure, bottom: float) -> None:
    """Draw the colours of the carpets beside the axis of time."""
    from matplotlib.cm import ScalarMappable  # slow to load, and most runs of a worker draw nothing
    from matplotlib.colors import Normalize

    room = figure.add_axes((RIGHT + 0.008, 0.4 * bottom, 0.075, 0.09 * bottom + 0.004))
    bar = figure.colorbar(
        ScalarMappable(Normalize(-2, 2), "gray"), cax=room, orientation="horizontal", ticks=(-2, 0, 2)
    )
    bar.ax.tick_params(labelsize=6.5, pad=1, length=2)
    bar.ax.set_title("SD", fontsize=6.5, pad=1)


def draw_power(
    spectra: Mapping[str, tuple[np.ndarray, np.ndarray]], band: tuple[float | None, float | None], leakage: float
) -> str:
    """Draw mean power spectra by title (frequencies in Hz, share of variance per Hz), the pass-band shaded."""
    with drawing(4.7, 2.9) as (figure, svg):
        axis = _log_axis(figure)
        styles = {"before cleaning": (BEFORE, "--"), "after cleaning": (AFTER, "-")}
        for title, (frequencies, power) in spectra.items():
            colour, line = styles[title]
            axis.plot(frequencies[1:], np.maximum(power[1:], 1e-12), line, color=colour, linewidth=1.4, label=title)
        end = max(frequencies[-1] for frequencies, _ in spectra.values())
        axis.axvspan(band[0] or 0, min(band[1] or end, end), color=AFTER, alpha=0.12, linewidth=0, label="pass-band")
        highest = max(np.nanmax(power[1:]) for _, power in spectra.values())
        axis.set_ylim(highest * 1e-4, highest * 2)
        axis.set_xlim(0, end)
        axis.set_xlabel("frequency (Hz)")
        axis.set_ylabel("power (variance 1, per Hz)")
        if np.isfinite(leakage):
            axis.set_title(f"{100 * leakage:.1f} % of the cleaned power is outside the band", fontsize=8.5)
        axis.legend(frameon=False, loc="upper right")
    return svg[0]


def _log_axis(figure: Figure) -> Axes:
    """One axis with room for its labels and decades as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator  # slow to load, and most runs of a worker draw nothing

    axis = figure.subplots()
    figure.subplots_adjust(left=0.16, right=0.955, bottom=0.16, top=0.92)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(numticks=6))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter("{x:g}")
    return axis


def draw_eigenvalues(before: np.ndarray, after: np.ndarray, alpha: float, ratios: tuple[float, float]) -> str:
    """Draw the eigenvalues of FC and of FC^alpha by rank, with their participation ratios."""
    rank = np.arange(1, len(before) + 1)
    with drawing(4.7, 2.9) as (figure, svg):
        axis = _log_axis(figure)
        shown = after > 0
        labels = (f"FC, participation ratio {ratios[0]:.1f}", f"FC^{alpha:g}, participation ratio {ratios[1]:.1f}")
        axis.plot(rank[shown], before[shown], "--", color=BEFORE, linewidth=1.4, label=labels[0])
        axis.plot(rank[shown], after[shown], "-", color=AFTER, linewidth=1.4, label=labels[1])
        axis.axhline(1, color="0.6", linewidth=0.7)
        clipped = int((~shown).sum())
        if clipped:
            axis.set_title(f"{clipped} eigenvalues are zero to rounding and not shown", fontsize=8.5)
        axis.set_xlim(1, len(rank))
        axis.set_xlabel("rank")
        axis.set_ylabel("eigenvalue")
        axis.legend(frameon=False, loc="upper right")
    return svg[0]


def draw_path(connectivity: np.ndarray, order: np.ndarray, exponents: Sequence[float] = EXPONENTS) -> str:
    """Draw one connectome raised to several exponents, each over its largest eigenvalue, on one colour scale.

    Parameters
    ----------
    connectivity : ndarray, shape (P, P)
        FC of the covered parcels.
    order : ndarray of int, shape (P,)
        Order of drawing.
    exponents : sequence of float
        0 is the identity on the range of FC, 1 FC itself.
    """
    eigenvalues, vectors = eigendecompose(connectivity[np.ix_(order, order)])
    matrices = {}
    for exponent in exponents:
        weights = power_weights(eigenvalues, exponent)
        matrices[exponent] = spectral_map(eigenvalues, vectors, weights / weights.max())
    return draw_powers(matrices)


def draw_powers(matrices: Mapping[float, np.ndarray]) -> str:
    """Draw matrices (P, P) by exponent beside each other on one colour scale, which the first and last do not set."""
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    small = [shrink(matrix, SIDE, SIDE) for matrix in matrices.values()]
    limit = _shared_limit(list(matrices.values())[1:-1] or list(matrices.values()))
    side = len(small[0])
    gap = np.full((side, max(1, side // 25)), np.nan)
    mosaic = np.concatenate([part for one in small for part in (one, gap)][:-1], axis=1)
    colours = colormaps["RdBu_r"].resampled(2 * STEPS + 1).with_extremes(bad="white")
    with drawing(9.6, 1.98) as (figure, svg):
        axis = figure.add_axes((0.005, 0.02, 0.895, 0.88))  # one image: axes are what costs time
        axis.imshow(np.ma.masked_invalid(mosaic), cmap=colours, vmin=-limit, vmax=limit)
        axis.set_axis_off()
        for place, exponent in enumerate(matrices):
            middle = place * (side + gap.shape[1]) + side / 2
            title = f"α = {exponent:g}{' (FC)' if exponent == 1 else ''}"
            axis.text(middle, -0.03 * side, title, ha="center", va="bottom", fontsize=8.5)
        scale = ScalarMappable(Normalize(-limit, limit), colours)
        bar = figure.colorbar(scale, cax=figure.add_axes((0.912, 0.1, 0.012, 0.72)), extend="both")
        bar.set_label("value over λ₁")
    return svg[0]


def _shared_limit(matrices: Sequence[np.ndarray]) -> float:
    beside = [np.abs(matrix[np.triu_indices(len(matrix), 1)]) for matrix in matrices]
    return float(max(np.percentile(np.concatenate(beside), 95), 1e-6))


def draw_embedding(vector: np.ndarray) -> str:
    """Draw the dimensions of an embedding as bars."""
    with drawing(9.6, 1.7) as (figure, svg):
        axis = figure.subplots()
        figure.subplots_adjust(left=0.07, right=0.995, bottom=0.28, top=0.97)
        axis.vlines(np.arange(len(vector)), 0, vector, color=AFTER, linewidth=max(0.4, min(3.0, 400 / len(vector))))
        axis.axhline(0, color="black", linewidth=0.6)
        axis.set_xlim(-1, len(vector))
        axis.set_xlabel("dimension")
        axis.set_ylabel("value")
    return svg[0]


def shrink(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Average neighbouring rows, and neighbouring columns, until there are at most so many; NaN does not count."""
    for axis, most in ((0, rows), (1, columns)):
        size = image.shape[axis]
        if size > most:
            starts = np.round(np.linspace(0, size, most + 1)).astype(int)[:-1]  # bins of equal width, to one volume
            known = np.isfinite(image)
            count = np.add.reduceat(known, starts, axis=axis, dtype=int)
            total = np.add.reduceat(np.where(known, image, 0.0), starts, axis=axis)
            image = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return image


def colour_table(name: str) -> list[str]:
    """Return 256 colours of a matplotlib colour map as ``rrggbb``, for the script of the page."""
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing

    colours: Any = colormaps[name](np.arange(256), bytes=True)
    return ["".join(f"{part:02x}" for part in colour[:3]) for colour in colours]
