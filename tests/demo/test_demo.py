"""The demo: its truth is found again by others, and what a recording holds is what was designed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nilearn.maskers import NiftiLabelsMasker

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.dataset import (
    DERIVATIVES,
)
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import N_PARCELS, builtin_atlas
from tests.running import PATIENCE


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder and truth of a tiny dataset with noise and nuisance."""
    folder = tmp_path_factory.mktemp("demo") / "tiny"
    return folder, make_dataset(folder, DemoDesign.tiny())


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
def test_the_bids_validator_finds_no_error(troubled_demo):
    command = [VALIDATOR, str(troubled_demo[0] / DERIVATIVES), "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    report = json.loads(run.stdout)
    errors = [issue for issue in report["issues"]["issues"] if issue["severity"] == "error"]
    assert errors == []
    assert report["summary"]["totalFiles"] > 5
