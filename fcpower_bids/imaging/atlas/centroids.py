"""Where the parcels of a label image are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from numpy.typing import NDArray


def parcel_centroids(image: Path, labels: Sequence[int]) -> NDArray[np.float64]:
    """Return the centre of mass of every parcel, in the millimetres of the image's space. Returns (P, 3)."""
    places, values = _voxels(nib.load(image))
    order = np.argsort(labels)
    which = np.searchsorted(np.asarray(labels)[order], values)
    which = np.minimum(which, len(labels) - 1)
    known = np.asarray(labels)[order][which] == values
    parcel, places = order[which[known]], places[known]
    count = np.bincount(parcel, minlength=len(labels)).astype(float)
    count[count == 0] = np.nan
    sums = [np.bincount(parcel, weights=places[:, axis], minlength=len(labels)) for axis in range(3)]
    return np.stack(sums, axis=1) / count[:, None]


def _voxels(image: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return place in mm and label of every labelled voxel."""
    if isinstance(image, nib.Cifti2Image):
        axis = image.header.get_axis(1)
        ofvolume = axis.volume_mask
        values = np.asarray(image.dataobj)[0].astype(np.int64)[ofvolume]
        index, affine = axis.voxel[ofvolume], axis.affine
        if affine is None:
            return np.empty((0, 3)), np.empty(0, np.int64)
    else:
        volume = np.asarray(image.dataobj)
        volume = volume.reshape(volume.shape[:3])
        index, affine = np.argwhere(np.ascontiguousarray(volume != 0)), image.affine  # else ten times slower
        values = volume[tuple(index.T)].astype(np.int64)
    return nib.affines.apply_affine(affine, index), values
