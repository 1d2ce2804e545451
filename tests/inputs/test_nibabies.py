"""A template that has a cohort per age: files and atlases of one age are not those of another."""

from __future__ import annotations

import shutil

import pytest

from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.records import is_in_space, space_of
from tests.running import PLAIN, run_app

ONE = ("--participant-label", "01", "--session-label", "a")
THREE, FOUR = "MNIInfant_cohort-3", "MNIInfant_cohort-4"


@pytest.fixture(scope="module")
def infants(exact_demo, tmp_path_factory):
    """The demo under NiBabies' names, and a folder with an atlas for two ages."""
    folder = tmp_path_factory.mktemp("nibabies")
    bids = shutil.copytree(exact_demo[0], folder / "bids")
    for path in sorted(bids.rglob("*space-MNI152NLin2009cAsym*")):
        path.rename(path.with_name(path.name.replace("space-MNI152NLin2009cAsym", f"space-{THREE}")))
    image = builtin_atlas("MNI152NLin2009cAsym", folder).image
    (folder / "atlases").mkdir()
    for space in (THREE, FOUR):
        for extension in ("nii.gz", "tsv"):
            made = image.with_name(image.name.replace("nii.gz", extension))
            shutil.copy(made, folder / "atlases" / f"tpl-{space}_atlas-Own_dseg.{extension}")
    return folder


def test_connectomes_of_one_age_are_those_of_the_same_voxels_elsewhere(infants, exact_run):
    options = ("--atlas", "Own", "--atlas-dir", infants / "atlases", "--space", "MNIInfant:cohort-3", *ONE, *PLAIN)
    found = run_app(infants / "bids", infants / "out", *options)
    assert found.code == 0, found.err
    (written,) = found.files("*cohort-3*space-MNIInfant*stat-pearsoncorrelation_relmat.tsv")
    matrix, parcels = read_matrix(written)
    expected, names = read_matrix(exact_run.file("sub-01_ses-a_task-rest_run-1", "pearsoncorrelation_relmat.tsv"))
    assert tuple(parcels) == tuple(names)
    assert (matrix == expected).all()
    (copy,) = (found.output / "sourcedata" / "atlases").glob("tpl-*")
    assert copy.name == f"tpl-{THREE}"


def test_another_age_is_refused_by_its_name(infants, tmp_path):
    atlas = f"{infants}/atlases/tpl-{FOUR}_atlas-Own_dseg.nii.gz"
    for options in (("builtin", "--space", "MNIInfant:cohort-4"), (atlas, "--space", "MNIInfant")):
        found = run_app(infants / "bids", tmp_path / "out", "--atlas", *options, *ONE, "--dry-run")
        assert found.code in (2, 3), found.err
        assert THREE in found.err


def test_a_template_without_its_cohort_means_all_of_them():
    assert space_of({"space": "MNIInfant", "cohort": "3"}) == THREE
    assert space_of({"tpl": "fsLR"}) == "fsLR"
    assert space_of({"cohort": "3"}) is None
    three = {"space": "MNIInfant", "cohort": "3"}
    assert [is_in_space(three, one) for one in ("MNIInfant", "MNIInfant:cohort-3", THREE, FOUR)] == [True] * 3 + [False]
    assert not is_in_space({"space": "MNIInfant"}, THREE)
