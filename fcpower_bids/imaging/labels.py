"""Label images as arrays of integers (3-D NIfTI, CIFTI ``dlabel``), and carried from one voxel grid to another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from nibabel.cifti2 import BrainModelAxis, LabelAxis

from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.imaging.streaming import read_image

SHIFT = 1e-2
"""Largest distance, in voxels, between voxels that are the same: affines are stored as float32."""
LABEL_NOISE = 1e-3
"""Largest deviation from a label by rounding in a scaled image."""


def read_volume_labels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read a 3-D label image. Returns labels (X, Y, Z), affine (4, 4). Raises UsageError."""
    image, values = read_image(path, "The atlas ", UsageError)
    if not hasattr(image, "affine"):
        raise UsageError(f"The atlas {path} is CIFTI, not NIfTI: name the file *.dlabel.nii if it is a label image.")
    if values.ndim == 4 and values.shape[3] == 1:
        values = values[..., 0]
    if values.ndim != 3:
        raise UsageError(f"The atlas {path} has shape {values.shape}: a label image has three dimensions.")
    return _whole_numbers(path, values), image.affine


def read_grayordinate_labels(path: Path) -> tuple[np.ndarray, BrainModelAxis, dict[int, str]]:
    """Read the first map of a CIFTI ``dlabel``. Returns labels (G,). Raises UsageError."""
    image, values = read_image(path, "The atlas ", UsageError)
    axes = [image.header.get_axis(i) for i in range(len(image.shape))] if hasattr(image, "nifti_header") else []
    if [type(axis) for axis in axes] != [LabelAxis, BrainModelAxis]:
        raise UsageError(f"The atlas {path} is not a CIFTI label image (dlabel): give one, or a NIfTI label image.")
    table = {int(key): str(name) for key, (name, _) in axes[0].label[0].items()}
    return _whole_numbers(path, values[0]), axes[1], table


def index_labels(values: np.ndarray, labels: Sequence[int]) -> np.ndarray:
    """Replace labels by their place in a list."""
    order = np.argsort(labels)
    ordered = np.asarray(labels)[order]
    labelled = values != 0  # most of an image is background: search for the rest only
    foreground = values[labelled]
    place = np.minimum(np.searchsorted(ordered, foreground), len(ordered) - 1)
    indexed = np.zeros_like(values, dtype=np.int32)
    indexed[labelled] = np.where(ordered[place] == foreground, order[place] + 1, 0)
    return indexed


def align_labels(labels: np.ndarray, axis: Any, to_axis: Any) -> np.ndarray:
    """Carry labels (G,) to other grayordinates, by structure and vertex or voxel. Raises ValueError."""
    if axis == to_axis:
        return labels
    sources = {str(name): (labels[rows], part) for name, rows, part in axis.iter_structures()}
    carried = np.zeros(len(to_axis), dtype=labels.dtype)
    wanted = [(str(name), rows, part) for name, rows, part in to_axis.iter_structures() if str(name) in sources]
    if not wanted:
        raise Unfit("they share no brain structure")
    for name, rows, part in wanted:
        values, places = sources[name]
        extent, other = places.nvertices.get(name), part.nvertices.get(name)
        if (extent is None) != (other is None):
            raise Unfit(f"{name} is a surface in one and a volume in the other")
        if extent != other:
            raise Unfit(f"{name} has {extent} places in one and {other} in the other")
        if extent is None:
            # voxels of the other axis as this one counts them, from left to right or from right to left
            there = np.linalg.inv(places.affine) @ part.affine
            turn, moved = np.rint(there[:3, :3]), part.voxel @ there[:3, :3].T + there[:3, 3]
            voxels = np.rint(moved)
            is_turned = abs(abs(np.linalg.det(turn)) - 1) < SHIFT and np.abs(there[:3, :3] - turn).max() < SHIFT
            if not is_turned or np.abs(moved - voxels).max(initial=0.0) > SHIFT:
                raise Unfit(f"{name} is on another voxel grid")
            carried[rows] = _look_up(values, places.voxel, voxels.astype(np.intp), places.volume_shape)
        else:
            carried[rows] = _look_up(values, places.vertex[:, None], part.vertex[:, None], (extent,))
    return carried


def _look_up(labels: np.ndarray, places: np.ndarray, wanted: np.ndarray, extent: tuple[int, ...]) -> np.ndarray:
    """Labels (n,) at places (n, d) of an array, for the wanted places (m, d); 0 outside."""
    lookup = np.zeros(extent, dtype=labels.dtype)
    lookup[tuple(places.T)] = labels
    inside = ((wanted >= 0) & (wanted < np.array(extent))).all(axis=1)
    carried = np.zeros(len(wanted), dtype=labels.dtype)
    carried[inside] = lookup[tuple(wanted[inside].T)]
    return carried


