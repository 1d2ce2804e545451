"""The template on grids: referees are nilearn's own maps."""

from __future__ import annotations

import numpy as np
import pytest
from nilearn.datasets import load_mni152_brain_mask, load_mni152_wm_template, struct

from fcpower_bids.imaging.template import FILE, template_dice, template_tissue


def grid_of(image):
    return image.shape, tuple(image.affine.ravel())


def dice(one, other):
    return 2 * (one & other).sum() / (one.sum() + other.sum())


@pytest.mark.parametrize("resolution", [1, 2, 3])
def test_tissue_is_that_of_nilearn(resolution):
    brain, white = load_mni152_brain_mask(resolution=resolution), load_mni152_wm_template(resolution=resolution)
    tissue, volume = template_tissue(*grid_of(brain))
    assert dice(tissue > 0, (np.asanyarray(brain.dataobj) > 0).ravel(order="F")) > 0.98
    assert dice(tissue == 2, (white.get_fdata() > 0.5).ravel(order="F")) > 0.9
    assert volume == pytest.approx(load_mni152_brain_mask(resolution=1).get_fdata().sum(), rel=0.005)


def test_the_file_is_the_one_that_nilearn_names():
    assert str(struct.MNI152_FILE_PATH).endswith(str(FILE))


def test_dice_counts_what_lies_beyond_the_grid():
    brain, tissue = np.array([True, True, True, False]), np.array([1, 2, 0, 1])
    assert template_dice(brain, tissue, 8.0, 5 * 8.0) == pytest.approx(2 * 2 / (3 + 5))
