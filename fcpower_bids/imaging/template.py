"""The MNI152 template that nilearn ships: its brain and its white matter on the grid of a recording."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fcpower_bids.imaging.grids import resample_labels

SPACES = "MNI152"
"""Beginning of the names of the spaces that it belongs to; the templates of children are others."""
FILE = Path("datasets", "data", "mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz")
WHITE_MATTER = 195
"""Intensity from which its T1 is white matter: a Dice coefficient of .965 with the map that nilearn ships as well."""


@lru_cache(maxsize=2)
def template_tissue(shape: tuple[int, int, int], affine: tuple[float, ...]) -> tuple[np.ndarray, float]:
    """Return 1 in the template's brain, 2 in its white matter and 0 elsewhere, and the volume of its brain.

    Shapes and units: affine (16,); returns (X * Y * Z,) in file order, and mm^3.
    """
    import nibabel  # slow to load

    package = find_spec("nilearn")  # importing it would take a second
    if package is None or not package.submodule_search_locations:
        return np.zeros(int(np.prod(shape)), dtype=np.uint8), float("nan")
    image = nibabel.load(Path(package.submodule_search_locations[0]) / FILE)  # type: ignore[attr-defined]
    intensity = np.asanyarray(image.dataobj)  # type: ignore[attr-defined]
    tissue = (intensity > 0).astype(np.uint8) + (intensity >= WHITE_MATTER)
    cubic = abs(float(np.linalg.det(image.affine[:3, :3])))  # type: ignore[attr-defined]
    placed = resample_labels(tissue, image.affine, shape, np.reshape(affine, (4, 4)))  # type: ignore[attr-defined]
    return placed.ravel(order="F"), float((tissue > 0).sum()) * cubic


def template_dice(brain: np.ndarray, tissue: np.ndarray, cubic: float, of_template: float) -> float:
    """Return the Dice coefficient of a mask and the template's brain, which may reach beyond the grid.

    Shapes and units: brain, tissue (V,), cubic (mm^3 of a voxel), of_template (mm^3).
    """
    common = float((brain & (tissue > 0)).sum()) * cubic
    return 2 * common / (float(brain.sum()) * cubic + of_template)
