"""HCP trees through the command: the numbers of the same series given as fMRIPrep."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.outputs.tables import read_matrix
from tests.planting.pipelines import hcp_surface, hcp_volumes, make_surface, make_volumes
from tests.planting.surfaces import labels_of, save_dlabel
from tests.running import Finished, run_app

FC, OUTLIERS = "stat-pearsoncorrelation_relmat.tsv", "desc-confounds_outliers.tsv"
CHOICES = ("--nprocs", "1", "--min-time", "60", "--fd-thresh", "0.12", "--high-pass", "0.01", "--low-pass", "0.15")
BUILTIN = ("--atlas", "builtin")


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """One recording as fMRIPrep wrote it, and what the command made of it."""
    folder = tmp_path_factory.mktemp("pipelines")
    bold, mask, motion = make_volumes(folder / "fmriprep")
    found = run_app(folder / "fmriprep", folder / "out", *CHOICES, *BUILTIN)
    assert found.code == 0, found.err
    return (bold, mask, motion), found


def assert_same(ours: Finished, theirs: Finished, name: str) -> None:
    """Connectome, displacement and kept volumes."""
    assert ours.code == 0, ours.err
    ((recording, state),) = ours.states().items()
    assert (recording, state) == (name, "done")
    pair = [read_matrix(next(iter(one.output.rglob(f"*_{FC}"))))[0] for one in (ours, theirs)]
    np.testing.assert_allclose(*pair, atol=1e-10)
    tables = [pd.read_csv(next(one.output.rglob(f"*_{OUTLIERS}")), sep="\t", na_values="n/a") for one in (ours, theirs)]
    np.testing.assert_allclose(*(table["framewise_displacement"] for table in tables), rtol=1e-9)
    kept = [table["kept"].to_numpy() for table in tables]
    np.testing.assert_array_equal(*kept)
    assert 10 < (kept[0] == 0).sum() < 90


def test_hcp_volumes(volumes, tmp_path):
    files, theirs = volumes
    hcp_volumes(tmp_path / "in", *files)
    ours = run_app(tmp_path / "in", tmp_path / "out", *CHOICES, *BUILTIN)
    assert_same(ours, theirs, "sub-100307_task-rest_dir-LR_run-1_space-MNI152NLin6Asym_res-2")


def test_hcp_surfaces_are_read_as_fix_left_them(tmp_path):
    data, motion = make_surface(tmp_path / "fmriprep")
    hcp_surface(tmp_path / "in", data, motion)
    hcp_surface(tmp_path / "in", data[:, ::-1], motion, "_Atlas_MSMAll")
    hcp_surface(tmp_path / "in", data[:, ::-1], motion, "_Atlas_hp2000_clean")
    atlas = save_dlabel(tmp_path / "tpl-fsLR_atlas-Mine_dseg.dlabel.nii", labels_of(4), ["a", "b", "c", "d"])
    theirs = run_app(tmp_path / "fmriprep", tmp_path / "theirs", *CHOICES, "--atlas", atlas)
    ours = run_app(tmp_path / "in", tmp_path / "ours", *CHOICES, "--atlas", atlas)
    assert_same(ours, theirs, "sub-100307_task-rest_dir-LR_run-1_proc-fix_space-fsLR_den-91k")
    seen = run_app(tmp_path / "in", tmp_path / "none", "--dry-run", "--atlas", atlas)
    assert "is read as HCP minimal preprocessing (hcp, by its folders; --input-type says otherwise)" in seen.out
    assert "1 series are taken as ICA-FIX left them (proc-fix); 1 without it are left out" in seen.out
    choice = tmp_path / "filter.json"
    choice.write_text(json.dumps({"bold": {"proc": None}}))
    raw = run_app(tmp_path / "in", tmp_path / "raw", "--dry-run", "--bids-filter-file", choice, "--atlas", atlas)
    assert "sub-100307_task-rest_dir-LR_run-1_space-fsLR_den-91k" in raw.out


def test_what_motion_files_lack_is_refused_by_strategy(volumes, tmp_path):
    files, _ = volumes
    folder = hcp_volumes(tmp_path / "in", *files)
    found = run_app(tmp_path / "in", tmp_path / "out", *CHOICES, *BUILTIN, "--strategy", "36P")
    assert found.code == 5
    reason = found.reason("sub-100307")
    assert str(folder / "Movement_Regressors.txt") in reason
    assert all(word in reason for word in ("csf", "white_matter", "global_signal", "--strategy 24P or none"))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("no motion", "no Movement_Regressors.txt of its run is next to it"),
        ("no mask", "brainmask_fs.2.nii.gz is not next to it"),
    ],
)
def test_what_is_missing_or_broken_is_named(volumes, tmp_path, harm, words):
    files, _ = volumes
    folder = hcp_volumes(tmp_path / "in", *files)
    motion = folder / "Movement_Regressors.txt"
    if harm == "no mask":
        (folder / "brainmask_fs.2.nii.gz").unlink()
    else:
        motion.unlink()
    found = run_app(tmp_path / "in", tmp_path / "out", *CHOICES, *BUILTIN)
    assert found.code in (3, 5)
    assert words in found.reason("sub-100307")