def _whole_numbers(path: Path, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "iuf" or not np.isfinite(extremes := (values.min(), values.max())).all():
        raise UsageError(f"The atlas {path} holds values that are not labels: give an image of whole numbers.")
    if max(map(abs, map(float, extremes))) > np.iinfo(np.int32).max:
        raise UsageError(f"The atlas {path} holds labels beyond 32 bits: renumber them from 1.")
    if values.dtype.kind in "iu":
        return values.astype(np.int32)
    whole = np.rint(values).astype(np.int32)
    if np.abs(whole - values).max() > LABEL_NOISE:
        raise UsageError(
            f"The atlas {path} holds fractions, like a probabilistic atlas: give a label image (dseg), not a probseg."
        )
    return whole


SAME_GRID = 0.1
"""Largest distance, in voxels, between corners of grids that count as the same: affines are stored as float32."""


def is_same_grid(
    shape: tuple[int, ...], affine: np.ndarray, other_shape: tuple[int, ...], other_affine: np.ndarray
) -> bool:
    """Return whether two grids have one shape and put every corner in the same place."""
    if tuple(shape) != tuple(other_shape):
        return False
    corners = np.array([*itertools.product(*((0, extent - 1) for extent in shape))])
    there = _map_voxels(corners, affine, other_affine)
    return bool(np.abs(there - corners).max() < SAME_GRID)


def resample_labels(
    labels: np.ndarray, affine: np.ndarray, shape: tuple[int, ...], to_affine: np.ndarray
) -> np.ndarray:
    """Carry a label image (I, J, K) with an affine (4, 4) to another grid by nearest neighbour."""
    if is_same_grid(labels.shape, affine, shape, to_affine):
        return labels
    carried = np.zeros(shape, dtype=labels.dtype)
    if (places := _places_along_axes(shape, to_affine, affine, labels.shape)) is not None:
        for axis, (nearest, _) in enumerate(places):  # one after the other is three times as fast as all at once
            labels = labels.take(nearest, axis=axis)
        carried[tuple(inside for _, inside in places)] = labels
        return carried
    plane = np.indices((shape[0], shape[1], 1)).reshape(3, -1).T
    for z in range(shape[2]):  # one plane at a time keeps a 1 mm grid within a few MB
        plane[:, 2] = z
        nearest, inside = _nearest_voxels(plane, to_affine, affine, labels.shape)
        values = np.zeros(len(plane), dtype=labels.dtype)
        values[inside] = labels[tuple(nearest[inside].T)]
        carried[:, :, z] = values.reshape(shape[:2])
    return carried


def _places_along_axes(
    shape: tuple[int, ...], affine: np.ndarray, to_affine: np.ndarray, to_shape: tuple[int, ...]
) -> list[tuple[np.ndarray, slice]] | None:
    """Return along each axis the nearest voxels of the other grid and whose they are; None where the axes differ."""
    turn = (np.linalg.inv(to_affine) @ affine)[:3, :3]
    if np.abs(turn - np.diag(np.diag(turn))).max() * max(shape) > 1e-6:
        return None
    longest = np.minimum(np.arange(max(shape))[:, None], np.array(shape) - 1)
    places = []
    for axis, nearest in enumerate(_nearest_voxels(longest, affine, to_affine, to_shape)[0].T):
        voxels = nearest[: shape[axis]]
        inside = np.flatnonzero((voxels >= 0) & (voxels < to_shape[axis]))
        places.append((voxels[inside], slice(inside[0], inside[-1] + 1) if len(inside) else slice(0)))
    return places


def share_inside(
    parcels: np.ndarray, n_parcels: int, affine: np.ndarray, shape: tuple[int, ...], to_affine: np.ndarray
) -> np.ndarray:
    """Return how much of each parcel lies within another grid. Shapes and units: parcels (I, J, K); returns (P,)."""
    if is_same_grid(parcels.shape, affine, shape, to_affine):
        return np.ones(n_parcels)
    voxels = np.argwhere(parcels > 0)
    values = parcels[tuple(voxels.T)] - 1
    within = _nearest_voxels(voxels, affine, to_affine, shape)[1]
    total = np.bincount(values, minlength=n_parcels)
    return np.bincount(values[within], minlength=n_parcels) / np.maximum(total, 1)


def _map_voxels(voxels: np.ndarray, affine: np.ndarray, to_affine: np.ndarray) -> np.ndarray:
    there = np.linalg.inv(to_affine) @ affine
    return voxels @ there[:3, :3].T + there[:3, 3]


def _nearest_voxels(
    voxels: np.ndarray, affine: np.ndarray, to_affine: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest voxel of the other grid, and whether it exists there."""
    # Halfway cases must not hang on the last bit of an affine: round away the noise first.
    nearest = np.floor(np.round(_map_voxels(voxels, affine, to_affine), 6) + 0.5).astype(np.intp)
    return nearest, np.all((nearest >= 0) & (nearest < np.array(shape)), axis=1)


SPACES = "MNI152"
"""Beginning of the names of the spaces that it belongs to; the templates of children are others."""
IMAGE = Path(__file__).parents[1] / "data" / "template_dseg.nii.gz"
"""1 in the brain, 2 in the white matter: a T1 of 195 or more, with a Dice coefficient of .964 with nilearn's map."""


@lru_cache(maxsize=2)
def template_tissue(shape: tuple[int, int, int], affine: tuple[float, ...]) -> tuple[np.ndarray, float]:
    """1 in the template's brain, 2 in its white matter, else 0 (X * Y * Z,), and its brain's volume in mm^3."""
    image = nibabel.load(IMAGE)  # type: ignore[attr-defined]
    tissue, own_affine = np.asanyarray(image.dataobj), image.affine  # type: ignore[attr-defined]
    cubic = abs(float(np.linalg.det(own_affine[:3, :3])))
    placed = resample_labels(tissue, own_affine, shape, np.reshape(affine, (4, 4))).ravel(order="F")
    placed.flags.writeable = False  # the next recording is given the same
    return placed, float(np.count_nonzero(tissue)) * cubic
