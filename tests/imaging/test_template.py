"""The template on grids: referees are nilearn's own maps."""

from __future__ import annotations

import gzip

import nibabel
import numpy as np
import pytest
from nilearn.datasets import load_mni152_brain_mask, load_mni152_wm_template, struct

from fcpower_bids.imaging.atlas import SPACING
from fcpower_bids.imaging.labels import IMAGE, template_dice, template_tissue
from scripts.make_builtin import encode_image

WHITE_MATTER = 195


def grid_of(image):
    return image.shape, tuple(image.affine.ravel())


def dice(one, other):
    return 2 * (one & other).sum() / (one.sum() + other.sum())


@pytest.mark.parametrize("resolution", [1, 3])
def test_tissue_is_that_of_nilearn(resolution):
    brain, white = load_mni152_brain_mask(resolution=resolution), load_mni152_wm_template(resolution=resolution)
    tissue, volume = template_tissue(*grid_of(brain))
    assert dice(tissue > 0, (np.asanyarray(brain.dataobj) > 0).ravel(order="F")) > 0.98
    assert dice(tissue == 2, (white.get_fdata() > 0.5).ravel(order="F")) > 0.88
    assert volume == pytest.approx(load_mni152_brain_mask(resolution=1).get_fdata().sum(), rel=0.005)


def test_the_image_is_the_one_that_its_rule_gives():
    whole = nibabel.load(struct.MNI152_FILE_PATH)
    intensity = np.asanyarray(whole.dataobj)[::SPACING, ::SPACING, ::SPACING]
    tissue = (intensity > 0).astype(np.uint8) + (intensity >= WHITE_MATTER)
    affine = whole.affine @ np.diag([SPACING, SPACING, SPACING, 1.0])
    assert gzip.decompress(IMAGE.read_bytes()) == gzip.decompress(encode_image(tissue, affine))


def test_dice_counts_what_lies_beyond_the_grid():
    brain, tissue = np.array([True, True, True, False]), np.array([1, 2, 0, 1])
    assert template_dice(brain, tissue, 8.0, 5 * 8.0) == pytest.approx(2 * 2 / (3 + 5))
