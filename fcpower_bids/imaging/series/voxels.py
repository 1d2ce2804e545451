"""Parcel means of a 4-D NIfTI, one volume in memory at a time.

One pass decides which voxels have signal and adds up at the same time. Sums are of deviations from the first
volume, in float64: a constant voxel adds exactly nothing, whatever its value, and is left out of the divisor at the
end. A voxel that turns NaN on the way is already in earlier sums: then, and only then, the recording is read once
more without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.atlas.label_images import index_labels, is_cifti_labels, read_volume_labels
from fcpower_bids.imaging.grids import is_same_grid, resample_labels, share_inside
from fcpower_bids.imaging.inflating import DAMAGED
from fcpower_bids.imaging.integrity import content_fault, header_fault
from fcpower_bids.imaging.series.maps import read_maps
from fcpower_bids.imaging.series.streaming import HeaderSummary, load_header, read_volumes
from fcpower_bids.records import Atlas

SINGULAR = 1e-12
"""Directions of the maps smaller than this, relative to the largest, are rounding: maps that sum to another."""


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
        Voxels on the grid of the recording, and those that the mean is made of.

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
    means, n_covered = _stream_means(
        bold, header, n_dummy, voxels, [(p[voxels], n) for p, n in zip(placed, sizes, strict=True)]
    )
    coverage = n_covered / np.maximum(n_voxels, 1) * np.concatenate(in_view)
    return means, coverage, n_voxels, n_covered


def average_maps(
    bold: Path, header: HeaderSummary, mask: Path | None, atlas: Atlas, n_dummy: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Fit the maps of a probabilistic atlas to every volume by least squares over the covered voxels.

    Parameters
    ----------
    bold, header, mask, n_dummy
        As in `average_voxels`.
    atlas : Atlas
        With P maps, which may overlap.

    Returns
    -------
    weights : ndarray of shape (T, P)
        In units of the run; NaN for a map without covered voxels.
    coverage : ndarray of shape (P,)
        Share of the weight of each map in covered voxels.
    n_voxels, n_covered : ndarray of shape (P,), int
        Voxels of the grid where the map is not 0, and those of them that are covered.

    Notes
    -----
    That is what nilearn's ``NiftiMapsMasker`` does over all voxels of the mask. The normal equations need one product
    of the sparse maps per volume, so nothing grows with the length of the run.
    """
    maps, inside = read_maps(atlas.image, *header.grid)
    maps = maps[np.asarray(atlas.labels) - 1]
    brain = _read_brain(bold, header, mask) & (abs(maps).sum(axis=0) > 0)
    voxels = np.flatnonzero(brain)
    broken = ~np.isfinite(next(read_volumes(bold, header, n_dummy))[voxels])
    while True:
        voxels = voxels[~broken]
        used = sparse.csr_array(maps[:, voxels])
        tally = _tally(read_volumes(bold, header, n_dummy), header.n_volumes - n_dummy, voxels, _MapSums(used))
        broken = tally.broken
        if not broken.any():
            break
    covered = used[:, ~tally.constant]
    slope, intercept = header.scaling
    first = np.where(tally.constant, 0.0, tally.first)
    sums = slope * (tally.deviations + used @ first) + intercept * covered.sum(axis=1)
    total, left = abs(maps).sum(axis=1), abs(covered).sum(axis=1)
    fitted = np.full(sums.shape, np.nan)
    present = left > 0
    gram = (covered @ covered.T).toarray()[np.ix_(present, present)]
    fitted[:, present] = sums[:, present] @ np.linalg.pinv(gram, rcond=SINGULAR, hermitian=True)
    coverage = left / np.where(total > 0, total, 1.0) * inside[np.asarray(atlas.labels) - 1]
    return fitted, coverage, np.diff(sparse.csr_array(maps).indptr), np.diff(sparse.csr_array(covered).indptr)


class _MapSums:
    """The (P, V) operator that multiplies voxels with the weights of every map."""

    def __init__(self, maps: sparse.csr_array) -> None:
        self.n_parcels = maps.shape[0]
        self.maps = maps

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(self.maps @ values)


class _ParcelSums:
    """The sparse (P, V) operator that adds voxels up to parcels, the atlases one below the other.

    All its entries are 1, so a compressed row is a gather and ``add.reduceat``: as fast as SciPy's product, without
    its import, which costs as much as inflating thirty volumes.
    """

    def __init__(self, members: Sequence[tuple[np.ndarray, int]]) -> None:
        starts = np.cumsum([0, *(n_parcels for _, n_parcels in members)])
        columns = [np.argsort(parcels, kind="stable")[np.sum(parcels == 0) :] for parcels, _ in members]
        rows = [p[at] - 1 + start for (p, _), at, start in zip(members, columns, starts, strict=False)]
        self.n_parcels = int(starts[-1])
        self.columns = np.concatenate(columns)
        self.rows, self.starts = np.unique(np.concatenate(rows), return_index=True)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        sums = np.zeros(self.n_parcels)
        if len(self.rows):
            sums[self.rows] = np.add.reduceat(values[self.columns], self.starts)
        return sums


