"""A recording on its own brain: mask and parcels on the temporal mean, temporal SNR, coverage."""

from __future__ import annotations

import numpy as np

from fcpower_bids.records import Slices
from fcpower_bids.reports.kit.figures import STEPS, drawing

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

    Parameters
    ----------
    slices : Slices
        With the mean as 0 (black) to 255 (white).
    coverage : ndarray, shape (P,)
        Between 0 and 1; parcels below the threshold stand out.
    threshold : float
        ``--min-coverage``.
    """
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    stability = np.where(slices.brain, slices.tsnr.astype(np.float64), np.nan)
    known = stability[np.isfinite(stability)]
    highest = max(float(np.percentile(known, 98)), 1e-6) if known.size else 1.0
    inferno = colormaps["inferno"].resampled(STEPS)
    grey = np.repeat((slices.mean // (256 // STEPS) * (256 // STEPS))[..., None], 3, axis=-1).astype(np.uint8)
    rows = (
        ("mean", outline(grey, slices)),
        ("temporal SNR", np.asarray(inferno(np.nan_to_num(stability) / highest, bytes=True))[..., :3]),
        ("coverage", paint_coverage(grey, slices.parcels, coverage, threshold)),
    )
    n, height, width = slices.mean.shape
    tall = 8.9 / (n * width) * height
    with drawing(9.6, 3 * tall + 0.2) as (figure, svg):
        total = figure.get_figheight()
        for number, (title, pictures) in enumerate(rows):
            axis = figure.add_axes((0.025, 1 - (number + 1) * tall / total, 8.9 / 9.6, tall / total))
            axis.imshow(np.concatenate(pictures, axis=1), interpolation="none", aspect="auto", extent=(0, n, 0, 1))
            axis.set_axis_off()
            axis.text(-0.04, 0.5, title, rotation=90, ha="center", va="center", fontsize=8)
        for number, z in enumerate(slices.heights):
            axis.text(number + 0.5, -0.03, f"z = {z:.0f}", ha="center", va="top", fontsize=7.5)
        for place, side in ((0.03, "L"), (n - 0.03, "R")):
            axis.text(place, 0.04, side, ha="center", va="bottom", fontsize=8, fontweight="bold", color="white")
        for number, shown in enumerate(
            (ScalarMappable(Normalize(0, highest), inferno), ScalarMappable(cmap="cividis"))
        ):
            bottom = 1 - (number + 1.85) * tall / total
            bar = figure.colorbar(shown, cax=figure.add_axes((0.96, bottom, 0.009, 0.7 * tall / total)))
            bar.ax.tick_params(labelsize=7, pad=1, length=2)
        bar.ax.axhspan(0, threshold, color=np.array(UNCOVERED) / 255)
    return svg[0]


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
    """Return which pixels (n, rows, columns) lie in a region and beside a pixel of another one."""
    found = np.zeros(regions.shape, dtype=bool)
    for axis in (1, 2):
        one, other = np.moveaxis(regions, axis, 0)[:-1], np.moveaxis(regions, axis, 0)[1:]
        seen = np.moveaxis(found, axis, 0)
        differ = one != other
        seen[:-1] |= differ & (one > 0)
        seen[1:] |= differ & (other > 0)
    return found


def paint_coverage(grey: np.ndarray, parcels: np.ndarray, coverage: np.ndarray, threshold: float) -> np.ndarray:
    """Colour parcels (n, rows, columns) by their coverage over the anatomy; those below the threshold are vermilion."""
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing

    colours = colormaps["cividis"].resampled(STEPS)(np.nan_to_num(coverage), bytes=True)[:, :3].astype(np.float64)
    colours[~(coverage >= threshold)] = UNCOVERED
    shown = grey.copy()
    within = parcels > 0
    mixed = SEEN_THROUGH * grey[within] + (1 - SEEN_THROUGH) * colours[parcels[within].astype(int) - 1]
    shown[within] = mixed.astype(np.uint8)
    return shown
