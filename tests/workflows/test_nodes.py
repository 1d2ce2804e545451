"""Nodes: each alone on files, and what is read again when a choice changes, through the command."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.imaging.atlas.builtin import builtin_atlas
from fcpower_bids.outputs.tables import read_matrix
from tests.docs.pages import DOCS, code_blocks, read
from tests.running import run_app

ONE = ("--participant-label", "01", "--session-label", "a")
ATLAS = ("--atlas", "builtin")


def only(folder, pattern):
    (found,) = folder.rglob(pattern)
    return found


def test_the_nodes_of_the_documentation_run_alone_in_a_workflow_of_anybody(exact_demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = [block for block in code_blocks(read(DOCS / "python.md"), "py") if "workflow.run()" in block]
    scan = "sub-01_ses-a_task-rest_run-1"
    given = {
        "bold": str(only(exact_demo[0], f"{scan}_*_desc-preproc_bold.nii.gz")),
        "mask": str(only(exact_demo[0], f"{scan}_*_desc-brain_mask.nii.gz")),
        "confounds": str(only(exact_demo[0], f"{scan}_desc-confounds_timeseries.tsv")),
        "labels": str(builtin_atlas("MNI152NLin2009cAsym", tmp_path).image),
        "folder": str(tmp_path),
    }
    exec(example, given)
    folder = tmp_path / "mine"
    fc = np.load(only(folder / "connectivity", "fc_*.npz"))["matrix"]
    series = np.load(only(folder / "bandpass", "series_*.npz"))["series"]
    np.testing.assert_allclose(fc, np.corrcoef(series.T), atol=1e-12)
    power = np.load(only(folder / "power", "power_*.npz"))["matrix"]
    np.testing.assert_allclose(power, spectral_power(fc, 0.35), atol=1e-12)


@pytest.fixture(scope="module")
def kept(exact_demo, tmp_path_factory):
    """A finished run of one recording, whose voxels are damaged afterwards in a way that only reading them tells."""
    folder = tmp_path_factory.mktemp("nodes")
    copy = shutil.copytree(exact_demo[0], folder / "in")
    first = run_app(copy, folder / "out", *ATLAS, *ONE)
    assert first.code == 0, first.err
    for bold in copy.rglob("*_desc-preproc_bold.nii.gz"):
        stat, content = bold.stat(), bytearray(bold.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 2000] = bytes(2000)
        bold.write_bytes(content)
        os.utime(bold, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return copy, folder / "out"


def test_power_is_that_of_the_fc_beside_it_after_another_alpha(kept):
    found = run_app(*kept, *ATLAS, *ONE, "--alpha", "0.7")
    assert found.code == 0, found.err
    fc = read_matrix(found.file("sub-01", "_stat-pearsoncorrelation_relmat.tsv"))[0]
    power = read_matrix(found.file("sub-01", "desc-power0p7_relmat.tsv"))[0]
    np.testing.assert_allclose(power, spectral_power(fc, 0.7), atol=1e-12)


def test_without_the_kept_means_and_for_a_replaced_series_voxels_are_read(kept, tmp_path):
    copy, out = kept
    elsewhere = run_app(copy, tmp_path / "other", *ATLAS, *ONE, "-w", out / "work")
    assert elsewhere.code == 0, "the parcel means are those of the same file"
    fresh = run_app(copy, tmp_path / "fresh", *ATLAS, *ONE)
    assert fresh.code == 5
    assert "damaged" in fresh.reason("sub-01_ses-a")
    (bold,) = copy.rglob("sub-01_ses-a_*_desc-preproc_bold.nii.gz")
    os.utime(bold)
    again = run_app(copy, out, *ATLAS, *ONE)
    assert again.code == 5
    assert "damaged" in again.reason("sub-01_ses-a")
