"""A parcellation that needs no download, cut from the grey-matter template that nilearn carries.

Its image is kept in ``data``, since making it takes longer than anything else at the start of a job; a test makes it
anew. It makes the first run, the demo dataset and the tests work on a machine without network. Its borders follow
coordinates, not anatomy or function: for science choose a published atlas.

The template is the symmetric ICBM 2009a, so the right hemisphere is the exact mirror image of the left one. 2009a,
2009c and the 6th generation share their axes and differ locally by a few millimetres, little against parcels of
18 mL; the same image therefore serves both spaces.
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.tables import AtlasTable, encode_table
from fcpower_bids.records import Atlas
from fcpower_bids.store import write_bytes

SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
POSITIONS = ("AntSup", "AntInf", "MidSup", "MidInf", "PostSup", "PostInf")
PARCELS_PER_POSITION = 5
N_PARCELS = 2 * len(POSITIONS) * PARCELS_PER_POSITION
GREY_MATTER_THRESHOLD = 0.5
SPACING = 2
"""Millimetres between voxels, and the step taken through the 1 mm template (no interpolation)."""

IMAGE = files("fcpower_bids") / "data" / "builtin_dseg.nii.gz"
"""Result of `encode_image` for `parcellate_grey_matter`."""
ENTITIES = (("atlas", "fcpowerbuiltin"), ("scale", str(N_PARCELS)))


def builtin_atlas(space: str, cache: Path) -> Atlas:
    """Write the built-in parcellation to a folder: grey matter in 60 parts of equal volume. Raises UsageError."""
    if space not in SPACES:
        raise UsageError(
            f"The built-in parcellation is volumetric and exists in {' and '.join(SPACES)}, not in '{space}'. "
            "Name a published atlas for that space with --atlas, or choose one of these spaces with --space."
        )
    stem = f"tpl-{space}_" + "_".join(f"{key}-{value}" for key, value in ENTITIES) + "_res-02_dseg"
    image = Path(cache) / f"{stem}.nii.gz"
    names, networks, hemispheres = _describe_parcels()
    labels = tuple(range(1, N_PARCELS + 1))
    _keep_or_replace(image, IMAGE.read_bytes())
    table = AtlasTable(labels, names, networks, hemispheres)
    _keep_or_replace(image.with_name(f"{stem}.tsv"), encode_table(table))
    return Atlas(
        entities=ENTITIES,
        image=image,
        space=space,
        **table._asdict(),
        source="Recursive bisection of the ICBM 2009a symmetric grey-matter template shipped with nilearn",
        licence="ICBM template: free to use, copy, modify and distribute with its copyright notice",
        citation="Fonov et al. 2011, NeuroImage 54:313-327, doi:10.1016/j.neuroimage.2010.07.033",
    )


def parcellate_grey_matter() -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Cut the grey-matter template into parcels. Returns labels (99, 117, 95), affine (4, 4)."""
    from nilearn.datasets import load_mni152_gm_template  # slow to load

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


def _describe_parcels() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Name, position and hemisphere of each parcel, in the order of the labels."""
    rows = [
        (f"{hemisphere}H_{position}_{number:02d}", position, hemisphere)
        for hemisphere in "LR"
        for position in POSITIONS
        for number in range(1, PARCELS_PER_POSITION + 1)
    ]
    names, networks, hemispheres = zip(*rows, strict=True)
    return names, networks, hemispheres


def encode_image(labels: NDArray[np.uint8], affine: NDArray[np.float64]) -> bytes:
    """NIfTI bytes, compressed without a time stamp so that every call gives the same file."""
    import nibabel as nib  # slow to load

    image = nib.Nifti1Image(labels, affine)
    image.set_sform(affine, code="mni")
    image.set_qform(affine, code="mni")
    return gzip.compress(image.to_bytes(), mtime=0)


def _keep_or_replace(path: Path, content: bytes) -> None:
    """Leave a file alone that is right already, so that its time stamp invalidates no cached result."""
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content)
