"""Filtered motion and the size of the head, as XCP-D has them, through the command."""

from __future__ import annotations

import json

import nibabel
import numpy as np
import pandas as pd
import pytest
from nilearn.maskers import NiftiLabelsMasker

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.imaging.confounds import load_strategy
from fcpower_bids.outputs.tables import read_matrix
from tests.core.test_series import explicit, published
from tests.planting.surfaces import PARAMETERS
from tests.running import run_app

FC, OUTLIERS = "stat-pearsoncorrelation_relmat.tsv", "desc-confounds_outliers.tsv"
T, TR = 120, 2.5
MOVED = [0, 1, 40, 41, 70, 119]
"""Censored volumes: at both ends, two in a row; none but the ends is the mirror image of another."""
ONE = ("--atlas", "builtin", "--nprocs", "1", "--quiet", "--dummy-scans", "0", "--min-time", "60")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """One recording whose head moves suddenly, its mask, its table and the atlas."""
    folder = tmp_path_factory.mktemp("conventions")
    make_dataset(folder / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=T))
    (path,) = (folder / "in").rglob("*desc-confounds_timeseries.tsv")
    table = pd.read_csv(path, sep="\t")
    rng = np.random.default_rng(0)
    breathing = 0.05 * np.sin(2 * np.pi * 0.3 * TR * np.arange(T))
    for name in PARAMETERS:
        scale = 1.0 if name.startswith("trans") else 0.01
        table[name] = (breathing + 0.01 * rng.standard_normal(T).cumsum()) * scale
        table[f"{name}_derivative1"] = table[name].diff()
        table[f"{name}_power2"] = table[name] ** 2
        table[f"{name}_derivative1_power2"] = table[name].diff() ** 2
    table["framewise_displacement"] = 0.1
    table.loc[MOVED, "framewise_displacement"] = 2.0
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    (bold,) = (folder / "in").rglob("*desc-preproc_bold.nii.gz")
    mask = bold.with_name(bold.name.replace("desc-preproc_bold", "desc-brain_mask"))
    atlas = builtin_atlas("MNI152NLin2009cAsym", folder).image
    masker = NiftiLabelsMasker(atlas, mask_img=mask, resampling_target="data", standardize=None, strategy="mean")
    return folder, masker.fit_transform(str(bold)).astype(np.float64), table, mask


@pytest.mark.parametrize(("kind", "stop", "radius"), [("notch", (15.0, 21.0), 50.0), ("lp", (6.0, None), 35.0)])
def test_filtered_motion_is_written_censored_and_regressed(dataset, tmp_path, kind, stop, radius):
    folder, series, table, _ = dataset
    motion = table[PARAMETERS].to_numpy()
    filtered = published(motion, TR, kind, *stop, 4)
    steps = np.abs(np.diff(filtered, axis=0))
    moved = np.concatenate([[0.0], steps[:, :3].sum(axis=1) + radius * steps[:, 3:].sum(axis=1)])
    threshold = float(np.sort(moved)[-6])
    edges = ["--band-stop-min", stop[0], *(["--band-stop-max", stop[1]] if stop[1] else [])]
    options = ("--motion-filter-type", kind, *edges, "--head-radius", radius, "--fd-thresh", threshold)
    found = run_app(folder / "in", tmp_path / "out", *ONE, *options, code=0)
    outliers = pd.read_csv(found.file("sub-01", OUTLIERS), sep="\t", na_values="n/a")
    np.testing.assert_allclose(outliers["framewise_displacement"][1:], moved[1:], rtol=1e-6)
    kept = ~(moved > threshold)
    assert (~kept).sum() == 5
    np.testing.assert_array_equal(outliers["kept"], kept)
    names = load_strategy("24P").columns
    remade = pd.DataFrame(filtered, columns=PARAMETERS)
    for name in tuple(remade):
        remade[f"{name}_derivative1"] = remade[name].diff().bfill()
        remade[f"{name}_power2"] = remade[name] ** 2
        remade[f"{name}_derivative1_power2"] = remade[f"{name}_derivative1"] ** 2
    expected = explicit(series, remade[list(names)].to_numpy(), kept, TR)
    np.testing.assert_allclose(read_matrix(found.file("sub-01", FC))[0], np.corrcoef(expected.T), atol=1e-5)
    about = json.loads(found.file("sub-01", OUTLIERS.replace("tsv", "json")).read_text())
    assert about["MotionFilter"]["Type"] == kind
    assert float(about["HeadRadiusMillimetres"]) == radius


def test_the_head_can_be_as_large_as_its_mask(dataset, tmp_path):
    folder, _, table, mask = dataset
    found = run_app(folder / "in", tmp_path / "out", *ONE, "--head-radius", "auto", "--fd-thresh", 0)
    image = nibabel.load(mask)
    volume = np.count_nonzero(image.get_fdata()) * np.prod(image.header.get_zooms())
    radius = (3 * volume / (4 * np.pi)) ** (1 / 3)
    motion = table[PARAMETERS].to_numpy()
    steps = np.abs(np.diff(motion, axis=0))
    outliers = pd.read_csv(found.file("sub-01", OUTLIERS), sep="\t", na_values="n/a")
    expected = steps[:, :3].sum(axis=1) + radius * steps[:, 3:].sum(axis=1)
    np.testing.assert_allclose(outliers["framewise_displacement"], [np.nan, *expected], rtol=1e-6)
    about = json.loads(found.file("sub-01", OUTLIERS.replace("tsv", "json")).read_text())
    assert about["HeadRadiusMillimetres"] == pytest.approx(radius, abs=1e-3)
