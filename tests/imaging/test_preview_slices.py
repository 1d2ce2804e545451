"""Slices that a page shows: mean and temporal SNR are those of the file, left is left, and the start does not count."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.imaging.parcellation import parcellate
from fcpower_bids.imaging.streaming import MARGIN, N_SLICES, SETTLING
from tests.imaging.test_parcellation import AFFINE, SPACE, make_atlas, make_labels, save_image

SHAPE = (14, 16, 20)
N_VOLUMES = 4 * SETTLING + 2


@pytest.fixture
def files(tmp_path):
    """A recording of a brain with a bright first volume, its mask, an atlas, and the values."""
    rng = np.random.default_rng(3)
    labels = make_labels(rng, SHAPE)
    data = rng.normal(1000, 20, (*SHAPE, N_VOLUMES)).astype(np.float32)
    data[..., 0] *= 1.5
    brain = np.zeros(SHAPE, np.uint8)
    brain[4:10, 5:12, 3:18] = 1
    labels[brain == 0] = 0

    def write(step):
        """With every axis turned round, and the values stored the other way."""
        affine = AFFINE @ np.diag([step, step, step, 1])
        affine[:3, 3] += (1 - step) * (np.array(SHAPE) - 1)
        turned = (slice(None, None, step),) * 3
        bold = save_image(tmp_path / f"sub-1_space-{SPACE}_bold.nii.gz", data[turned], affine)
        mask = save_image(tmp_path / f"sub-1_space-{SPACE}_mask.nii.gz", brain[turned], affine)
        return bold, mask, make_atlas(tmp_path / "atlas.nii.gz", labels[turned], affine)

    return write, data, brain > 0, labels


def expected(values, z):
    """Slices of a volume on the grid of `AFFINE`, cut to the brain and its margin: front on top, left on the left."""
    rows, columns = slice(5 - MARGIN, 12 + MARGIN), slice(4 - MARGIN, 10 + MARGIN)
    places = [round((height - AFFINE[2, 3]) / 2) for height in z]
    return np.stack([values[columns, rows, place].T[::-1] for place in places])


@pytest.mark.parametrize("step", [1, -1])
def test_mean_and_tsnr_are_those_of_the_volumes_after_the_start(files, step):
    write, data, brain, labels = files
    bold, mask, atlas = write(step)
    (found,) = parcellate(bold, mask, [atlas])
    shown, steady = found.slices, data[..., SETTLING:].astype(np.float64)
    assert len(shown.z) == N_SLICES
    np.testing.assert_allclose(shown.mean, expected(steady.mean(-1), shown.z), rtol=1e-6)
    np.testing.assert_allclose(shown.tsnr, expected(steady.mean(-1) / steady.std(-1, ddof=1), shown.z), rtol=1e-5)
    np.testing.assert_array_equal(shown.brain, expected(brain, shown.z))
    np.testing.assert_array_equal(shown.parcels, expected(labels, shown.z))
