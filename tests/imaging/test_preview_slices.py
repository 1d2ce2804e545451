"""Slices that a page shows: mean and temporal SNR are those of the file, left is left, and the start does not count."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.imaging.parcellation import parcellate
from fcpower_bids.imaging.streaming import MARGIN, N_SIDES, N_SLICES, SETTLING
from fcpower_bids.records import AXIAL, CORONAL, SAGITTAL
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

    def write(affine=AFFINE, scaling=(None, None), values=data):
        bold = save_image(tmp_path / f"sub-1_space-{SPACE}_bold.nii.gz", values, affine, scaling=scaling)
        mask = save_image(tmp_path / f"sub-1_space-{SPACE}_mask.nii.gz", brain, affine)
        return bold, mask, make_atlas(tmp_path / "atlas.nii.gz", labels, affine)

    return write, data, brain > 0, labels


def expected(values, heights):
    """Slices of a volume on the grid of `AFFINE`, cut to the brain and its margin: front on top, left on the left."""
    rows, columns = slice(5 - MARGIN, 12 + MARGIN), slice(4 - MARGIN, 10 + MARGIN)
    places = [round((z - AFFINE[2, 3]) / 2) for z in heights]
    return np.stack([values[columns, rows, place].T[::-1] for place in places])


def test_mean_and_tsnr_are_those_of_the_volumes_after_the_start(files):
    write, data, brain, labels = files
    bold, mask, atlas = write()
    (found,) = parcellate(bold, mask, [atlas])
    shown, steady = found.slices.of(AXIAL), data[..., SETTLING:].astype(np.float64)
    assert len(shown.heights) == N_SLICES
    np.testing.assert_allclose(shown.mean, expected(steady.mean(-1), shown.heights), rtol=1e-6)
    np.testing.assert_allclose(shown.tsnr, expected(steady.mean(-1) / steady.std(-1, ddof=1), shown.heights), rtol=1e-5)
    np.testing.assert_array_equal(shown.brain, expected(brain, shown.heights))
    np.testing.assert_array_equal(shown.parcels, expected(labels, shown.heights))


@pytest.mark.parametrize("step", [1, -1])
def test_sagittal_and_coronal_slices_have_the_top_above_and_front_and_left_on_the_left(files, tmp_path, step):
    _, data, brain, labels = files
    affine = AFFINE @ np.diag([step, step, step, 1])  # every axis turned round with the values stored the other way
    affine[:3, 3] += (1 - step) * (np.array(SHAPE) - 1)
    data, brain, labels = (one[::step, ::step, ::step] for one in (data, brain, labels))
    bold = save_image(tmp_path / f"sub-1_space-{SPACE}_bold.nii.gz", data, affine)
    mask = save_image(tmp_path / f"sub-1_space-{SPACE}_mask.nii.gz", brain.astype(np.uint8), affine)
    atlas = make_atlas(tmp_path / "atlas.nii.gz", labels, affine)
    data, brain, labels = (one[::step, ::step, ::step] for one in (data, brain, labels))
    (found,) = parcellate(bold, mask, [atlas])
    mean = data[..., SETTLING:].astype(np.float64).mean(-1)
    box = tuple(slice(a - MARGIN, b + MARGIN) for a, b in ((4, 10), (5, 12), (3, 18)))
    for plane in (SAGITTAL, CORONAL):
        shown = found.slices.of(plane)
        assert len(shown.heights) == N_SIDES
        for number, place in enumerate(np.round((shown.heights - AFFINE[plane, 3]) / 2).astype(int)):
            for values, drawn in ((mean, shown.mean), (brain, shown.brain), (labels, shown.parcels)):
                window = [*box]
                window[plane] = place
                flat = values[tuple(window)]  # (y, z) or (x, z)
                wanted = flat[::-1].T[::-1] if plane == SAGITTAL else flat.T[::-1]
                np.testing.assert_allclose(drawn[number], wanted, rtol=1e-6)
