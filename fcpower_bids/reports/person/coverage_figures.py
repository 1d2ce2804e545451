"""Coverage of the parcels, drawn on the brain where the atlas is a volume and by network where it is a surface."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from fcpower_bids.reports.kit.figures import draw_bar
from fcpower_bids.reports.kit.images import colours, encode_png, step_of
from fcpower_bids.reports.kit.svg import Axes, Box, Drawing, Scale
from fcpower_bids.reports.person.brain_figures import UNCOVERED, mark_limit
from fcpower_bids.reports.person.recording_facts import Parcellation

LIMIT, BARS = "#D55E00", "#0072B2"
N_SLICES = 9
LARGEST = 110
"""Voxels of a slice along its longer side; finer atlases are thinned out for the drawing."""


def draw_coverage(parcellation: Parcellation, coverage: np.ndarray, threshold: float) -> str:
    """Draw the share of each parcel that the scan has seen; parcels below the threshold stand out.

    Shapes and units: coverage (P,).
    """
    if parcellation.image.name.endswith(".dlabel.nii") or not parcellation.image.exists():
        return _draw_by_network(parcellation.networks, coverage, threshold)
    slices, heights = axial_slices(parcellation.image)
    return _draw_on_brain(slices, heights, parcellation.table["index"].to_numpy(dtype=int), coverage, threshold)


@lru_cache(maxsize=4)
def axial_slices(image: Path) -> tuple[np.ndarray, tuple[float, ...]]:
    """Cut a label image into axial slices, seen from above with the person's left on the left.

    Returns slices (N_SLICES, rows, columns).
    """
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
    _explain(drawing, axes.box)
    return drawing.svg()


def _explain(drawing: Drawing, box: Box) -> None:
    """Say above the bars what is drawn."""
    height = box.top - 4
    drawing.rectangle(Box(box.left, height - 6, 14, 6), BARS)
    drawing.text(box.left + 18, height, "mean of the network", 7.5, "start")
    drawing.add("path", d=f"M{box.left + 120:.1f} {height - 5:.1f}h6l-3 5z", fill="#000")
    drawing.text(box.left + 130, height, "least covered parcel", 7.5, "start")
    drawing.line((box.left + 232, box.left + 250), (height - 2.5,) * 2, LIMIT, dashes="4 2")
    drawing.text(box.left + 254, height, "limit", 7.5, "start")
