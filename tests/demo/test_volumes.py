import nibabel as nib
import numpy as np
import pytest
from nilearn.image import resample_to_img

from fcpower_bids.demo.signals import DemoDesign, draw_physiology, paint_recording
from fcpower_bids.imaging.atlas import N_PARCELS, builtin_atlas


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
