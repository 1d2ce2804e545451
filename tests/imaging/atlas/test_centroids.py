"""Where parcels are, against their definition."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.cifti2.cifti2_axes import BrainModelAxis, LabelAxis
from nilearn.plotting import find_parcellation_cut_coords

from fcpower_bids.imaging.atlas import parcel_centroids

AFFINE = np.array([[-2.0, 0, 0, 90], [0, 2.5, 0, -126], [0, 0, 3.0, -72], [0, 0, 0, 1]])


def test_a_centroid_is_the_mean_of_its_voxels_in_the_order_of_the_labels(tmp_path: Path):
    volume = np.zeros((6, 7, 8), np.int16)
    volume[1:3, 2, 3] = 7
    volume[5, 5, 4:7] = 2
    path = tmp_path / "atlas.nii.gz"
    nib.save(nib.Nifti1Image(volume, AFFINE), path)
    found = parcel_centroids(path, (7, 2, 9))
    expected = [AFFINE @ [1.5, 2, 3, 1], AFFINE @ [5, 5, 5, 1]]
    np.testing.assert_allclose(found[:2], np.array(expected)[:, :3], atol=1e-12)
    assert np.isnan(found[2]).all()


def test_nilearn_finds_the_same_places_of_convex_parcels(tmp_path: Path):
    volume = np.zeros((12, 12, 12), np.int16)
    volume[1:5, 1:4, 2:6], volume[7:11, 6:9, 6:12] = 1, 2
    image = nib.Nifti1Image(volume, AFFINE)
    nib.save(image, tmp_path / "atlas.nii")
    there = find_parcellation_cut_coords(image)
    np.testing.assert_allclose(parcel_centroids(tmp_path / "atlas.nii", (1, 2)), there, atol=3.0)  # nilearn rounds


def test_a_parcel_on_a_surface_has_no_place_and_one_of_voxels_has(tmp_path: Path):
    mask = np.zeros((4, 4, 4), bool)
    mask[1, 2, 1:4] = True
    volume = BrainModelAxis.from_mask(mask, name="thalamus_left", affine=AFFINE)
    surface = BrainModelAxis.from_surface(np.arange(5), 10, name="cortex_left")
    values = np.array([[1, 1, 1, 1, 1, 2, 2, 2]], dtype=np.float32)
    table = {0: ("???", (0, 0, 0, 0)), 1: ("cortex", (1, 0, 0, 1)), 2: ("thalamus", (0, 1, 0, 1))}
    image = nib.Cifti2Image(values, (LabelAxis(["parcels"], [table]), surface + volume))
    nib.save(image, tmp_path / "atlas.dlabel.nii")
    found = parcel_centroids(tmp_path / "atlas.dlabel.nii", (1, 2))
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], (AFFINE @ [1, 2, 2, 1])[:3])
