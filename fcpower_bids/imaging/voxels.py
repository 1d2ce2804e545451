"""Parcel means of a 4-D NIfTI, one volume in memory at a time.

One pass decides which voxels have signal and adds up at the same time. Sums are of deviations from the first
volume, in float64: a constant voxel adds exactly nothing, whatever its value, and is left out of the divisor at the
end. A voxel that turns NaN in mid-run is already in earlier sums: then, and only then, the run is read once more
without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.grids import is_same_grid, resample_labels, share_inside
from fcpower_bids.imaging.label_images import index_labels, is_cifti_labels, read_volume_labels
from fcpower_bids.imaging.streaming import DAMAGED, HeaderSummary, load_header, read_volumes
from fcpower_bids.records import Atlas


class _Tally(NamedTuple):
    """What one pass adds up over V voxels: (T, P) sums of deviations, and (V,) facts about the voxels."""

    deviations: np.ndarray
    first: np.ndarray
    constant: np.ndarray
    broken: np.ndarray


def average_voxels(
    bold: Path, header: HeaderSummary, mask: Path | None, atlases: Sequence[Atlas], n_dummy: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Average the covered voxels of every parcel of every atlas.

    Parameters
    ----------
    bold : Path
        4-D NIfTI.
    header : HeaderSummary
        Of the same file.
    mask : Path or None
        Brain mask on the same grid.
    atlases : sequence of Atlas
        NIfTI label images; P parcels in all.
    n_dummy : int
        Volumes left out at the start.

    Returns
    -------
    means : ndarray of shape (T, P)
        In stored units; NaN for a parcel without covered voxels.
    coverage : ndarray of shape (P,)
        Share of each parcel inside the grid, inside the mask and with signal.
    n_voxels, n_covered : ndarray of shape (P,), int
        Voxels on the grid of the run, and those that the mean is made of.

    Raises
    ------
    RecordingError
        If a file is damaged, the mask is empty or on another grid, or an atlas is CIFTI.
    """
    brain = _read_brain(bold, header, mask)
    placed, in_view = zip(*(_place_atlas(bold, header, atlas) for atlas in atlases), strict=True)
    sizes = [atlas.n_parcels for atlas in atlases]
    n_voxels = np.concatenate([np.bincount(p, minlength=n + 1)[1:] for p, n in zip(placed, sizes, strict=True)])
    voxels = np.flatnonzero(brain & np.any(placed, axis=0))
    membership = _membership([parcels[voxels] for parcels in placed], sizes)
    means, n_covered = _stream_means(bold, header, n_dummy, voxels, membership)
    coverage = n_covered / np.maximum(n_voxels, 1) * np.concatenate(in_view)
    return means, coverage, n_voxels, n_covered


def _stream_means(
    bold: Path, header: HeaderSummary, n_dummy: int, voxels: np.ndarray, membership: Any
) -> tuple[np.ndarray, np.ndarray]:
    # What is outside the field of view from the start must not cost a second pass: one look at the first volume.
    broken = ~np.isfinite(next(read_volumes(bold, header, n_dummy))[voxels])
    while True:
        voxels, membership = voxels[~broken], membership[:, ~broken]
        tally = _tally(read_volumes(bold, header, n_dummy), header.n_volumes - n_dummy, voxels, membership)
        broken = tally.broken
        if not broken.any():
            break
    n_covered = membership @ ~tally.constant
    baseline = membership @ np.where(tally.constant, 0.0, tally.first)
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of a parcel without covered voxels
        return (tally.deviations + baseline) / n_covered, n_covered.astype(int)


def _tally(volumes: Iterator[np.ndarray], n_volumes: int, voxels: np.ndarray, membership: Any) -> _Tally:
    deviations = np.zeros((n_volumes, membership.shape[0]))
    deviation = np.empty(len(voxels))
    broken = np.zeros(len(voxels), dtype=bool)
    first = next(volumes)[voxels].astype(np.float64)
    unchanged = np.arange(len(voxels))  # nearly all leave this list at the second volume, so it costs nothing
    with np.errstate(invalid="ignore", over="ignore"):
        for row, volume in zip(deviations[1:], volumes, strict=True):
            np.subtract(volume[voxels], first, out=deviation)
            row[:] = membership @ deviation
            unchanged = unchanged[deviation[unchanged] == 0]
            if not np.isfinite(row).all():
                broken |= ~np.isfinite(deviation)
    constant = np.zeros(len(voxels), dtype=bool)
    constant[unchanged] = True
    return _Tally(deviations, first, constant, broken)


def _membership(parcels: Sequence[np.ndarray], sizes: Sequence[int]) -> Any:
    """Return the sparse (P, V) matrix of which voxel is in which parcel, the atlases one below the other."""
    from scipy import sparse

    columns = [np.flatnonzero(index) for index in parcels]
    starts = np.cumsum([0, *sizes[:-1]])
    rows = [index[at] - 1 + start for index, at, start in zip(parcels, columns, starts, strict=True)]
    at = (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_array((np.ones(len(at[0])), at), shape=(sum(sizes), len(parcels[0])))


def _place_atlas(bold: Path, header: HeaderSummary, atlas: Atlas) -> tuple[np.ndarray, np.ndarray]:
    """Return the parcel (1 to P, 0 for none) of every voxel in file order, and each parcel's share inside the grid."""
    if is_cifti_labels(atlas.image):
        raise RecordingError(
            f"{bold} is NIfTI but the atlas {atlas.image} is CIFTI: give a NIfTI label image in the space of the run."
        )
    labels, affine = read_volume_labels(atlas.image)
    parcels = index_labels(labels, atlas.labels)
    share = np.zeros(atlas.n_parcels)
    inside = share_inside(parcels, affine, *header.grid)
    share[: len(inside)] = inside
    return resample_labels(parcels, affine, *header.grid).ravel(order="F"), share


def _read_brain(bold: Path, header: HeaderSummary, mask: Path | None) -> np.ndarray:
    """Return which voxels, in file order, are brain."""
    if mask is None:
        return np.ones(int(np.prod(header.shape[:3])), dtype=bool)
    image = load_header(mask)
    if not is_same_grid(image.shape, image.affine, *header.grid):
        raise RecordingError(
            f"The mask {mask} {image.shape} and the run {bold} {header.shape[:3]} are on different grids: "
            "give the brain mask that fMRIPrep wrote for this very run and space."
        )
    try:
        brain = np.asanyarray(image.dataobj) > 0
    except DAMAGED as error:
        raise RecordingError(f"The mask {mask} is truncated or damaged ({error}): copy it again.") from error
    if not brain.any():
        raise RecordingError(f"The mask {mask} of {bold} is empty: rerun the step that wrote it.")
    return brain.ravel(order="F")
