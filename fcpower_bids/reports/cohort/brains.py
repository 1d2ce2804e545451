"""Connections and parcels drawn in a glass brain."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.columns import PARCEL_COLUMNS
from fcpower_bids.reports.cohort.tables import Cell, Grid, Sources, count, make_grid, missing
from fcpower_bids.reports.kit.images import colour_table, colours, encode_png
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.reports.kit.svg import DOTS, POINTS, Box, Drawing
from fcpower_bids.schema import Column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    import matplotlib  # slow to load, and most pages have none
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    svg: list[str] = []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        yield figure, svg
        buffer = io.StringIO()
        figure.dpi = DOTS
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # savefig draws twice
        svg.append(buffer.getvalue())


Place = tuple[float, float, float]
GLASS = (6.7, 2.5)
"""Inches of the three views."""
PIXELS, GREYS = 130, 8
"""Per inch of their outlines, and shades of grey."""
RADII = (1.7, 4.0)
"""Radii of dots between which the number of parcels decides, in points."""
MAP = "RdBu_r"
LISTED = 5
"""Parcels with the largest numbers that the panel names."""
SPACING, SMOOTHING = 4, 1.0
"""Of the points on the surface of the brain: mm, and the standard deviation of the smoothing in these steps."""


@dataclass(frozen=True)
class Brain:
    """Content of one brain: numbers of parcels, or of connections between them, the largest first."""

    parcels: tuple[str, ...]  # their names
    places: tuple[Place, ...]  # where they are, in mm of MNI space
    # which parcels each connection joins; empty where the numbers are those of the parcels themselves
    ends: tuple[tuple[int, int], ...]
    values: tuple[float, ...]  # one per connection, or per parcel
    column: Column  # meaning of the numbers
    grid: Grid  # the same as a table, a row per number in the same order


@dataclass(frozen=True)
class BrainPanel(Panel):
    """A panel with a drawn brain, and what the brain shows."""

    brain: Brain | None = None


def draw_connections(first: Sequence[Place], second: Sequence[Place], values: Sequence[float]) -> str:
    """Draw connections seen from the left, from above and from the right, as SVG text."""
    from nilearn.plotting import plot_connectome  # slow to load, and few pages draw brains

    ends = [tuple(map(float, place)) for place in (*first, *second)]
    nodes = sorted(set(ends))
    matrix = np.zeros((len(nodes), len(nodes)))
    for a, b, value in zip(ends[: len(values)], ends[len(values) :], values, strict=True):
        i, j = nodes.index(a), nodes.index(b)
        matrix[i, j] = matrix[j, i] = value
    with drawing(7.6, 2.5) as (figure, svg):
        plot_connectome(
            matrix,
            np.array(nodes),
            node_color="black",
            node_size=9,
            edge_cmap="RdBu_r",
            edge_kwargs={"linewidth": 1.6},
            display_mode="lzr",
            figure=figure,
            axes=(0, 0, 1, 1),
        )
        for axis in figure.axes:
            for patch in axis.patches:
                patch.set_rasterized(True)  # the outlines of the brain are large as curves
    return svg[0]


def draw_parcels(places: Sequence[Place], values: Sequence[float], label: str) -> str:
    """Draw parcels as dots seen from the left, from above and from the right, as SVG text."""
    outlines, views = glass_brain()
    order = np.argsort(np.abs(values), kind="stable")
    shown, at = np.asarray(values, dtype=float)[order], np.asarray(places, dtype=float)[order]
    limit = float(np.abs(shown).max()) or 1.0
    steps = np.round(127.5 * (1 + shown / limit)).astype(int)
    table, radius = colour_table(MAP), float(np.clip(40 / len(shown) ** 0.5, *RADII))
    sheet = Drawing(GLASS[0] + 0.9, GLASS[1])
    whole = Box(0, 0, GLASS[0] * POINTS, GLASS[1] * POINTS)
    sheet.image(whole, outlines, int(GLASS[0] * PIXELS))
    for axes, side, origin, slopes in views:
        seen = np.flatnonzero(side * at[:, 0] >= 0)
        ends = np.asarray(origin) + at[seen][:, list(axes)] * np.asarray(slopes)
        for (x, y), step in zip(ends, steps[seen], strict=True):
            sheet.add("circle", cx=x, cy=y, r=radius, fill=f"#{table[step]}")
    bar = Box(whole.right + 8, 0.15 * sheet.height, 9, 0.7 * sheet.height)
    sheet.image(bar, encode_png(colours(MAP)[::-1, None]), 256)
    for share, value in ((0.0, limit), (0.5, 0.0), (1.0, -limit)):
        sheet.text(bar.right + 3, bar.top + share * bar.height + 3, f"{value:.2g}", anchor="start")
    sheet.text(bar.left, bar.top - 8, label, anchor="start")
    return sheet.svg()


View = tuple[tuple[int, int], int, tuple[float, float], tuple[float, float]]
"""Two axes of space, the hemisphere (-1 left, 1 right, 0 both), and where a place in mm is: origin + slope * place."""


@lru_cache(maxsize=1)
def glass_brain() -> tuple[bytes, tuple[View, ...]]:
    """Outlines of a brain from the left, above and right as PNG of `GLASS` inches, and where places are in it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to load, and few pages draw brains
    from matplotlib.figure import Figure
    from nilearn.plotting import plot_glass_brain

    figure = Figure(figsize=GLASS, dpi=PIXELS)
    canvas = FigureCanvasAgg(figure)
    shown = plot_glass_brain(None, display_mode="lzr", figure=figure, axes=(0, 0, 1, 1))
    canvas.draw()
    grey = np.asarray(canvas.buffer_rgba())[..., 0]
    palette = np.repeat(np.linspace(0, 255, GREYS).round().astype(np.uint8)[:, None], 3, axis=1)
    outlines = encode_png(np.round(grey / 255 * (GREYS - 1)).astype(np.uint8), palette)
    views: list[View] = []
    for name, axes, side in (("l", (1, 2), -1), ("z", (0, 1), 0), ("r", (1, 2), 1)):
        corners = shown.axes[name].ax.transData.transform([(0, 0), (1, 1)]) * POINTS / PIXELS
        (x, y), (right, up) = corners
        views.append((axes, side, (x, GLASS[1] * POINTS - y), (right - x, y - up)))
    return outlines, tuple(views)


