"""The spectra of the cohort: where the eigenvalues go, how far FC^alpha is from FC, and how that looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.methods import Paragraph, describe_table
from fcpower_bids.reports.cohort.tables import GroupTables, Part, Section, count
from fcpower_bids.reports.kit.charts import GREY, Chart, lay_out, reaching
from fcpower_bids.reports.kit.figures import AFTER, BEFORE, draw_powers
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.reports.kit.svg import Drawing, Scale

HISTOGRAM, RANKS, PATH, SPHERE, MATRICES = (
    f"spectrum_{name}" for name in ("histogram", "ranks", "path", "sphere", "matrices")
)
DRAWN_HISTOGRAMS = (0.1, 0.5, 1.0)
N_BINS = 50
"""Bins of a drawn histogram; those of the table are put together."""
DRAWN_RANKS = (0.0, 0.1, 0.6, 1.0)
"""Exponents of the curves by rank, in addition to that of FC^alpha."""


def spectrum_section(tables: GroupTables) -> list[Section]:
    """Say how even the spectra become, and draw their path from the identity to FC."""
    path = tables.frame(PATH)
    if path is None:
        return []
    panels = (
        *_spectra_panels(tables),
        *_matrices_panels(tables),
        *_path_panels(path, tables),
        *_sphere_panels(tables),
    )
    return [Section("spectrum", "The spectrum", tuple(_sentences(path, tables)), panels)]


def _sentences(path: pd.DataFrame, tables: GroupTables) -> Iterator[str]:
    means: dict[str, Any] = tables.facts(PATH).get("Means", {})
    n = path["participant_id"].nunique()
    power = tables.title("fc_power")
    if {"participation_ratio", "participation_ratio_power"} <= set(means):
        yield (
            f"Over {count(n, 'person', 'people')} the effective number of eigenvectors (participation ratio) goes from "
            f"{means['participation_ratio']:.1f} for FC to {means['participation_ratio_power']:.1f} for {power} (mean; "
            "all scans of a person together)."
        )
    if {"first_to_twentieth", "first_to_twentieth_power"} <= set(means):
        yield (
            f"The first eigenvalue is {means['first_to_twentieth']:.1f} times the twentieth in FC and "
            f"{means['first_to_twentieth_power']:.1f} times in {power}."
        )
    clipped = int(tables.facts(PATH).get("RankDeficient", 0))
    if clipped:
        yield (
            f"{count(clipped, 'person', 'people')} {'has' if clipped == 1 else 'have'} connectomes of incomplete rank "
            "(fewer independent volumes than parcels): eigenvalues that are zero to rounding stay zero."
        )
    yield "This describes the connectomes; it does not say whether they predict anything."


def _spectra_panels(tables: GroupTables) -> Iterator[Panel]:
    histogram, ranks = tables.frame(HISTOGRAM), tables.frame(RANKS)
    if histogram is None or ranks is None:
        return
    bins = {}
    for alpha, part in histogram.groupby("alpha"):
        if alpha in {*DRAWN_HISTOGRAMS, tables.alpha}:
            bins[float(str(alpha))] = coarser(part)
    wanted = {*DRAWN_RANKS, tables.alpha}
    by_rank = {
        float(str(alpha)): part.sort_values("rank", kind="stable")[["mean", "sd"]].to_numpy(dtype=float)
        for alpha, part in ranks.groupby("alpha")
        if alpha in wanted
    }
    drawn = ", ".join(f"{alpha:g}" for alpha in bins)
    yield Panel(
        "Eigenvalues at several exponents",
        f"Left: all eigenvalues of all people, at α = {drawn}; the smaller α, the narrower. Right: mean over people by "
        "rank, bands one standard deviation. All are 1 at α = 0; the order of the eigenvectors never changes. Zero "
        "eigenvalues are not shown.",
        draw_spectra(bins, by_rank, tables.alpha),
        f"Histograms of the eigenvalues at exponents {drawn}, and mean eigenvalues by rank.",
        sources=tables.links(HISTOGRAM, RANKS),
        wide=True,
    )


def coarser(part: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Put neighbouring bins of a histogram together; return edges and shares."""
    edges = np.append(part["low"].to_numpy(dtype=float), float(part["high"].iloc[-1]))
    starts = np.arange(0, len(part), max(1, len(part) // N_BINS))
    return edges[[*starts, len(part)]], np.add.reduceat(part["share"].to_numpy(dtype=float), starts)


def _path_panels(path: pd.DataFrame, tables: GroupTables) -> Iterator[Panel]:
    def people(column: str) -> np.ndarray:
        return path.pivot_table(column, "participant_id", "alpha", dropna=False).to_numpy(dtype=float)

    alphas = np.sort(path["alpha"].unique()).astype(float)
    panels: list[tuple[str, str, dict[str, np.ndarray]]] = [
        ("Effective number of eigenvectors", "participation ratio", {"": people("participation_ratio")}),
        ("Heat trace", "Z(α)", {"": people("heat_trace")}),
    ]
    away, rest = people("from_identity"), people("to_fc")
    known = np.isfinite(away).all(axis=1) & np.isfinite(rest).all(axis=1)
    if known.any():
        distances = {"from the identity": away[known], "to FC": rest[known]}
        panels.append(("Distance", "log-Euclidean distance", distances))
    else:
        panels[-1] = ("Heat trace (distances need full rank)", *panels[-1][1:])
    ratio = panels[0][2][""].mean(axis=0)
    said = f"participation ratio {ratio[-1]:.1f} at α = {alphas[-1]:g}, {ratio[0]:.1f} at α = {alphas[0]:g}"
    yield Panel(
        "Along the exponent",
        f"Thin lines are people, the thick line is their mean, dotted: α = {tables.alpha:g}. Mean {said}.",
        draw_paths(panels, alphas, tables.alpha),
        f"Participation ratio, heat trace and distances against the exponent; mean {said}.",
        sources=tables.links(PATH),
        wide=True,
    )


def _sphere_panels(tables: GroupTables) -> Iterator[Panel]:
    sphere = tables.frame(SPHERE)
    if sphere is None or not (sphere["radius"] > 0).all():
        return
    modes = {}
    for alpha, part in sphere.groupby("alpha", sort=False):
        title = "FC" if alpha == 1 else tables.title("fc_power")
        modes[title] = (part[["x", "y"]].to_numpy(dtype=float), float(part["radius"].iloc[0]))
    said = "; ".join(
        f"{title}: {int((np.linalg.norm(places, axis=1) > radius).sum())}" for title, (places, radius) in modes.items()
    )
    yield Panel(
        "Scaled eigenvectors",
        "Each line is an eigenvector of the mean FC, as long as its eigenvalue, in a random projection. The disc is as "
        f"large as the 20th eigenvalue (or the last). Lines that leave it: {said}.",
        draw_sphere(modes),
        f"Eigenvectors as lines around a disc, for {' and '.join(modes)}; lines that leave the disc: {said}.",
        sources=tables.links(SPHERE),
    )


def _matrices_panels(tables: GroupTables) -> Iterator[Panel]:
    table = tables.frame(MATRICES)
    if table is None:
        return
    matrices = {float(str(alpha)): square(part) for alpha, part in table.groupby("alpha")}
    person = str(tables.facts(MATRICES).get("Person", "one person"))
    exponents = ", ".join(f"{alpha:g}" for alpha in matrices)
    yield Panel(
        "One connectome at several exponents",
        f"FC^α of {person}, whose participation ratio is the median of the cohort, over its largest eigenvalue, on one "
        "colour scale, parcels in the order of the atlas. α = 1 is FC, α = 0 the identity if FC is of full rank.",
        draw_powers(matrices),
        f"Matrices of one person at the exponents {exponents}; the smaller the exponent, the weaker the blocks.",
        sources=tables.links(MATRICES),
        wide=True,
    )


def square(part: pd.DataFrame) -> np.ndarray:
    """Return the symmetric matrix of a table that has each pair once, row by row, with the diagonal."""
    size = int((np.sqrt(8 * len(part) + 1) - 1) / 2)
    matrix = np.empty((size, size))
    first, second = np.triu_indices(size)
    matrix[first, second] = matrix[second, first] = part["value"].to_numpy(dtype=float)
    return matrix


MOST_PEOPLE = 150
"""People whose own curve is drawn behind the mean."""
MANY_MODES = 60
"""More eigenvectors are drawn as thinner arrows."""


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
    histograms: Mapping[float, tuple[np.ndarray, np.ndarray]],
    ranks: Mapping[float, np.ndarray],
    star: float,
) -> str:
    """Draw where the eigenvalues lie, and their mean by rank, for several exponents. Shapes and units: ranks (P, 2)."""
    sheet = Drawing(9.6, 3.0)
    left, right = lay_out(sheet, 1, 2, (46, 10, 20, 32), (58, 0))
    styles = exponent_styles([*histograms, *ranks], star)
    steps = {alpha: _steps(*one) for alpha, one in histograms.items()}
    x = reaching(*(one[:, 0] for one in steps.values()), 0.0)
    shares = Chart(sheet, left, x, Scale(0, reaching(*(one[:, 1] for one in steps.values())).high))
    shares.upright(0, GREY, 0.8)
    for alpha, one in steps.items():
        shares.plot(one[:, 0], one[:, 1], styles[alpha].colour, styles[alpha].width, styles[alpha].dashes)
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
    by_rank.legend({_name(alpha): (styles[alpha].colour, styles[alpha].dashes) for alpha in ranks})
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


def _name(alpha: float) -> str:
    return f"α = {alpha:g}" + (" (FC)" if alpha == 1 else "")


def draw_paths(panels: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], alphas: np.ndarray, star: float) -> str:
    """Draw quantities along the exponent: per panel its title, vertical label, and (people, A) arrays by name.

    People are thin lines, their mean is thick.
    """
    looks = (Look(AFTER, width=1.8), Look(BEFORE, "5 2.5", 1.8))
    sheet = Drawing(9.6, 2.7)
    boxes = lay_out(sheet, 1, len(panels), (46, 10, 20, 32), (54, 0))
    for box, (title, vertical, curves) in zip(boxes, panels, strict=True):
        chart = Chart(sheet, box, Scale(0, 1), reaching(*curves.values()))
        for values, look in zip(curves.values(), looks, strict=False):
            few = values[np.linspace(0, len(values) - 1, min(len(values), MOST_PEOPLE)).astype(int)]
            for one in few:
                chart.plot(alphas, one, look.colour, 0.5, stroke_opacity=0.3)
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
    sheet = Drawing(4.8, 2.7)
    boxes = lay_out(sheet, 1, len(modes), (6, 6, 20, 6), (6, 0))
    for box, (title, (places, radius)), colour in zip(boxes, modes.items(), (BEFORE, AFTER), strict=False):
        side = min(box.width, box.height)
        square = box._replace(left=box.left + (box.width - side) / 2, width=side, height=side)
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


PART = Part(spectrum_section, "spectrum", "The spectrum", place=160, quoted=True)
METHODS = Paragraph(
    "spectrum_geometry", "spectrum_path", Path(__file__).with_name("methods_geometry.md"), describe_table
)
