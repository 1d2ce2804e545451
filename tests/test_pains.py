"""The pains of the users of similar programs, one test each; and that what is written is BIDS.

Pain 16, parallel jobs on one output, is in tests/workflows/test_batches.py; kinds of broken input are in
tests/test_bad_input.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import nibabel
import numpy as np
import pandas as pd
import pytest

from fcpower_bids.core.series import filter_series, z_score
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_matrix
from tests.running import PATIENCE, PLAIN, run_app, start_app

ATLAS = ("--atlas", "builtin")
SERIES = "stat-mean_timeseries.tsv"
FC = "stat-pearsoncorrelation_relmat.tsv"
SPACE = "MNI152NLin2009cAsym"
VALIDATOR = Path(sys.executable).with_name("bids-validator-deno")


def test_pain_03_confounds_are_filtered_like_the_data(tmp_path):
    """A confound that differs from the signal only outside the band must take the signal with it."""
    truth = make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=120, noise=0, nuisance=0))
    (table,) = (tmp_path / "in").rglob("*_desc-confounds_timeseries.tsv")
    signal = truth.painted[0][:, 0]
    fast = 1e4 * np.cos(np.pi * np.arange(len(signal)))
    columns = pd.DataFrame({"csf": signal + fast, "framewise_displacement": 0.0})
    columns.to_csv(table, sep="\t", index=False)
    (tmp_path / "csf.yml").write_text("name: csf\nmethods: One column.\ncolumns: [csf]\n")
    options = (*ATLAS, "--strategy", tmp_path / "csf.yml", "--dummy-scans", "0", "--min-time", "0")
    found = run_app(tmp_path / "in", tmp_path / "out", *options)
    assert found.code == 0, found.err
    series, _ = read_matrix(found.file("sub-01", SERIES))
    every = np.ones(len(signal), dtype=bool)
    filtered = filter_series(truth.painted[0], every, 2.5, (0.01, 0.08))
    design = filter_series(np.asarray(columns["csf"])[:, None], every, 2.5, (0.01, 0.08))
    design = np.column_stack([design, np.ones(len(design))])
    residuals = filtered - design @ np.linalg.lstsq(design, filtered, rcond=None)[0]
    np.testing.assert_allclose(series[:, 1:], z_score(residuals[:, 1:]), atol=1e-8)
    # Unfiltered, the confound is nearly all noise to the first parcel, whose signal would stay.
    left = np.nan_to_num(series[:, 0]) @ z_score(filtered[:, 0]) / (len(series) - 1)
    assert abs(left) < 0.1


def test_pain_12_templateflow_without_network_is_a_sentence(exact_demo, tmp_path):
    folder, _ = exact_demo
    environment = {"TEMPLATEFLOW_HOME": str(tmp_path / "home"), "https_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    process = start_app(folder, tmp_path / "out", "--atlas", "Schaefer200", env=environment)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (2, 3), err
    assert "prefetch" in err
    assert "Traceback" not in err


def test_pain_15_few_files_and_no_work_left_behind(exact_run, exact_demo):
    _, truth = exact_demo
    files = [path for path in exact_run.output.rglob("*") if path.is_file()]
    per_recording = [path for path in files if any(path.name.startswith(name) for name in truth.recordings)]
    assert len(per_recording) / len(truth.recordings) <= 22  # one of them holds the slices that the page draws
    work = exact_run.output / "work"
    assert {path.name for path in work.iterdir()} == {"atlases"}
    assert len(list((work / "atlases").iterdir())) <= 3


def test_pain_17_resolutions_may_differ(exact_demo, exact_run, tmp_path):
    """One run is written on half the grid: every voxel becomes eight."""
    copy = shutil.copytree(exact_demo[0], tmp_path / "in")
    for path in copy.rglob("sub-01_ses-a_*space-*.nii.gz"):
        image = nibabel.load(path)
        data = np.asanyarray(image.dataobj)
        for axis in range(3):
            data = np.repeat(data, 2, axis=axis)
        affine = image.affine @ np.diag([0.5, 0.5, 0.5, 1])
        affine[:3, 3] = (image.affine @ [-0.25, -0.25, -0.25, 1])[:3]
        finer = nibabel.Nifti1Image(data, affine)
        finer.header.set_xyzt_units("mm", "sec")
        finer.header.set_zooms((4, 4, 4, 2.5)[: data.ndim])
        nibabel.save(finer, path)
    found = run_app(copy, tmp_path / "out", *ATLAS, *PLAIN, "--participant-label", "01")
    assert found.code == 0, found.err
    fine, coarse = (read_matrix(run.file("sub-01_ses-a", FC))[0] for run in (found, exact_run))
    upper = np.triu_indices(60, 1)
    assert np.corrcoef(fine[upper], coarse[upper])[0, 1] > 0.9
    other, same = (read_matrix(run.file("sub-01_ses-b", FC))[0] for run in (found, exact_run))
    np.testing.assert_array_equal(other, same)


def test_every_uri_resolves(exact_run, troubled_run):
    for run in (exact_run, troubled_run):
        links = json.loads((run.output / "dataset_description.json").read_text())["DatasetLinks"]
        count = 0
        for path in run.files("sub-*/**/*.json"):
            for source in json.loads(path.read_text())["Sources"]:
                scheme, dataset, relative = source.split(":", 2)
                assert scheme == "bids"
                root = run.output / unquote(links[dataset]) if dataset else run.output
                assert (root / relative).is_file(), source
                count += 1
        assert count > 30


@pytest.mark.skipif(not VALIDATOR.exists(), reason="bids-validator-deno is not installed")
def test_the_bids_validator_finds_no_error(exact_run, troubled_run):
    for run in (exact_run, troubled_run):
        done = subprocess.run(
            [VALIDATOR, "--format", "json", run.output], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        issues = json.loads(done.stdout)["issues"]["issues"]
        assert [issue for issue in issues if issue["severity"] == "error"] == []
        assert done.returncode == 0
