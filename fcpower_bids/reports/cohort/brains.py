"""Connections and parcels drawn in the outline of a brain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.tables import Sources, count, missing
from fcpower_bids.reports.kit.images import colour_table, colours, encode_png
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.reports.kit.svg import POINTS, Box, Drawing
from fcpower_bids.schema import Column

Place = tuple[float, float, float]
"""Where a parcel is, in mm of MNI space."""
VIEWS = (((1, 2), -1), ((0, 1), 0), ((1, 2), 1))
"""Two axes of space and the hemisphere (-1 left, 1 right, 0 both), from the left, from above and from the right."""
SCALE, GAP = 0.75, 12.0
"""Points per mm, and between two views."""
RADII = (1.7, 4.0)
"""Radii of dots between which the number of parcels decides, in points."""
MAP = "RdBu_r"
LISTED = 5
"""Parcels with the largest numbers that the panel names."""


@lru_cache(maxsize=1)
def outlines() -> tuple[tuple[bytes, tuple[float, float], tuple[float, float]], ...]:
    """Return a brain from the left, above and right as PNG, with the lowest and highest mm of its two axes."""
    from nilearn.datasets import load_mni152_brain_mask  # slow to load, and few pages draw brains

    mask = load_mni152_brain_mask(resolution=2)
    inside, affine = np.asarray(mask.dataobj) > 0, mask.affine
    palette = np.array([[255, 255, 255], [233, 236, 239], [120, 128, 136]], dtype=np.uint8)
    views = []
    for axes, _ in VIEWS:
        shape = inside.any(axis=({0, 1, 2} - set(axes)).pop())
        inner = shape.copy()
        for axis in (0, 1):
            inner &= np.roll(shape, 1, axis) & np.roll(shape, -1, axis)
        pixels = np.where(inner, 1, np.where(shape, 2, 0)).astype(np.uint8).T[::-1]
        low = [affine[axis, 3] - 0.5 * affine[axis, axis] for axis in axes]
        high = [start + affine[axis, axis] * size for start, axis, size in zip(low, axes, shape.shape, strict=True)]
        views.append((encode_png(pixels, palette), (low[0], high[0]), (low[1], high[1])))
    return tuple(views)


def draw_brain(places: Sequence[Place], ends: Sequence[tuple[int, int]], values: Sequence[float], label: str) -> str:
    """Draw a number for each place, or for each connection (two places), as SVG text; the largest lie on top."""
    at, shown = np.asarray(places, dtype=float), np.asarray(values, dtype=float)
    limit = float(np.abs(shown).max()) or 1.0
    table, steps = colour_table(MAP), np.round(127.5 * (1 + shown / limit)).astype(int)
    views = outlines()
    widths = [SCALE * (across[1] - across[0]) for _, across, _ in views]
    height = max(SCALE * (down[1] - down[0]) for *_, down in views)
    sheet = Drawing((sum(widths) + GAP * len(views) + 60) / POINTS, height / POINTS)
    left, radius = 0.0, float(np.clip(40 / max(1, len(at)) ** 0.5, *RADII))
    for (png, across, down), (axes, side), width in zip(views, VIEWS, widths, strict=True):
        sheet.image(Box(left, 0, width, SCALE * (down[1] - down[0])), png, 100)
        x, y = left + SCALE * (at[:, axes[0]] - across[0]), SCALE * (down[1] - at[:, axes[1]])
        seen = side * at[:, 0] >= 0
        for number in np.argsort(np.abs(shown), kind="stable").tolist():
            colour = f"#{table[steps[number]]}"
            if not ends:
                if seen[number]:
                    sheet.add("circle", cx=x[number], cy=y[number], r=radius, fill=colour)
                continue
            a, b = ends[number]
            if seen[a] and seen[b]:
                sheet.line((x[a], x[b]), (y[a], y[b]), colour, 1.4)
                for end in (a, b):
                    sheet.add("circle", cx=x[end], cy=y[end], r=1.7, fill="#000")
        left += width + GAP
    bar = Box(left + 6, 0.15 * sheet.height, 9, 0.7 * sheet.height)
    sheet.image(bar, encode_png(colours(MAP)[::-1, None]), 256)
    for share, value in ((0.0, limit), (0.5, 0.0), (1.0, -limit)):
        sheet.text(bar.right + 3, bar.top + share * bar.height + 3, f"{value:.2g}", anchor="start")
    sheet.text(bar.left, bar.top - 8, label, anchor="start")
    return sheet.svg()


def connections_panel(
    part: pd.DataFrame,
    places: Mapping[str, Place],
    columns: Sequence[Column],
    title: str,
    text: str,
    sources: Sources,
) -> Panel | None:
    """Draw one number per connection; None where no place is known."""
    known = part[part["parcel_a"].isin(list(places)) & part["parcel_b"].isin(list(places))]
    if known.empty:
        return None
    ends = known[["parcel_a", "parcel_b"]].astype(str).to_numpy()
    names = sorted(set(ends.ravel().tolist()))
    number = {name: i for i, name in enumerate(names)}
    values = known[columns[-1].key].tolist()
    joined = [(number[a], number[b]) for a, b in ends]
    return Panel(
        title,
        text,
        draw_brain([places[name] for name in names], joined, values, columns[-1].heading),
        f"{count(len(values), 'connection')} in a brain seen from the left, from above and from the right.",
        sources=sources,
        wide=True,
    )


def parcels_panel(part: pd.DataFrame, column: Column, title: str, text: str, sources: Sources) -> Panel | None:
    """Draw one number per parcel; None where no place is known."""
    if not set("xyz") <= set(part.columns):
        return None
    known = part[part[["x", "y", "z", column.key]].notna().all(axis=1)]
    if known.empty:
        return None
    known = known.loc[known[column.key].abs().sort_values(ascending=False, kind="stable").index]
    places = list(known[["x", "y", "z"]].itertuples(index=False, name=None))
    return Panel(
        title,
        text,
        draw_brain(places, (), known[column.key].tolist(), column.heading),
        f"{len(known)} parcels in a brain seen from the left, from above and from the right.",
        rows=tuple((_name(row), _show(row[column.key], column.digits)) for _, row in known.head(LISTED).iterrows()),
        sources=sources,
        wide=True,
    )


def _name(row: pd.Series) -> str:
    return str(row["parcel"]) if missing(row["network"]) else f"{row['parcel']} ({row['network']})"


def _show(value: float, digits: int) -> str:
    """With so many decimals; smaller numbers with three figures."""
    return f"{value:.{digits}f}" if abs(value) >= 10.0 ** (1 - digits) else f"{value:.3g}"
