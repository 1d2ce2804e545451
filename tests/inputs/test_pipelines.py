"""Which pipeline wrote a tree, and what its folders are called."""

from __future__ import annotations

import pytest

from fcpower_bids.inputs.roots import input_type_of
from fcpower_bids.inputs.sources import hcp_sources
from tests.planting.trees import add_run, describe, put


def test_a_description_rules_over_folders(tmp_path):
    put(tmp_path / "1/MNINonLinear/Results/rfMRI_REST1_LR/x.nii.gz", "x")
    add_run(describe(tmp_path), "sub-1_task-rest")
    assert input_type_of(tmp_path) == "fmriprep"
    put(tmp_path / "dataset_description.json", {"GeneratedBy": [{"Name": "NiBabies"}]})
    assert input_type_of(tmp_path) == "nibabies"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("1/MNINonLinear/Results/tfMRI_WM_RL/tfMRI_WM_RL.nii.gz", "sub-1_task-wm_dir-RL_space-MNI152NLin6Asym_res-2"),
        (
            "1/MNINonLinear/Results/rfMRI_REST2_7T_AP/rfMRI_REST2_7T_AP_Atlas.dtseries.nii",
            "sub-1_task-rest_acq-7T_dir-AP_run-2_space-fsLR_den-91k",
        ),
        (
            "sub-1/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR_Atlas_hp0_clean.dtseries.nii",
            "sub-1_task-rest_dir-LR_run-1_proc-fix_space-fsLR_den-91k",
        ),
    ],
)
def test_folders_become_entities(tmp_path, path, name):
    put(tmp_path / path, "x")
    assert [source.name for source in hcp_sources(tmp_path)] == [name]
    label = name.partition("_")[0].removeprefix("sub-")
    assert hcp_sources(tmp_path, {label})
    assert not hcp_sources(tmp_path, {"other"})


def test_what_is_no_run_is_no_source(tmp_path):
    for path in ("1/MNINonLinear/Results/rfMRI_REST/rfMRI_REST.nii.gz", "1/MNINonLinear/T1w.nii.gz", "ROIs/x.nii.gz"):
        put(tmp_path / path, "x")
    assert hcp_sources(tmp_path) == []
