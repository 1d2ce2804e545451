"""A recording on its own brain: mask and parcels on the temporal mean, temporal SNR, coverage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from fcpower_bids.records import Slices
from fcpower_bids.records.recordings import AXIAL, CORONAL, SAGITTAL
from fcpower_bids.reports.kit.figures import draw_bar
from fcpower_bids.reports.kit.images import STEPS, colours, encode_png, step_of
from fcpower_bids.reports.kit.svg import POINTS, Axes, Box, Drawing, Scale
from fcpower_bids.reports.person.recording_facts import Parcellation

MASK, ATLAS, UNCOVERED, TEMPLATE = (230, 159, 0), (86, 180, 233), (213, 94, 0), (204, 121, 167)
"""Okabe and Ito's orange, sky blue, vermilion and reddish purple."""
WHITE_MATTER = 2
SEEN_THROUGH = 0.35
"""Share of the anatomy in the colour of a parcel."""


def median_tsnr(slices: Slices) -> float:
    """Median over the voxels of the brain that are shown; NaN where none has a value."""
    axial = slices.planes == AXIAL
    known = slices.tsnr[axial][slices.brain[axial] & np.isfinite(slices.tsnr[axial])]
    return float(np.median(known.astype(np.float64))) if known.size else float("nan")


def draw_brain(slices: Slices, coverage: np.ndarray, threshold: float) -> str:
    """Draw rows of slices: outlines on the mean, temporal SNR, coverage (P,), and this from side and front."""
    axial = slices.of(AXIAL)
    stability = np.where(axial.brain, axial.tsnr.astype(np.float64), np.nan)
    known = stability[np.isfinite(stability)]
    highest = max(float(np.percentile(known, 98)), 1e-6) if known.size else 1.0
    inferno, cividis = colours("inferno", STEPS), colours("cividis")
    sides = [one for one in (slices.of(SAGITTAL), slices.of(CORONAL)) if len(one.mean)]
    painted, *turned = (paint_coverage(_grey(one), one, coverage, threshold) for one in (axial, *sides))
    turned = [outline(picture, one, of_mask_only=True) for picture, one in zip(turned, sides, strict=True)]
    rows: list[tuple[str, np.ndarray, np.ndarray | None]] = [
        ("mean", _beside(outline(_grey(axial), axial)), None),
        ("temporal SNR", _beside(step_of(np.nan_to_num(stability), 0, highest)), inferno),
        ("coverage", _beside(painted), None),
        *([("from side, front", _joined(turned), None)] if turned else []),
    ]
    wide = 8.9 * POINTS
    heights = [wide / picture.shape[1] * picture.shape[0] for _, picture, _ in rows]
    drawing = Drawing(9.6, (sum(heights) + 14 * (len(rows) - 2)) / POINTS)
    tops = np.cumsum([0, *heights[:2], heights[2] + 14])
    boxes = [Box(0.025 * drawing.width, top, wide, tall) for top, tall in zip(tops, heights, strict=False)]
    for box, (title, picture, palette) in zip(boxes, rows, strict=True):
        drawing.image(box, encode_png(picture, palette), picture.shape[1])
        drawing.text(box.left - 5, box.top + box.height / 2, title, 8, turned=True)
    n = len(axial.mean)
    for box in boxes[:3]:
        for place, side in ((0.03, "L"), (n - 0.03, "R")):
            drawing.text(box.left + place / n * wide, box.bottom - 3, side, 8, fill="#fff", font_weight="bold")
    _name_places(drawing, boxes[2], (axial,))
    if turned:
        _name_places(drawing, boxes[3], sides)
    for box, palette, reach in ((boxes[1], inferno, highest), (boxes[2], cividis, 1.0)):
        bar = Box(0.96 * drawing.width, box.top + 0.15 * box.height, 6.2, 0.7 * box.height)
        draw_bar(drawing, bar, palette, Scale(0.0, reach), size=7)
    mark_limit(drawing, bar, threshold)
    return drawing.svg()


