"""Probabilistic atlases against nilearn's NiftiMapsMasker, and through the command."""

from __future__ import annotations

import nibabel
import numpy as np
import pandas as pd
import pytest
from nilearn.maskers import NiftiMapsMasker

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.imaging.atlas.loading import load_atlas
from fcpower_bids.imaging.series.maps import map_centroids
from fcpower_bids.imaging.series.parcellation import parcellate
from fcpower_bids.outputs.tables import read_matrix
from tests.imaging.atlas.test_loading import save_labels
from tests.running import PLAIN, run_app

SHAPE, AFFINE, T = (12, 10, 9), np.diag([4.0, 4, 4, 1]), 30
SPACE = "MNI152NLin2009cAsym"


def bumps(shape, affine, n_maps=4, width=9.0):
    """Overlapping bells around places in mm."""
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1) @ affine[:3, :3].T + affine[:3, 3]
    extent = np.array(SHAPE) * 4.0
    centres = np.random.default_rng(5).uniform(0.3, 0.7, (n_maps, 3)) * extent
    maps = np.exp(-((places[..., None, :] - centres) ** 2).sum(-1) / (2 * width**2))
    return np.where(maps > 0.02, maps, 0), centres


def save(path, data, affine=AFFINE):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(data, affine)
    image.set_sform(affine, code="mni")
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, path)
    return path


@pytest.fixture
def run(tmp_path):
    rng = np.random.default_rng(0)
    bold = save(tmp_path / "bold.nii.gz", 100 + rng.standard_normal((*SHAPE, T)))
    mask = np.zeros(SHAPE, np.uint8)
    mask[1:-1, 1:-1, 1:-1] = 1
    return bold, save(tmp_path / "mask.nii.gz", mask)


@pytest.mark.parametrize("spacing", [4.0, 3.0])
def test_the_series_are_those_of_nilearn(run, tmp_path, spacing):
    """On the grid of the run, and on another, which nilearn carries over linearly too.

    Images of doubles, because nilearn solves in the precision of the image.
    """
    bold, mask = run
    affine = np.diag([spacing, spacing, spacing, 1])
    shape = tuple(int(4 * n / spacing) for n in SHAPE)
    image = save(tmp_path / "atlas-Bumps_probseg.nii.gz", bumps(shape, affine)[0], affine)
    atlas = load_atlas(str(image), SPACE)
    assert (atlas.probabilistic, atlas.labels, atlas.names[0]) == (True, (1, 2, 3, 4), "parcel001")
    (found,) = parcellate(bold, mask, [atlas], n_dummy=2)
    theirs = NiftiMapsMasker(image, mask_img=mask, standardize=None, keep_masked_maps=False).fit_transform(str(bold))
    np.testing.assert_allclose(found.series, theirs[2:], rtol=1e-6)
    assert (found.coverage > 0.5).all()


def test_what_the_scan_has_not_seen_takes_no_part(run, tmp_path):
    """Voxels without signal leave the fit; a map that has only these is n/a."""
    bold, mask = run
    maps, _ = bumps(SHAPE, AFFINE)
    maps[:2] = 0
    far = np.zeros((*SHAPE, 1))
    far[1, 5, 5] = 1
    atlas = load_atlas(str(save(tmp_path / "m.nii.gz", np.concatenate([maps, far], -1))), SPACE)
    data = nibabel.load(bold).get_fdata()
    data[:2] = 0
    data[6, 5, 5, 7] = np.nan
    broken = save(tmp_path / "broken.nii.gz", data)
    (found,) = parcellate(broken, mask, [atlas])
    used = (nibabel.load(mask).get_fdata() > 0) & (data != data[..., :1]).any(-1) & np.isfinite(data).all(-1)
    expected = np.linalg.lstsq(maps[used], data[used], rcond=None)[0].T
    np.testing.assert_allclose(found.series[:, :4], expected, rtol=1e-5)
    assert np.isnan(found.series[:, 4]).all()
    assert found.coverage[4] == 0
    np.testing.assert_allclose(found.coverage[:4], maps[used].sum(0) / maps.sum((0, 1, 2)), rtol=1e-6)


def test_labels_and_maps_in_one_call_keep_their_places(run, tmp_path):
    bold, mask = run
    maps = load_atlas(str(save(tmp_path / "m.nii.gz", bumps(SHAPE, AFFINE)[0])), SPACE)
    cube = np.zeros(SHAPE, np.int16)
    cube[3:6, 3:6, 3:6], cube[6:9, 3:6, 3:6] = 1, 2
    labels = load_atlas(str(save_labels(tmp_path / "l.nii.gz", cube, AFFINE)), SPACE)
    both = parcellate(bold, mask, [labels, maps, labels])
    for one, atlas in zip(both, (labels, maps, labels), strict=True):
        np.testing.assert_array_equal(one.series, parcellate(bold, mask, [atlas])[0].series)