@lru_cache(maxsize=1)
def brain_surface() -> tuple[np.ndarray, np.ndarray]:
    """Return the surface of the brain: corners (n, 3) in mm of MNI space, faces (m, 4) as places of their corners."""
    # slow to load, and few pages draw brains
    from nilearn.datasets import load_mni152_brain_mask
    from scipy import ndimage

    mask = load_mni152_brain_mask(resolution=SPACING)
    field = ndimage.gaussian_filter(np.asarray(mask.dataobj, dtype=np.float64), SMOOTHING) - 0.5
    cubes = tuple(size - 1 for size in field.shape)
    sums, crossed = np.zeros((*cubes, 3)), np.zeros(cubes)
    for axis in range(3):
        ahead = np.eye(3, dtype=int)[axis]
        for start in np.ndindex(*(2 - ahead)):
            near, far = (field[_window(np.array(start) + step, cubes)] for step in (0 * ahead, ahead))
            differ = (near > 0) != (far > 0)
            share = np.where(differ, near / np.where(differ, near - far, 1.0), 0.0)
            sums += np.where(differ[..., None], np.array(start) + share[..., None] * ahead, 0.0)
            crossed += differ
    at = np.argwhere(crossed > 0)
    number = np.full(cubes, -1)
    number[tuple(at.T)] = np.arange(len(at))
    corners = at + sums[tuple(at.T)] / crossed[tuple(at.T)][:, None]
    faces = np.concatenate([_faces(field, number, axis) for axis in range(3)])
    return corners @ mask.affine[:3, :3].T + mask.affine[:3, 3], faces