def _grey(slices: Slices) -> np.ndarray:
    return np.repeat((slices.mean // (256 // STEPS) * (256 // STEPS))[..., None], 3, axis=-1).astype(np.uint8)


def _name_places(drawing: Drawing, row: Box, groups: Sequence[Slices]) -> None:
    """Write where each slice lies below it."""
    widths = [one.mean.shape[2] for one in groups for _ in one.heights]
    names = [
        f"{'xyz'[plane]} = {place:.0f}" for one in groups for plane, place in zip(one.planes, one.heights, strict=True)
    ]
    for name, width, end in zip(names, widths, np.cumsum(widths), strict=True):
        drawing.text(row.left + (end - width / 2) / sum(widths) * row.width, row.bottom + 10, name, 7.5)


def _joined(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Put slices of several sizes side by side, on black."""
    tall = max(one.shape[1] for one in pictures)
    rows = [((tall - one.shape[1]) // 2, tall - one.shape[1] - (tall - one.shape[1]) // 2) for one in pictures]
    padded = [np.pad(one, ((0, 0), room, (0, 0), (0, 0))) for one, room in zip(pictures, rows, strict=True)]
    return np.concatenate([_beside(one) for one in padded], axis=1)


def _beside(pictures: np.ndarray) -> np.ndarray:
    """Put slices (n, rows, columns, ...) side by side."""
    return np.concatenate(list(pictures), axis=1)


def mark_limit(drawing: Drawing, bar: Box, threshold: float) -> None:
    """Give the colours of coverage below the threshold the one that says so."""
    below = Box(bar.left, bar.bottom - threshold * bar.height, bar.width, threshold * bar.height)
    drawing.rectangle(below, "#" + bytes(UNCOVERED).hex())


def outline(grey: np.ndarray, slices: Slices, of_mask_only: bool = False) -> np.ndarray:
    """Draw on slices (n, rows, columns, 3), at twice their resolution, the rims of white matter, atlas and mask."""
    shown, brain, parcels, template = (
        one.repeat(2, axis=1).repeat(2, axis=2) for one in (grey, slices.brain, slices.parcels, slices.template)
    )
    if not of_mask_only:
        for within, colour in ((parcels > 0, ATLAS), (template == WHITE_MATTER, TEMPLATE)):
            rim = borders(within)
            shown[rim] = (0.3 * shown[rim] + 0.7 * np.array(colour)).astype(np.uint8)
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
    """Colour parcels by their coverage over the anatomy (n, rows, columns, 3)."""
    seen = colours("cividis", STEPS)[step_of(np.nan_to_num(coverage), 0, 1)].astype(np.float64)
    seen[~(coverage >= threshold)] = UNCOVERED
    shown = grey.copy()
    within = slices.parcels > 0
    mixed = SEEN_THROUGH * grey[within] + (1 - SEEN_THROUGH) * seen[slices.parcels[within].astype(int) - 1]
    shown[within] = mixed.astype(np.uint8)
    shown[within & ~slices.brain] = UNCOVERED
    return shown


LIMIT, BARS = "#D55E00", "#0072B2"
N_SLICES = 9
LARGEST = 110
"""Voxels of a slice along its longer side; finer atlases are thinned out for the drawing."""


def draw_coverage(parcellation: Parcellation, coverage: np.ndarray, threshold: float) -> str:
    """Draw the share of each parcel that the scan has seen; parcels below the threshold stand out. Coverage (P,)."""
    if parcellation.image.name.endswith(".dlabel.nii") or not parcellation.image.exists():
        return _draw_by_network(parcellation.networks, coverage, threshold)
    slices, heights = axial_slices(parcellation.image)
    return _draw_on_brain(slices, heights, parcellation.table["index"].to_numpy(dtype=int), coverage, threshold)


@lru_cache(maxsize=4)
def axial_slices(image: Path) -> tuple[np.ndarray, tuple[float, ...]]:
    """Cut a label image into axial slices, seen from above with the person's left on the left."""
    import nibabel  # slow to load

    volume = nibabel.as_closest_canonical(nibabel.load(image))  # type: ignore[no-untyped-call]
    labels = np.asanyarray(volume.dataobj).astype(np.int32).reshape(volume.shape[:3])
    used = [np.flatnonzero(labels.any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1))]
    labels = labels[used[0][0] : used[0][-1] + 1, used[1][0] : used[1][-1] + 1]
    places = np.linspace(used[2][0], used[2][-1], N_SLICES + 2)[1:-1].round().astype(int)
    step = max(1, -(-max(labels.shape[:2]) // LARGEST))
    slices = np.stack([labels[::step, ::step, place].T[::-1] for place in places])
    return slices, tuple(float((volume.affine @ [0, 0, place, 1])[2]) for place in places)


def _draw_on_brain(
    slices: np.ndarray, heights: tuple[float, ...], labels: np.ndarray, coverage: np.ndarray, threshold: float
) -> str:
    seen = colours("cividis")[step_of(np.nan_to_num(coverage), 0, 1, 256)]
    seen[~(coverage >= threshold)] = UNCOVERED
    lookup = np.full((max(int(labels.max()), int(slices.max())) + 1, 3), 255, dtype=np.uint8)
    lookup[labels] = seen
    gap = np.zeros((slices.shape[1], 3), dtype=slices.dtype)
    mosaic = np.concatenate([part for one in slices for part in (one, gap)], axis=1)
    drawing = Drawing(9.6, 1.75)
    room = Box(0, 0.02 * drawing.height, 0.92 * drawing.width, 0.9 * drawing.height)
    tall = min(room.height, room.width * mosaic.shape[0] / mosaic.shape[1])
    box = Box(room.left, room.top + (room.height - tall) / 2, tall * mosaic.shape[1] / mosaic.shape[0], tall)
    drawing.image(box, encode_png(lookup[mosaic]), mosaic.shape[1])
    width = box.width / len(slices)
    for number, height in enumerate(heights):
        drawing.text(box.left + (number + 0.5) * width, box.bottom + 9, f"z = {height:.0f}", 7.5)
    for place, side in ((6.0, "L"), (width - 10, "R")):
        drawing.text(box.left + place, box.top + 8, side, 8, font_weight="bold")
    bar = drawing.box(0.935, 0.15, 0.012, 0.7)
    draw_bar(drawing, bar, colours("cividis"), Scale(0, 1), "coverage")
    mark_limit(drawing, bar, threshold)
    return drawing.svg()


def _draw_by_network(networks: list[str], coverage: np.ndarray, threshold: float) -> str:
    names = list(dict.fromkeys(networks))
    drawing = Drawing(9.6, 2.2)
    axes = Axes(drawing, drawing.box(0.06, 0.4, 0.935, 0.5), Scale(-0.6, len(names) - 0.4), Scale(0, 1.05))
    axes.level(threshold, LIMIT, dashes="4 2")
    for place, name in enumerate(names):
        members = coverage[np.array(networks) == name]
        mean, least = (float(axes.down(one)) for one in (np.nanmean(members), np.nanmin(members)))
        left, middle, right = axes.across([place - 0.4, place, place + 0.4])
        drawing.rectangle(Box(left, mean, right - left, axes.box.bottom - mean), BARS)
        drawing.add("path", d=f"M{middle - 3:.1f} {least - 2.5:.1f}h6l-3 5z", fill="#000")
        turn = f"rotate(-30 {middle:.1f} {axes.box.bottom + 9:.1f})"
        drawing.text(middle, axes.box.bottom + 9, name[:24], 7.5, "end", transform=turn)
    axes.frame_left("coverage", most=4)
    drawing.line((axes.box.left, axes.box.right), (axes.box.bottom,) * 2, width=0.7)
    left, height = axes.box.left, axes.box.top - 4  # above the bars: what is drawn
    drawing.rectangle(Box(left, height - 6, 14, 6), BARS)
    drawing.text(left + 18, height, "mean of the network", 7.5, "start")
    drawing.add("path", d=f"M{left + 120:.1f} {height - 5:.1f}h6l-3 5z", fill="#000")
    drawing.text(left + 130, height, "least covered parcel", 7.5, "start")
    drawing.line((left + 232, left + 250), (height - 2.5,) * 2, LIMIT, dashes="4 2")
    drawing.text(left + 254, height, "limit", 7.5, "start")
    return drawing.svg()
