"""Nodes: each alone on files, and what is read again when a choice changes, through the command."""

from __future__ import annotations

import numpy as np

from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.imaging.atlas import builtin_atlas
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


def test_power_is_that_of_the_fc_beside_it_after_another_alpha(exact_demo, tmp_path):
    for alpha in ("0.35", "0.7"):
        found = run_app(exact_demo[0], tmp_path / "out", *ATLAS, *ONE, "--alpha", alpha)
        assert found.code == 0, found.err
    fc = read_matrix(found.file("sub-01", "_stat-pearsoncorrelation_relmat.tsv"))[0]
    power = read_matrix(found.file("sub-01", "desc-power0p7_relmat.tsv"))[0]
    np.testing.assert_allclose(power, spectral_power(fc, 0.7), atol=1e-12)