def _window(start: np.ndarray, size: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(int(first), int(first) + n) for first, n in zip(start, size, strict=True))


def _faces(field: np.ndarray, number: np.ndarray, axis: int) -> np.ndarray:
    """Return the faces around the sides of the grid along one axis: the four cubes that share each crossed side."""
    field, number = (np.moveaxis(one, (axis, (axis + 1) % 3, (axis + 2) % 3), (0, 1, 2)) for one in (field, number))
    outward = np.sign((field[:-1] > 0).astype(int) - (field[1:] > 0))[:, 1:-1, 1:-1]
    i, j, k = np.nonzero(outward)
    faces = np.stack([number[i, j + dj, k + dk] for dj, dk in ((0, 0), (1, 0), (1, 1), (0, 1))], axis=1)
    return np.where(outward[i, j, k][:, None] > 0, faces, faces[:, ::-1])


def connections_panel(
    part: pd.DataFrame,
    places: Mapping[str, Place],
    columns: Sequence[Column],
    title: str,
    text: str,
    sources: Sources,
) -> BrainPanel | None:
    """Draw one number per connection; None where no place is known."""
    known = part[part["parcel_a"].isin(list(places)) & part["parcel_b"].isin(list(places))]
    if known.empty:
        return None
    ends = known[["parcel_a", "parcel_b"]].astype(str).to_numpy()
    names = sorted(set(ends.ravel().tolist()))
    number = {name: i for i, name in enumerate(names)}
    values = known[columns[-1].key].tolist()
    brain = Brain(
        tuple(names),
        tuple(places[name] for name in names),
        tuple((number[a], number[b]) for a, b in ends),
        tuple(values),
        columns[-1],
        make_grid(known, columns, sources=sources),
    )
    first, second = ([places[name] for name in side] for side in ends.T)
    return BrainPanel(
        title,
        text,
        draw_connections(first, second, values),
        f"{count(len(values), 'connection')} in a brain seen from the left, from above and from the right.",
        sources=sources,
        wide=True,
        brain=brain,
    )


def parcels_panel(part: pd.DataFrame, column: Column, title: str, text: str, sources: Sources) -> BrainPanel | None:
    """Draw one number per parcel; None where no place is known."""
    if not set("xyz") <= set(part.columns):
        return None
    known = part[part[["x", "y", "z", column.key]].notna().all(axis=1)]
    if known.empty:
        return None
    known = known.loc[known[column.key].abs().sort_values(ascending=False, kind="stable").index]
    values = known[column.key].tolist()
    places = tuple(known[["x", "y", "z"]].itertuples(index=False, name=None))
    columns = (*PARCEL_COLUMNS.values(), column)
    cells = {column.key: lambda value: Cell(_show(value, column.digits), value)}
    grid = make_grid(known, [one for one in columns if one.key not in "xyz"], sources=sources, cells=cells)
    brain = Brain(tuple(known["parcel"].astype(str)), places, (), tuple(values), column, grid)
    return BrainPanel(
        title,
        text,
        draw_parcels(places, values, column.heading),
        f"{len(known)} parcels in a brain seen from the left, from above and from the right.",
        rows=tuple((_name(row), _show(row[column.key], column.digits)) for _, row in known.head(LISTED).iterrows()),
        sources=sources,
        wide=True,
        brain=brain,
    )


def _name(row: pd.Series) -> str:
    return str(row["parcel"]) if missing(row["network"]) else f"{row['parcel']} ({row['network']})"


def _show(value: float, digits: int) -> str:
    """With so many decimals; smaller numbers with three figures."""
    return f"{value:.{digits}f}" if abs(value) >= 10.0 ** (1 - digits) else f"{value:.3g}"
