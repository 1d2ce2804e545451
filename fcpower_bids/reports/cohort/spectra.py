"""The spectra of the cohort: where the eigenvalues go, how far FC^alpha is from FC, and how that looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.drawings import BELOW, LEFT, NARROW, WIDE, centred_square
from fcpower_bids.reports.cohort.tables import GroupTables, Section, count_people
from fcpower_bids.reports.kit.charts import GREY, Chart, lay_out, reaching
from fcpower_bids.reports.kit.figures import AFTER, BEFORE, draw_powers
from fcpower_bids.reports.kit.page import Panel
from fcpower_bids.reports.kit.svg import Drawing, Scale

DRAWN_HISTOGRAMS = (0.1, 0.5, 1.0)
N_BINS = 50
"""Bins of a drawn histogram; those of the table are put together."""
DRAWN_RANKS = (0.0, 0.1, 0.6, 1.0)
"""Exponents of the curves by rank, in addition to that of FC^alpha."""
MOST_PEOPLE = 150
"""People whose own curve is drawn behind the mean."""
MANY_MODES = 60
"""More eigenvectors are drawn as thinner arrows."""


def spectrum_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say how even the spectra become, and draw their path from the identity to FC."""
    path = tables.rows("spectrum_path")
    if path.empty:
        return
    panels = (*_spectra(tables), *_matrices(tables), _path(path, tables), *_sphere(tables))
    yield Section("spectrum", "The spectrum", tuple(_sentences(path, tables)), panels)


def _sentences(path: pd.DataFrame, tables: GroupTables) -> Iterator[str]:
    facts, power = tables.facts("spectrum_path"), tables.title("fc_power")
    means: dict[str, Any] = facts.get("Means", {})
    if {"participation_ratio", "participation_ratio_power"} <= set(means):
        yield (
            f"Over {count_people(path['participant_id'].nunique())} the effective number of eigenvectors "
            f"(participation ratio) goes from {means['participation_ratio']:.1f} for FC to "
            f"{means['participation_ratio_power']:.1f} for {power} (mean; all scans of a person together)."
        )
    if {"first_to_twentieth", "first_to_twentieth_power"} <= set(means):
        yield (
            f"The first eigenvalue is {means['first_to_twentieth']:.1f} times the twentieth in FC and "
            f"{means['first_to_twentieth_power']:.1f} times in {power}."
        )
    if clipped := int(facts.get("RankDeficient", 0)):
        yield (
            f"{count_people(clipped)} {'has' if clipped == 1 else 'have'} connectomes of incomplete rank "
            "(fewer independent volumes than parcels): eigenvalues that are zero to rounding stay zero."
        )
    yield "This describes the connectomes; it does not say whether they predict anything."


def _by_alpha(table: pd.DataFrame, drawn: Sequence[float]) -> Iterator[tuple[float, pd.DataFrame]]:
    for alpha, part in table.groupby("alpha"):
        if not drawn or alpha in drawn:
            yield float(str(alpha)), part


def _spectra(tables: GroupTables) -> Iterator[Panel]:
    histogram, ranks = tables.rows("spectrum_histogram"), tables.rows("spectrum_ranks")
    if histogram.empty or ranks.empty:
        return
    bins = {alpha: coarser(part) for alpha, part in _by_alpha(histogram, (*DRAWN_HISTOGRAMS, tables.alpha))}
    by_rank = {
        alpha: part.sort_values("rank", kind="stable")[["mean", "sd"]].to_numpy(dtype=float)
        for alpha, part in _by_alpha(ranks, (*DRAWN_RANKS, tables.alpha))
    }
    drawn = ", ".join(f"{alpha:g}" for alpha in bins)
    yield tables.panel("spectra", draw_spectra(bins, by_rank, tables.alpha), drawn=drawn)


