"""Drawings of the spectra of a cohort on their way from the identity to FC; arrays in, SVG out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fcpower_bids.reports.figures import AFTER, BEFORE
from fcpower_bids.reports.group_figures import GREY, composed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PEOPLE = 150
"""People whose own curve is drawn behind the mean."""
MANY_MODES = 60
"""More eigenvectors are drawn as thinner arrows."""


def exponent_styles(alphas: Sequence[float], star: float) -> dict[float, dict[str, Any]]:
    """Style each exponent: FC and FC^alpha as everywhere else, the others in greys of different dashes."""
    others = sorted({*alphas} - {1.0, star})
    dashes = (":", "-.", "--", (0, (6, 1)))
    styles: dict[float, dict[str, Any]] = {
        alpha: {"color": str(0.15 + 0.12 * place), "linestyle": dashes[place % len(dashes)], "linewidth": 1.2}
        for place, alpha in enumerate(others)
    }
    return styles | {1.0: {"color": BEFORE, "linewidth": 1.7}, star: {"color": AFTER, "linewidth": 1.7}}


def draw_spectra(
    histograms: Mapping[float, tuple[np.ndarray, np.ndarray]],
    ranks: Mapping[float, np.ndarray],
    star: float,
) -> str:
    """Draw where the eigenvalues lie, and their mean by rank, for several exponents.

    Parameters
    ----------
    histograms : mapping of float to (ndarray, ndarray)
        By exponent: bin edges (log10 of the eigenvalue) and shares.
    ranks : mapping of float to ndarray, shape (P, 2)
        By exponent: mean and standard deviation over people.
    star : float
        Exponent of FC^alpha.
    """
    with composed(9.6, 3.0) as (figure, svg):
        axes = figure.subplots(1, 2)
        styles = exponent_styles([*histograms, *ranks], star)
        for alpha, (edges, shares) in histograms.items():
            known = np.flatnonzero(shares)
            inside = slice(max(int(known[0]) - 1, 0), int(known[-1]) + 2) if known.size else slice(0, 0)
            middles = (edges[:-1] + edges[1:]) / 2
            axes[0].step(middles[inside], 100 * shares[inside], where="mid", label=_name(alpha), **styles[alpha])
        axes[0].axvline(0, color=GREY, linewidth=0.8)
        axes[0].set(xlabel="log₁₀ of the eigenvalue", ylabel="eigenvalues (%)", title="Where the eigenvalues lie")
        for alpha, values in ranks.items():
            _draw_rank(axes[1], values, _name(alpha), styles[alpha])
        axes[1].axhline(1, color=GREY, linewidth=0.8)
        axes[1].set(xlabel="rank", ylabel="eigenvalue", title="Mean eigenvalue by rank")
        axes[0].legend(frameon=False, loc="upper left")
        axes[1].legend(frameon=False, loc="lower left")
    return svg[0]


def _name(alpha: float) -> str:
    return f"α = {alpha:g}" + (" (FC)" if alpha == 1 else "")


def _draw_rank(axis: Axes, values: np.ndarray, label: str, style: dict[str, Any]) -> None:
    shown = values[:, 0] > 0
    rank = np.arange(1, len(values) + 1)[shown]
    mean, spread = values[shown].T
    axis.plot(rank, mean, label=label, **style)
    if np.isfinite(spread).any():
        low = np.maximum(mean - spread, mean / 10)
        axis.fill_between(rank, low, mean + spread, color=style["color"], alpha=0.15, lw=0)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.minorticks_off()


def draw_paths(panels: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], alphas: np.ndarray, star: float) -> str:
    """Draw quantities along the exponent: per panel its title, vertical label, and (people, A) arrays by name.

    People are thin lines, their mean is thick.
    """
    from matplotlib.collections import LineCollection

    styles = ((AFTER, "-"), (BEFORE, "--"))
    with composed(9.6, 2.7) as (figure, svg):
        axes = figure.subplots(1, len(panels))
        for axis, (title, vertical, curves) in zip(axes, panels, strict=True):
            for (name, values), (colour, line) in zip(curves.items(), styles, strict=False):
                few = values[np.linspace(0, len(values) - 1, min(len(values), MOST_PEOPLE)).astype(int)]
                lines = [np.column_stack([alphas, one]) for one in few]
                axis.add_collection(LineCollection(lines, colors=colour, linewidths=0.5, alpha=0.25, rasterized=True))
                axis.plot(alphas, values.mean(axis=0), line, color=colour, linewidth=1.8, label=name)
            axis.axvline(star, color=GREY, linestyle=":", linewidth=1)
            axis.set(xlabel="exponent α (1 is FC)", ylabel=vertical, title=title, xlim=(0, 1))
            if len(curves) > 1:
                axis.legend(frameon=False)
    return svg[0]


def draw_sphere(modes: Mapping[str, tuple[np.ndarray, float]]) -> str:
    """Draw scaled eigenvectors as arrows from the centre, and the sphere that says how long one of them is.

    Parameters
    ----------
    modes : mapping of str to (ndarray, float)
        By title: coordinates of shape (P, 2), and the radius of the sphere. Everything is drawn over the radius.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle

    limit = max(float(np.abs(places).max() / radius) for places, radius in modes.values()) * 1.05
    with composed(4.8, 2.7) as (figure, svg):
        axes = figure.subplots(1, len(modes), squeeze=False)[0]
        for axis, (title, (places, radius)), colour in zip(axes, modes.items(), (BEFORE, AFTER), strict=False):
            ends = places / radius
            axis.add_patch(Circle((0, 0), 1, facecolor="0.88", edgecolor=GREY, linewidth=0.8))
            lines = [[(0.0, 0.0), tuple(end)] for end in ends]
            width = 0.9 if len(ends) < MANY_MODES else 0.5
            axis.add_collection(LineCollection(lines, colors=colour, linewidths=width, alpha=0.7))
            axis.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=[], yticks=[], title=title)
            axis.spines[:].set_visible(False)
    return svg[0]
