"""Make the built-in parcellation from nilearn's grey-matter template: ``python -m scripts.make_builtin``."""

from __future__ import annotations

import gzip
from pathlib import Path

import nibabel as nib
import numpy as np
from nilearn.datasets import load_mni152_gm_template
from numpy.typing import NDArray

from fcpower_bids.imaging.atlas import IMAGE, N_PARCELS, PARCELS_PER_POSITION, SPACING

GREY_MATTER_THRESHOLD = 0.5


def parcellate_grey_matter() -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Cut the grey-matter template into parcels. Returns labels (99, 117, 95), affine (4, 4)."""
    template = load_mni152_gm_template(resolution=1)
    grey = np.asarray(template.dataobj)[::SPACING, ::SPACING, ::SPACING] > GREY_MATTER_THRESHOLD
    affine = template.affine @ np.diag([SPACING, SPACING, SPACING, 1.0])
    labels = np.zeros(grey.shape, dtype=np.uint8)
    left = np.argwhere(grey[: grey.shape[0] // 2])
    labels[tuple(left.T)] = 1 + _cut_hemisphere(left)
    mirrored = labels[::-1]
    labels = np.where(mirrored > 0, mirrored + np.uint8(N_PARCELS // 2), labels)
    return labels, np.asarray(affine, dtype=np.float64)


def _cut_hemisphere(voxels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Parcel index (0, 1, ...) of each voxel, ordered as the names are."""
    parcel = np.empty(len(voxels), dtype=np.int64)
    thirds = np.array_split(_order_along(voxels, 1)[::-1], 3)
    halves = [half for third in thirds for half in np.array_split(third[_order_along(voxels[third], 2)[::-1]], 2)]
    for position, members in enumerate(halves):
        parcel[members] = position * PARCELS_PER_POSITION + _bisect(voxels[members], PARCELS_PER_POSITION)
    return parcel


def _bisect(voxels: NDArray[np.int64], n_parts: int) -> NDArray[np.int64]:
    """Cut voxels into parts of equal size, each time across the widest side."""
    part = np.zeros(len(voxels), dtype=np.int64)
    if n_parts == 1:
        return part
    first = n_parts // 2
    order = _order_along(voxels, int(np.argmax(np.ptp(voxels, axis=0))))
    low, high = np.split(order, [len(order) * first // n_parts])
    part[low] = _bisect(voxels[low], first)
    part[high] = first + _bisect(voxels[high], n_parts - first)
    return part


def _order_along(voxels: NDArray[np.int64], axis: int) -> NDArray[np.intp]:
    """Sort by one coordinate; ties go by the two others, so that the order is unique."""
    return np.lexsort([voxels[:, (axis + shift) % 3] for shift in (2, 1, 0)])


def encode_image(labels: NDArray[np.uint8], affine: NDArray[np.float64]) -> bytes:
    """NIfTI bytes, compressed without a time stamp so that every call gives the same file."""
    image = nib.Nifti1Image(labels, affine)
    image.set_sform(affine, code="mni")
    image.set_qform(affine, code="mni")
    return gzip.compress(image.to_bytes(), mtime=0)


if __name__ == "__main__":
    Path(str(IMAGE)).write_bytes(encode_image(*parcellate_grey_matter()))