def coarser(part: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Put neighbouring bins of a histogram together; return edges and shares."""
    edges = np.append(part["low"].to_numpy(dtype=float), float(part["high"].iloc[-1]))
    starts = np.arange(0, len(part), max(1, len(part) // N_BINS))
    return edges[[*starts, len(part)]], np.add.reduceat(part["share"].to_numpy(dtype=float), starts)


def _matrices(tables: GroupTables) -> Iterator[Panel]:
    table = tables.rows("spectrum_matrices")
    if table.empty:
        return
    matrices = {alpha: from_triangle(part["value"].to_numpy(dtype=float)) for alpha, part in _by_alpha(table, ())}
    person = str(tables.facts("spectrum_matrices").get("Person", "one person"))
    exponents = ", ".join(f"{alpha:g}" for alpha in matrices)
    yield tables.panel("spectrum_matrices", draw_powers(matrices), person=person, exponents=exponents)


def from_triangle(values: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix (P, P) of its upper triangle, row by row, with the diagonal."""
    size = int((np.sqrt(8 * len(values) + 1) - 1) / 2)
    matrix = np.empty((size, size))
    first, second = np.triu_indices(size)
    matrix[first, second] = matrix[second, first] = values
    return matrix


def _path(path: pd.DataFrame, tables: GroupTables) -> Panel:
    ratio, trace, away, rest = (
        path.pivot_table(column, "participant_id", "alpha", dropna=False).to_numpy(dtype=float)
        for column in ("participation_ratio", "heat_trace", "from_identity", "to_fc")
    )
    alphas = np.sort(path["alpha"].unique()).astype(float)
    known = np.isfinite(away).all(axis=1) & np.isfinite(rest).all(axis=1)
    heat = "Heat trace" if known.any() else "Heat trace (distances need full rank)"
    panels = [
        ("Effective number of eigenvectors", "participation ratio", {"": ratio}),
        (heat, "Z(α)", {"": trace}),
        ("Distance", "log-Euclidean distance", {"from the identity": away[known], "to FC": rest[known]}),
    ]
    mean = ratio.mean(axis=0)
    said = f"participation ratio {mean[-1]:.1f} at α = {alphas[-1]:g}, {mean[0]:.1f} at α = {alphas[0]:g}"
    svg = draw_paths(panels[: 3 if known.any() else 2], alphas, tables.alpha)
    return tables.panel("spectrum_path", svg, alpha=f"{tables.alpha:g}", said=said)


def _sphere(tables: GroupTables) -> Iterator[Panel]:
    sphere = tables.rows("spectrum_sphere")
    if sphere.empty or not (sphere["radius"] > 0).all():
        return
    modes = {}
    for alpha, part in sphere.groupby("alpha", sort=False):
        title = "FC" if alpha == 1 else tables.title("fc_power")
        modes[title] = (part[["x", "y"]].to_numpy(dtype=float), float(part["radius"].iloc[0]))
    said = "; ".join(
        f"{title}: {int((np.linalg.norm(places, axis=1) > radius).sum())}" for title, (places, radius) in modes.items()
    )
    yield tables.panel("spectrum_sphere", draw_sphere(modes), said=said, modes=" and ".join(modes))


# Drawings


class Look(NamedTuple):
    """Colour, dashes and width of a line."""

    colour: str
    dashes: str = ""
    width: float = 1.2


def exponent_styles(alphas: Sequence[float], star: float) -> dict[float, Look]:
    """Style each exponent: FC and FC^alpha as everywhere else, the others in greys of different dashes."""
    others = sorted({*alphas} - {1.0, star})
    dashes = ("1 2", "6 2 1 2", "5 2.5", "8 1.5")
    greys = [f"#{round(255 * (0.15 + 0.12 * place)):02x}" for place in range(len(others))]
    styles = {
        alpha: Look(grey + 2 * grey[1:], dashes[place % len(dashes)])
        for place, (alpha, grey) in enumerate(zip(others, greys, strict=True))
    }
    return styles | {1.0: Look(BEFORE, width=1.7), star: Look(AFTER, width=1.7)}


def draw_spectra(
    histograms: Mapping[float, tuple[np.ndarray, np.ndarray]], ranks: Mapping[float, np.ndarray], star: float
) -> str:
    """Draw where the eigenvalues lie, and their mean by rank, for several exponents. Shapes and units: ranks (P, 2)."""
    sheet = Drawing(WIDE, 3.0)
    left, right = lay_out(sheet, 1, 2, (LEFT, 10, 20, BELOW), (58, 0))
    styles = exponent_styles([*histograms, *ranks], star)
    steps = {alpha: _steps(*bins) for alpha, bins in histograms.items()}
    x = reaching(*(corners[:, 0] for corners in steps.values()), 0.0)
    shares = Chart(sheet, left, x, Scale(0, reaching(*(corners[:, 1] for corners in steps.values())).high))
    shares.upright(0, GREY, 0.8)
    for alpha, corners in steps.items():
        shares.plot(corners[:, 0], corners[:, 1], styles[alpha].colour, styles[alpha].width, styles[alpha].dashes)
    shares.title("Where the eigenvalues lie")
    shares.frame_left("eigenvalues (%)", most=5)
    shares.frame_below("log₁₀ of the eigenvalue", most=7)
    means = np.concatenate([values[:, 0] for values in ranks.values()] or [np.ones(1)])
    means = means[means > 0]
    scale = Scale(float(means.min()) / 1.3, max(float(means.max()), 1.0) * 1.3, decades=True)
    by_rank = Chart(sheet, right, Scale(0, max(map(len, ranks.values()), default=1) + 1), scale)
    by_rank.level(1, GREY, 0.8)
    for alpha, values in ranks.items():
        look, shown = styles[alpha], values[:, 0] > 0
        rank = np.arange(1, len(values) + 1)[shown]
        mean, spread = values[shown].T
        if np.isfinite(spread).any():
            by_rank.band(rank, np.maximum(mean - spread, mean / 10), mean + spread, look.colour, 0.15)
        by_rank.plot(rank, mean, look.colour, look.width, look.dashes)
    by_rank.title("Mean eigenvalue by rank")
    by_rank.frame_left("eigenvalue", most=5, far=38)
    by_rank.frame_below("rank", most=6)
    names = {alpha: f"α = {alpha:g}" + (" (FC)" if alpha == 1 else "") for alpha in ranks}
    by_rank.legend({name: (styles[alpha].colour, styles[alpha].dashes) for alpha, name in names.items()})
    return sheet.svg()


def _steps(edges: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Corners (n, 2) of a histogram in per cent, without its empty ends."""
    known = np.flatnonzero(shares)
    if not known.size:
        return np.zeros((0, 2))
    inside = slice(max(int(known[0]) - 1, 0), int(known[-1]) + 2)
    heights = 100 * shares[inside]
    ends = edges[inside.start : inside.start + len(heights) + 1]
    return np.column_stack([np.repeat(ends, 2)[1:-1], np.repeat(heights, 2)])


def draw_paths(panels: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], alphas: np.ndarray, star: float) -> str:
    """Draw quantities along the exponent: per panel its title, vertical label, and (people, A) arrays by name.

    People are thin lines, their mean is thick.
    """
    looks = (Look(AFTER, width=1.8), Look(BEFORE, "5 2.5", 1.8))
    sheet = Drawing(WIDE, 2.7)
    boxes = lay_out(sheet, 1, len(panels), (LEFT, 10, 20, BELOW), (54, 0))
    for box, (title, vertical, curves) in zip(boxes, panels, strict=True):
        chart = Chart(sheet, box, Scale(0, 1), reaching(*curves.values()))
        for values, look in zip(curves.values(), looks, strict=False):
            few = values[np.linspace(0, len(values) - 1, min(len(values), MOST_PEOPLE)).astype(int)]
            for person in few:
                chart.plot(alphas, person, look.colour, 0.5, stroke_opacity=0.3)
            chart.plot(alphas, values.mean(axis=0), look.colour, look.width, look.dashes)
        chart.upright(star, GREY, 1, "1 2")
        chart.title(title)
        chart.frame_left(vertical, most=5, far=38)
        chart.frame_below("exponent α (1 is FC)", most=5)
        if len(curves) > 1:
            chart.legend({name: (look.colour, look.dashes) for name, look in zip(curves, looks, strict=False)})
    return sheet.svg()


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