def _stream_means(
    bold: Path, header: HeaderSummary, n_dummy: int, voxels: np.ndarray, members: Sequence[tuple[np.ndarray, int]]
) -> tuple[np.ndarray, np.ndarray]:
    # What is outside the field of view from the start must not cost a second pass: one look at the first volume.
    broken = ~np.isfinite(next(read_volumes(bold, header, n_dummy))[voxels])
    while True:
        voxels = voxels[~broken]
        members = [(parcels[~broken], n_parcels) for parcels, n_parcels in members]
        add_up = _ParcelSums(members)
        tally = _tally(read_volumes(bold, header, n_dummy), header.n_volumes - n_dummy, voxels, add_up)
        broken = tally.broken
        if not broken.any():
            break
    n_covered = add_up(np.where(tally.constant, 0.0, 1.0))
    baseline = add_up(np.where(tally.constant, 0.0, tally.first))
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of a parcel without covered voxels
        return (tally.deviations + baseline) / n_covered, n_covered.astype(int)


def _tally(volumes: Iterator[np.ndarray], n_volumes: int, voxels: np.ndarray, add_up: _ParcelSums | _MapSums) -> _Tally:
    deviations = np.zeros((n_volumes, add_up.n_parcels))
    deviation = np.empty(len(voxels))
    broken = np.zeros(len(voxels), dtype=bool)
    first = next(volumes)[voxels].astype(np.float64)
    unchanged = np.arange(len(voxels))  # nearly all leave this list at the second volume, so it costs nothing
    with np.errstate(invalid="ignore", over="ignore"):
        for row, volume in zip(deviations[1:], volumes, strict=True):
            np.subtract(volume[voxels], first, out=deviation)
            row[:] = add_up(deviation)
            unchanged = unchanged[deviation[unchanged] == 0]
            if not np.isfinite(row).all():
                broken |= ~np.isfinite(deviation)
    constant = np.zeros(len(voxels), dtype=bool)
    constant[unchanged] = True
    return _Tally(deviations, first, constant, broken)


def _place_atlas(bold: Path, header: HeaderSummary, atlas: Atlas) -> tuple[np.ndarray, np.ndarray]:
    """Return the parcel (1 to P, 0 for none) of every voxel in file order, and each parcel's share inside the grid."""
    labels, affine = read_volume_labels(atlas.image)
    parcels = index_labels(labels, atlas.labels)
    share = share_inside(parcels, atlas.n_parcels, affine, *header.grid)
    return resample_labels(parcels, affine, *header.grid).ravel(order="F"), share


def check_volumetric(bold: Path, atlas: Atlas) -> None:
    """Refuse an atlas of grayordinates for a recording of voxels.

    Raises
    ------
    RecordingError
    """
    if is_cifti_labels(atlas.image):
        raise RecordingError(
            f"{bold} is NIfTI but the atlas {atlas.image} is CIFTI: give a NIfTI label image "
            "in the space of the recording."
        )


def check_mask(bold: Path, header: HeaderSummary, mask: Path) -> None:
    """Refuse a mask whose header says that it is not of this recording; its content is not read.

    Raises
    ------
    RecordingError
    """
    image = load_header(mask)
    if (fault := header_fault(mask, image)) is not None:
        raise RecordingError(f"The mask {mask} {fault}: copy it again or rerun the step that wrote it.")
    if not is_same_grid(image.shape, image.affine, *header.grid):
        raise RecordingError(
            f"The mask {mask} {image.shape} and the recording {bold} {header.shape[:3]} are on different grids: "
            "give the brain mask that fMRIPrep wrote for this very recording and space."
        )


def _read_brain(bold: Path, header: HeaderSummary, mask: Path | None) -> np.ndarray:
    """Return which voxels, in file order, are brain."""
    if mask is None:
        return np.ones(int(np.prod(header.shape[:3])), dtype=bool)
    image = load_header(mask)
    if (fault := content_fault(mask, image)) is not None:
        raise RecordingError(f"The mask {mask} {fault}: copy it again or rerun the step that wrote it.")
    try:
        brain = np.asanyarray(image.dataobj) > 0
    except DAMAGED as error:
        raise RecordingError(f"The mask {mask} is truncated or damaged ({error}): copy it again.") from error
    if not brain.any():
        raise RecordingError(f"The mask {mask} of {bold} is empty: rerun the step that wrote it.")
    return brain.ravel(order="F")
