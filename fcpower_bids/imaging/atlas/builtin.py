"""A parcellation that needs no download, cut from the grey-matter template that nilearn carries.

Its image is kept in ``data``, since making it takes longer than anything else at the start of a job: by
``scripts/make_builtin.py``, and a test makes it anew. It makes the first run, the demo dataset and the tests work on a
machine without network. Its borders follow coordinates, not anatomy or function: for science choose a published atlas.

The template is the symmetric ICBM 2009a, so the right hemisphere is the exact mirror image of the left one. 2009a,
2009c and the 6th generation share their axes and differ locally by a few millimetres, little against parcels of
18 mL; the same image therefore serves both spaces.
"""

from __future__ import annotations

import gzip
import itertools
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.files import AtlasTable, encode_table
from fcpower_bids.records import Atlas
from fcpower_bids.store import write_bytes

SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
POSITIONS = ("AntSup", "AntInf", "MidSup", "MidInf", "PostSup", "PostInf")
PARCELS_PER_POSITION = 5
N_PARCELS = 2 * len(POSITIONS) * PARCELS_PER_POSITION
SPACING = 2
"""Millimetres between voxels, and the step taken through the 1 mm template (no interpolation)."""

IMAGE = files("fcpower_bids") / "data" / "builtin_dseg.nii.gz"
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
    sides = list(itertools.product("LR", POSITIONS, range(1, PARCELS_PER_POSITION + 1)))
    names = tuple(f"{hemisphere}H_{position}_{number:02d}" for hemisphere, position, number in sides)
    hemispheres, networks, _ = zip(*sides, strict=True)
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


def builtin_labels() -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Return the labels (99, 117, 95) of the built-in parcellation, and their affine (4, 4)."""
    import nibabel as nib  # slow to load

    image = nib.Nifti1Image.from_bytes(gzip.decompress(IMAGE.read_bytes()))
    return np.asarray(image.dataobj), np.asarray(image.affine, dtype=np.float64)


def _keep_or_replace(path: Path, content: bytes) -> None:
    """Leave a file alone that is right already, so that its time stamp invalidates no cached result."""
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content)
