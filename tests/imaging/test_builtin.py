"""The atlas and the template that come with the program, and where parcels are: referees are nilearn's own maps."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import nibabel
import nibabel as nib
import numpy as np
import pytest
from nibabel.cifti2.cifti2_axes import BrainModelAxis, LabelAxis
from nilearn.datasets import load_mni152_brain_mask, load_mni152_wm_template, struct

from fcpower_bids.imaging import atlas as builtin
from fcpower_bids.imaging.atlas import N_PARCELS, SPACES, SPACING, builtin_atlas, parcel_centroids
from fcpower_bids.imaging.labels import IMAGE, template_tissue
from scripts.make_builtin import encode_image, parcellate_grey_matter


@pytest.fixture(scope="module")
def labels():
    return parcellate_grey_matter()[0]


def test_the_image_that_is_kept_is_that_of_the_template(labels):
    kept = nib.Nifti1Image.from_bytes(gzip.decompress(builtin.IMAGE.read_bytes()))
    np.testing.assert_array_equal(np.asarray(kept.dataobj), labels)
    made = gzip.decompress(encode_image(*parcellate_grey_matter()))
    assert made == gzip.decompress(builtin.IMAGE.read_bytes())


@pytest.mark.parametrize("space", SPACES)
def test_image_and_table_agree_with_the_atlas(space, tmp_path):
    atlas = builtin_atlas(space, tmp_path / "new" / "cache")
    image = nib.load(atlas.image)
    assert atlas.space == space
    assert tuple(np.unique(np.asarray(image.dataobj)))[1:] == atlas.labels == tuple(range(1, N_PARCELS + 1))
    assert nib.aff2axcodes(image.affine) == ("R", "A", "S")
    assert image.header.get_zooms() == (2, 2, 2)
    assert len(set(atlas.names)) == atlas.n_parcels
    rows = list(csv.DictReader(atlas.image.with_name(atlas.image.name[:-7] + ".tsv").open(), delimiter="\t"))
    assert [(row["name"], row["network"], row["hemisphere"]) for row in rows] == list(
        zip(atlas.names, atlas.networks, atlas.hemispheres, strict=True)
    )
    assert [int(row["index"]) for row in rows] == list(atlas.labels)


def test_a_damaged_file_in_the_cache_is_replaced(tmp_path):
    atlas = builtin_atlas(SPACES[0], tmp_path)
    whole = atlas.image.read_bytes()
    atlas.image.write_bytes(whole[:100])
    builtin_atlas(SPACES[0], tmp_path)
    assert atlas.image.read_bytes() == whole
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".tsv"]


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
