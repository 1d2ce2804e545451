import gzip

import nibabel as nib
import numpy as np
import pytest
from nilearn.image import resample_to_img

from fcpower_bids.demo.signals import DemoDesign, draw_physiology, encode_nifti, paint_recording, unmask
from fcpower_bids.imaging.atlas.builtin import N_PARCELS, builtin_atlas


def test_grid_holds_every_parcel_and_both_tissues(head):
    sizes = np.bincount(head.parcel, minlength=N_PARCELS + 1)
    assert sizes[1:].min() >= 20
    np.testing.assert_array_equal(sizes[1:31], sizes[31:])
    assert head.white_matter.sum() > 300
    assert head.csf.sum() > 100
    assert not (head.white_matter & (head.parcel > 0)).any()
    assert nib.aff2axcodes(head.affine) == ("R", "A", "S")


def test_labels_are_what_nilearn_resamples_to_the_grid(head, tmp_path):
    target = nib.Nifti1Image(head.brain.astype(np.uint8), head.affine)
    atlas = nib.load(builtin_atlas("MNI152NLin6Asym", tmp_path).image)
    resampled = resample_to_img(atlas, target, interpolation="nearest", force_resample=True, copy_header=True)
    labels = np.asarray(resampled.dataobj)
    np.testing.assert_array_equal(labels[head.brain], head.parcel)
    assert not labels[~head.brain].any()


@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("cut", [False, True])
def test_parcel_means_are_the_painted_series_exactly(head, noise, cut):
    rng = np.random.default_rng(0)
    design = DemoDesign.tiny(noise=noise)
    seen = head.hide_top() if cut else head
    painted = 2.0 * rng.integers(-200, 200, (design.volumes, N_PARCELS))
    voxels = paint_recording(seen, painted, draw_physiology(design.volumes, 0.0, 1.0, rng), design, rng)
    stored = voxels.astype(np.float32).astype(float)
    for label in np.unique(seen.parcel)[1:]:
        mean = stored[seen.parcel == label].mean(axis=0)
        np.testing.assert_allclose(mean, 10_000 + painted[:, label - 1], rtol=0, atol=1e-9)
    spread = stored[seen.parcel == 5].std(axis=0)
    assert (np.ptp(spread) > 1) == (noise > 0)


def test_hidden_top_takes_some_parcels_away_and_leaves_most(head):
    whole, seen = (np.bincount(one.parcel, minlength=N_PARCELS + 1)[1:] for one in (head, head.hide_top()))
    share = seen / whole
    assert 1 <= (share == 0).sum() <= 6
    assert ((share > 0) & (share < 1)).any()
    assert (share == 1).mean() > 0.6


def test_unmasked_voxels_are_where_the_mask_is(head):
    voxels = np.arange(head.brain.sum() * 3.0).reshape(-1, 3)
    volume = unmask(voxels, head.brain)
    np.testing.assert_array_equal(volume[head.brain], voxels)
    assert not volume[~head.brain].any()


def test_images_have_no_time_stamp_and_keep_header_and_numbers(head):
    volume = np.random.default_rng(0).integers(0, 9000, (*head.brain.shape, 3)).astype(np.float32)
    content = encode_nifti(volume, head.affine, 2.5)
    assert content[4:8] == bytes(4)
    image = nib.Nifti1Image.from_bytes(gzip.decompress(content))
    assert image.header.get_zooms() == (8, 8, 8, 2.5)
    assert image.header.get_xyzt_units() == ("mm", "sec")
    assert image.header["sform_code"] == image.header["qform_code"] == 4
    np.testing.assert_array_equal(np.asarray(image.dataobj), volume)
    np.testing.assert_array_equal(image.affine, head.affine)
