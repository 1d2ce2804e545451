"""A recording on its own brain: mask and parcels on the temporal mean, temporal SNR, coverage."""

from __future__ import annotations

import numpy as np

from fcpower_bids.records import Slices
from fcpower_bids.reports.kit.figures import draw_bar
from fcpower_bids.reports.kit.images import STEPS, colours, encode_png, step_of
from fcpower_bids.reports.kit.svg import POINTS, Box, Drawing, Scale

MASK, PARCELS, UNCOVERED = (230, 159, 0), (86, 180, 233), (213, 94, 0)
"""Okabe and Ito's orange, sky blue and vermilion."""
SEEN_THROUGH = 0.35
"""Share of the anatomy in the colour of a parcel."""


def median_tsnr(slices: Slices) -> float:
    """Median over the voxels of the brain that are shown; NaN where none has a value."""
    known = slices.tsnr[slices.brain & np.isfinite(slices.tsnr)]
    return float(np.median(known.astype(np.float64))) if known.size else float("nan")


def draw_brain(slices: Slices, coverage: np.ndarray, threshold: float) -> str:
    """Draw three rows of axial slices: outlines on the mean, temporal SNR, coverage of the parcels.

    Shapes and units: coverage (P,).
    """
    stability = np.where(slices.brain, slices.tsnr.astype(np.float64), np.nan)
    known = stability[np.isfinite(stability)]
    highest = max(float(np.percentile(known, 98)), 1e-6) if known.size else 1.0
    inferno, cividis = colours("inferno", STEPS), colours("cividis")
    grey = np.repeat((slices.mean // (256 // STEPS) * (256 // STEPS))[..., None], 3, axis=-1).astype(np.uint8)
    rows = (
        ("mean", _beside(outline(grey, slices)), None),
        ("temporal SNR", _beside(step_of(np.nan_to_num(stability), 0, highest)), inferno),
        ("coverage", _beside(paint_coverage(grey, slices, coverage, threshold)), None),
    )
    n, height, width = slices.mean.shape
    wide = 8.9 * POINTS
    tall = wide / (n * width) * height
    drawing = Drawing(9.6, (3 * tall + 14) / POINTS)
    boxes = [Box(0.025 * drawing.width, number * tall, wide, tall) for number in range(3)]
    for box, (title, picture, palette) in zip(boxes, rows, strict=True):
        drawing.image(box, encode_png(picture, palette), picture.shape[1])
        drawing.text(box.left - 5, box.top + tall / 2, title, 8, turned=True)
        for place, side in ((0.03, "L"), (n - 0.03, "R")):
            drawing.text(box.left + place / n * wide, box.bottom - 3, side, 8, fill="#fff", font_weight="bold")
    for number, z in enumerate(slices.heights):
        drawing.text(boxes[2].left + (number + 0.5) / n * wide, boxes[2].bottom + 10, f"z = {z:.0f}", 7.5)
    for box, palette, reach in ((boxes[1], inferno, highest), (boxes[2], cividis, 1.0)):
        bar = Box(0.96 * drawing.width, box.top + 0.15 * tall, 6.2, 0.7 * tall)
        draw_bar(drawing, bar, palette, Scale(0.0, reach), size=7)
    mark_limit(drawing, bar, threshold)
    return drawing.svg()


def _beside(pictures: np.ndarray) -> np.ndarray:
    """Put slices (n, rows, columns, ...) side by side."""
    return np.concatenate(list(pictures), axis=1)


def mark_limit(drawing: Drawing, bar: Box, threshold: float) -> None:
    """Give the colours of coverage below the threshold the one that says so."""
    below = Box(bar.left, bar.bottom - threshold * bar.height, bar.width, threshold * bar.height)
    drawing.rectangle(below, "#" + bytes(UNCOVERED).hex())


def outline(grey: np.ndarray, slices: Slices) -> np.ndarray:
    """Draw borders of parcels and of the mask on slices (n, rows, columns, 3), at twice their resolution."""
    shown, brain, parcels = (
        one.repeat(2, axis=1).repeat(2, axis=2) for one in (grey, slices.brain, slices.parcels.astype(np.int32))
    )
    inner = borders(parcels)
    shown[inner] = (0.4 * shown[inner] + 0.6 * np.array(PARCELS)).astype(np.uint8)
    shown[borders(brain)] = MASK
    return shown


def borders(regions: np.ndarray) -> np.ndarray:
    """Return which pixels (n, rows, columns) lie in a region and next to a pixel of another one."""
    found = np.zeros(regions.shape, dtype=bool)
    for axis in (1, 2):
        one, other = np.moveaxis(regions, axis, 0)[:-1], np.moveaxis(regions, axis, 0)[1:]
        seen = np.moveaxis(found, axis, 0)
        differ = one != other
        seen[:-1] |= differ & (one > 0)
        seen[1:] |= differ & (other > 0)
    return found


def paint_coverage(grey: np.ndarray, slices: Slices, coverage: np.ndarray, threshold: float) -> np.ndarray:
    """Colour parcels by their coverage over the anatomy (n, rows, columns, 3).

    Parcels below the threshold, and the parts of others outside the mask, are vermilion; outside it nothing shines
    through.
    """
    seen = colours("cividis", STEPS)[step_of(np.nan_to_num(coverage), 0, 1)].astype(np.float64)
    seen[~(coverage >= threshold)] = UNCOVERED
    shown = grey.copy()
    within = slices.parcels > 0
    mixed = SEEN_THROUGH * grey[within] + (1 - SEEN_THROUGH) * seen[slices.parcels[within].astype(int) - 1]
    shown[within] = mixed.astype(np.uint8)
    shown[within & ~slices.brain] = UNCOVERED
    return shown
