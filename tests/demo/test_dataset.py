"""The dataset of the demo: its truth is found again by others, and the command writes what is asked for."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from nilearn.maskers import NiftiLabelsMasker

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo import __main__ as command
from fcpower_bids.demo.dataset import DERIVATIVES, TRUTH
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import N_PARCELS, builtin_atlas
from tests.running import PATIENCE

VALIDATOR = Path(sys.executable).with_name("bids-validator-deno")


def find(folder, recording, ending):
    return next((folder / DERIVATIVES).rglob(f"{recording}_*{ending}"))


def digest(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def parcellate(folder, recording, cache):
    masker = NiftiLabelsMasker(
        builtin_atlas("MNI152NLin2009cAsym", cache).image,
        mask_img=find(folder, recording, "brain_mask.nii.gz"),
        resampling_target="data",
        keep_masked_labels=False,
    )
    series = masker.fit_transform(find(folder, recording, "preproc_bold.nii.gz"))
    labels = np.array([label for label in masker.region_ids_.values() if label != "background"])
    return labels[labels > 0], series


@pytest.mark.filterwarnings("ignore")
def test_without_noise_nilearn_recovers_the_clean_series(exact_demo, tmp_path):
    folder, truth = exact_demo
    for index, recording in enumerate(truth.recordings):
        labels, series = parcellate(folder, recording, tmp_path)
        np.testing.assert_array_equal(labels, np.arange(1, N_PARCELS + 1))
        clean = truth.clean[index]
        assert np.abs(series - 10_000 - clean).max() / clean.std() < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_with_noise_nilearn_recovers_the_painted_series_of_the_parcels_seen(troubled_demo, tmp_path):
    folder, truth = troubled_demo
    index = truth.subjects.index("02")
    labels, series = parcellate(folder, truth.recordings[index], tmp_path)
    np.testing.assert_array_equal(labels, 1 + np.flatnonzero(truth.coverage[index] > 0))
    assert len(labels) < N_PARCELS
    painted = truth.painted[index][:, labels - 1]
    assert np.abs(series - 10_000 - painted).max() / truth.clean[index].std() < 1e-5
    assert np.abs(painted - truth.clean[index][:, labels - 1]).max() > 100


def test_confounds_explain_what_was_added(tiny):
    folder, truth = tiny
    for index, recording in enumerate(truth.recordings):
        table = pd.read_csv(find(folder, recording, "confounds_timeseries.tsv"), sep="\t", na_values="n/a")
        plain = table.filter(regex=r"^(trans|rot)_[xyz]$|^csf$|^white_matter$|^cosine|outlier")
        design = np.column_stack([np.ones(len(table)), plain])
        added = truth.painted[index] - truth.clean[index]
        left = added - design @ np.linalg.lstsq(design, added, rcond=None)[0]
        assert left.var() < 0.02 * added.var()


def test_troubles_are_where_the_design_says(troubled_demo):
    folder, truth = troubled_demo
    assert [name for name in truth.recordings if "run-2" in name] == ["sub-01_ses-a_task-rest_run-2"]
    incomplete = {truth.subjects[index] for index in np.flatnonzero((truth.coverage < 1).any(axis=1))}
    assert incomplete == {"02"}
    censored = {}
    for name in truth.recordings:
        table = pd.read_csv(find(folder, name, "confounds_timeseries.tsv"), sep="\t", na_values="n/a")
        censored[name[:12]] = (table["framewise_displacement"] > 0.5).mean()
    assert {name for name, share in censored.items() if share > 0.2} == {"sub-03_ses-a", "sub-03_ses-b", "sub-04_ses-b"}
    assert censored["sub-04_ses-b"] > 0.8


def test_saved_truth_is_the_returned_one(tiny):
    folder, truth = tiny
    with np.load(folder / TRUTH, allow_pickle=False) as saved:
        for name, value in truth._asdict().items():
            np.testing.assert_array_equal(saved[name], value)


def test_same_seed_same_bytes_in_another_process_with_another_blas_kernel(tiny, tmp_path):
    folder, _ = tiny
    oldest = {**os.environ, "OPENBLAS_CORETYPE": "Prescott"}  # runs on every x86-64, and is ignored elsewhere
    command = [sys.executable, "-m", "fcpower_bids.demo", str(tmp_path / "again")]
    options = ["--subjects", "2", "--volumes", "80", "--no-troubles"]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True, env=oldest)
    assert digest(tmp_path / "again") == digest(folder)
    assert done.stdout.count("\n") == 1
    assert "participant --atlas builtin" in done.stdout


def test_a_folder_with_content_is_left_alone(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        make_dataset(tmp_path, DemoDesign.tiny())
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


@pytest.mark.skipif(not VALIDATOR.exists(), reason="bids-validator-deno is not installed beside this Python")
@pytest.mark.parametrize("part", [Path(), DERIVATIVES])
def test_the_bids_validator_finds_no_error(part, troubled_demo):
    command = [VALIDATOR, str(troubled_demo[0] / part), "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    report = json.loads(run.stdout)
    errors = [issue for issue in report["issues"]["issues"] if issue["severity"] == "error"]
    assert errors == []
    assert report["summary"]["totalFiles"] > 5


@pytest.mark.parametrize("options", [["--volumes", "5"], ["--subjects", "0"]])
def test_a_wrong_wish_is_one_line_and_exit_code_2(options, tmp_path, capsys):
    assert command.main([str(tmp_path / "d"), *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "d").exists()