def test_stored_values_are_scaled_before_the_fit(run, tmp_path):
    bold, mask = run
    atlas = load_atlas(str(save(tmp_path / "m.nii.gz", bumps(SHAPE, AFFINE)[0])), SPACE)
    data = nibabel.load(bold).get_fdata()
    image = nibabel.Nifti1Image(np.round((data - 90) * 1000).astype(np.int16), AFFINE)
    image.header.set_slope_inter(0.001, 90)
    nibabel.save(image, tmp_path / "scaled.nii.gz")
    ours = parcellate(tmp_path / "scaled.nii.gz", mask, [atlas])[0].series
    np.testing.assert_allclose(ours, parcellate(bold, mask, [atlas])[0].series, atol=2e-3)


def test_centres_are_those_of_the_weights(tmp_path):
    shape = (30, 30, 30)
    maps, centres = bumps(shape, np.diag([2.0, 2, 2, 1]), width=3.0)
    image = save(tmp_path / "m.nii.gz", maps, np.diag([2.0, 2, 2, 1]))
    np.testing.assert_allclose(map_centroids(image, (2, 1)), centres[[1, 0]], atol=0.2)


def test_what_cannot_be_is_refused(run, tmp_path):
    image = save(tmp_path / "m.nii.gz", bumps(SHAPE, AFFINE)[0])
    with pytest.raises(UsageError, match="maps overlap"):
        load_atlas(f"{image}+{image}", SPACE, cache=tmp_path)
    bad = bumps(SHAPE, AFFINE)[0]
    bad[0, 0, 0, 0] = np.nan
    atlas = load_atlas(str(save(tmp_path / "bad.nii.gz", bad)), SPACE)
    with pytest.raises(UsageError, match="not finite"):
        parcellate(*run, [atlas])
    image.write_bytes(image.read_bytes()[:-200])
    with pytest.raises((UsageError, RecordingError), match=r"m\.nii\.gz"):
        parcellate(*run, [load_atlas(str(image), SPACE)])


def test_the_command_gives_the_connectome_of_nilearns_series(tmp_path, monkeypatch):
    """DiFuMo by name from a folder, as TemplateFlow lays it out, without network."""
    monkeypatch.setenv("FCPOWER_OFFLINE", "1")
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1))
    (bold,) = (tmp_path / "in").rglob("*desc-preproc_bold.nii.gz")
    mask = bold.with_name(bold.name.replace("desc-preproc_bold", "desc-brain_mask"))
    header = nibabel.load(bold)
    places = np.stack(np.meshgrid(*map(np.arange, header.shape[:3]), indexing="ij"), -1)
    inside = np.argwhere(nibabel.load(mask).get_fdata() > 0)
    centres = inside[np.linspace(0, len(inside) - 1, 8).astype(int)[1:-1]]
    maps = np.exp(-((places[..., None, :] - centres) ** 2).sum(-1) / 18)
    folder = tmp_path / "atlases" / f"tpl-{SPACE}"
    image = save(folder / f"tpl-{SPACE}_res-02_atlas-DiFuMo_desc-64dimensions_probseg.nii.gz", maps, header.affine)
    table = folder / f"tpl-{SPACE}_atlas-DiFuMo_desc-64dimensions_probseg.tsv"
    pd.DataFrame({"Component": range(1, 7), "Difumo_names": [f"mode {k}" for k in range(6)]}).to_csv(
        table, sep="\t", index=False
    )
    options = ("--atlas", "DiFuMo64", "--atlas-dir", tmp_path / "atlases", "--min-coverage", "0.1", "--nprocs", "1")
    found = run_app(tmp_path / "in", tmp_path / "out", *PLAIN, *options)
    assert found.code == 0, found.err
    fc, names = read_matrix(found.file("sub-01", "scale-64_res-2_stat-pearsoncorrelation_relmat.tsv"))
    assert names[0] == "mode 0"
    theirs = NiftiMapsMasker(image, mask_img=mask, standardize=None, keep_masked_maps=False).fit_transform(str(bold))
    np.testing.assert_allclose(fc, np.corrcoef(theirs.T), atol=1e-5)
    assert found.files("*atlas-DiFuMo_scale-64_probseg.nii.gz")
    assert (tmp_path / "out" / "sub-01.html").is_file()
