"""Probabilistic atlases: one map of weights per region, which may overlap (DiFuMo, MSDL), as a 4-D NIfTI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.ndimage import affine_transform

from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.imaging.grids import is_same_grid
from fcpower_bids.imaging.series.streaming import header_summary, read_volumes

LINEAR = 1
"""Order of the interpolation between voxels, as in nilearn."""


def read_maps(image: Path, shape: tuple[int, ...], affine: np.ndarray) -> tuple[sparse.csr_array, np.ndarray]:
    """Read maps on a grid, one at a time.

    Parameters
    ----------
    image : Path
        4-D NIfTI with K maps.
    shape, affine
        The grid: (X, Y, Z), and voxel to mm.

    Returns
    -------
    maps : sparse array, shape (K, X * Y * Z)
        Weights in the order of a file, x fastest; carried to the grid linearly where it is another.
    inside : ndarray, shape (K,)
        Share of each map's weight that lies on the grid.

    Raises
    ------
    UsageError
        If the file is damaged, or a map holds values that are not finite.
    """
    try:
        header = header_summary(image)
        slope, intercept = header.scaling
        rows, inside = [], []
        for stored in read_volumes(image, header):
            one = (stored.astype(np.float64) * slope + intercept).reshape(header.shape[:3], order="F")
            if not np.isfinite(one).all():
                raise UsageError(f"The atlas {image} holds weights that are not finite: give another.")
            carried = _carry(one, np.asarray(header.affine), shape, affine)
            rows.append(sparse.csr_array(carried.ravel(order="F")[None]))
            inside.append(_share(one, np.asarray(header.affine), carried, affine))
    except RecordingError as error:
        raise UsageError(f"The atlas {image} cannot be used: {error}") from error
    return sparse.csr_array(sparse.vstack(rows)), np.array(inside)


def map_centroids(image: Path, labels: Sequence[int]) -> np.ndarray:
    """Return the centre of the weights of some maps in mm.

    Parameters
    ----------
    image : Path
        4-D NIfTI.
    labels : sequence of int
        Numbers of the P maps, from 1.

    Returns
    -------
    ndarray, shape (P, 3)
        NaN for a map that is 0 throughout.
    """
    header = header_summary(image)
    voxels = np.indices(header.shape[:3]).reshape(3, -1, order="F").T
    places = voxels @ np.asarray(header.affine)[:3, :3].T + np.asarray(header.affine)[:3, 3]
    slope, intercept = header.scaling
    weights = (np.abs(stored.astype(np.float64) * slope + intercept) for stored in read_volumes(image, header))
    found = np.stack([one @ places / one.sum() if one.any() else np.full(3, np.nan) for one in weights])
    return found[np.asarray(labels) - 1]


def _carry(values: np.ndarray, affine: np.ndarray, shape: tuple[int, ...], to_affine: np.ndarray) -> np.ndarray:
    if is_same_grid(values.shape, affine, shape, to_affine):
        return values
    there = np.linalg.inv(affine) @ to_affine
    return np.asarray(affine_transform(values, there[:3, :3], there[:3, 3], output_shape=shape, order=LINEAR))


def _share(values: np.ndarray, affine: np.ndarray, carried: np.ndarray, to_affine: np.ndarray) -> float:
    """Return how much of the weight, as a volume, is left on the grid; interpolation may add a little."""
    total = np.abs(values).sum() * abs(np.linalg.det(affine[:3, :3]))
    left = np.abs(carried).sum() * abs(np.linalg.det(to_affine[:3, :3]))
    return float(min(left / total, 1.0)) if total else 0.0
