"""Coverage of the parcels, drawn on the brain where the atlas is a volume and by network where it is a surface."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from fcpower_bids.reports.kit.figures import drawing
from fcpower_bids.reports.person.accounts import Parcellation

UNCOVERED = "#D55E00"
N_SLICES = 9
LARGEST = 110
"""Voxels of a slice along its longer side; finer atlases are thinned out for the drawing."""


def draw_coverage(parcellation: Parcellation, coverage: np.ndarray, threshold: float) -> str:
    """Draw the share of each parcel that the scan has seen; parcels below the threshold stand out.

    Parameters
    ----------
    parcellation : Parcellation
        The atlas copy.
    coverage : ndarray, shape (P,)
        Between 0 and 1.
    threshold : float
        ``--min-coverage``.
    """
    if parcellation.image.name.endswith(".dlabel.nii") or not parcellation.image.exists():
        return _draw_by_network(parcellation.networks, coverage, threshold)
    slices, heights = axial_slices(parcellation.image)
    return _draw_on_brain(slices, heights, parcellation.table["index"].to_numpy(dtype=int), coverage, threshold)


@lru_cache(maxsize=4)
def axial_slices(image: Path) -> tuple[np.ndarray, tuple[float, ...]]:
    """Cut a label image into axial slices, seen from above with the person's left on the left.

    Returns
    -------
    slices : ndarray of int, shape (N_SLICES, rows, columns)
        Labels.
    heights : tuple of float
        z of each slice in mm.
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
    from matplotlib import colormaps  # slow to load, and most runs of a worker draw nothing
    from matplotlib.cm import ScalarMappable

    colours = colormaps["cividis"](coverage)
    colours[~(coverage >= threshold)] = (0.835, 0.369, 0.0, 1.0)  # UNCOVERED
    lookup = np.ones((max(int(labels.max()), int(slices.max())) + 1, 4))
    lookup[labels] = colours
    gap = np.zeros((slices.shape[1], 3), dtype=slices.dtype)
    mosaic = np.concatenate([part for one in slices for part in (one, gap)], axis=1)
    width = slices.shape[2] + 3
    with drawing(9.6, 1.75) as (figure, svg):
        axis = figure.add_axes((0, 0.02, 0.92, 0.96))
        axis.imshow(lookup[mosaic])
        axis.set_axis_off()
        for number, height in enumerate(heights):
            middle, below = (number + 0.5) * width, mosaic.shape[0] + 3
            axis.text(middle, below, f"z = {height:.0f}", ha="center", va="top", fontsize=7.5)
        for place, side in ((2, "L"), (width - 6, "R")):
            axis.text(place, 2, side, ha="center", va="top", fontsize=8, fontweight="bold")
        bar = figure.colorbar(ScalarMappable(cmap="cividis"), cax=figure.add_axes((0.935, 0.15, 0.012, 0.7)))
        bar.set_label("coverage")
        bar.ax.axhspan(0, threshold, color=UNCOVERED)
    return svg[0]


def _draw_by_network(networks: list[str], coverage: np.ndarray, threshold: float) -> str:
    names = list(dict.fromkeys(networks))
    members = [coverage[np.array(networks) == name] for name in names]
    with drawing(9.6, 2.2) as (figure, svg):
        axis = figure.subplots()
        figure.subplots_adjust(left=0.06, right=0.995, bottom=0.4, top=0.96)
        places = np.arange(len(names))
        axis.bar(places, [np.nanmean(member) for member in members], color="#0072B2", label="mean of the network")
        axis.plot(places, [np.nanmin(member) for member in members], "kv", markersize=5, label="least covered parcel")
        axis.axhline(threshold, color=UNCOVERED, linestyle="--", linewidth=1, label="limit")
        axis.set_xticks(places, [name[:24] for name in names], rotation=30, ha="right", fontsize=7.5)
        axis.set_ylim(0, 1.05)
        axis.set_ylabel("coverage")
        axis.legend(frameon=False, ncols=3, loc="lower left", fontsize=7.5)
    return svg[0]
