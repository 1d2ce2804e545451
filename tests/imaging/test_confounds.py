"""Confounds of one recording: equal to nilearn, and a plain reason for each refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.imaging.confounds import Strategy, load_confounds, load_strategy

DATA = Path(pytest.importorskip("nilearn").__file__).parent / "interfaces" / "fmriprep" / "data"
VERSIONS = {
    "1.4": (DATA / "test_desc-confounds_regressors.tsv", DATA / "test_desc-confounds_regressors.json"),
    "21": (DATA / "test-v21_desc-confounds_timeseries.tsv", DATA / "test-v21_desc-confounds_timeseries.json"),
}
STEM = "sub-01_task-rest"
THREE = ("motion", "wm_csf", "global_signal")
COMPCOR = {"strategy": ("motion", "high_pass", "compcor"), "motion": "derivatives"}
COMPCOR |= {"compcor": "anat_separated", "n_compcor": 5}
ORACLE = {
    "24P": {"strategy": ("motion",), "motion": "full"},
    "27P": {"strategy": THREE, "motion": "full", "wm_csf": "basic", "global_signal": "basic"},
    "36P": {"strategy": THREE, "motion": "full", "wm_csf": "full", "global_signal": "full"},
    "simple": {"strategy": ("motion", "wm_csf"), "motion": "full", "wm_csf": "basic"},
    "acompcor": COMPCOR,
    "acompcor_gsr": COMPCOR | {"strategy": (*COMPCOR["strategy"], "global_signal"), "global_signal": "basic"},
    "aroma": {"strategy": ("ica_aroma", "wm_csf"), "ica_aroma": "basic", "wm_csf": "basic"},
    "gsr_only": {"strategy": ("global_signal",), "global_signal": "basic"},
}


def write(folder, frame, name="confounds.tsv"):
    path = folder / name
    frame.to_csv(path, sep="\t", index=False, na_rep="n/a")
    return path


@pytest.fixture
def frame():
    return pd.read_csv(VERSIONS["1.4"][0], sep="\t")


# the table of version 21 has no AROMA components
@pytest.mark.parametrize(
    ("version", "name"),
    [(version, name) for version in VERSIONS for name in ORACLE if (version, name) != ("21", "aroma")],
)
def test_same_columns_and_values_as_nilearn(tmp_path, version, name):
    from nilearn.interfaces.fmriprep import load_confounds as reference

    table, metadata = VERSIONS[version]
    shutil.copy(table, tmp_path / f"{STEM}_desc-confounds_timeseries.tsv")
    shutil.copy(metadata, tmp_path / f"{STEM}_desc-confounds_timeseries.json")
    image = tmp_path / f"{STEM}_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
    expected, steady = reference(str(image), demean=False, **ORACLE[name])
    ours = load_confounds(table, metadata, load_strategy(name), n_volumes=30)
    assert sorted(ours.names) == sorted(expected.columns)
    np.testing.assert_allclose(ours.values, expected[list(ours.names)].to_numpy(), rtol=1e-12)
    np.testing.assert_array_equal(np.arange(ours.n_dummy, 30), steady)


def test_missing_derivatives_and_squares_are_computed_as_fmriprep_does(tmp_path):
    strategy = load_strategy("36P")
    frame = pd.read_csv(VERSIONS["21"][0], sep="\t")
    bases = [column for column in frame if column in strategy.columns and "derivative" not in column]
    bases = [column for column in bases if "power2" not in column]
    written = load_confounds(VERSIONS["21"][0], None, strategy)
    computed = load_confounds(write(tmp_path, frame[bases]), None, strategy)
    assert computed.names == written.names
    scale = written.values.std(axis=0)
    np.testing.assert_allclose(computed.values / scale, written.values / scale, atol=1e-9)
    assert computed.notes == ("27 derivatives and squares that confounds.tsv lacks were computed from its columns.",)
    assert written.notes == ()
    assert np.isnan(computed.framewise_displacement).all()
    assert np.isnan(computed.dvars).all()
    assert computed.framewise_displacement.shape == (30,)


def test_missing_values_elsewhere_are_refused(tmp_path, frame):
    frame.loc[7, "csf"] = np.nan
    with pytest.raises(RecordingError, match=r"no value of csf in 1 rows \(the first is volume 7"):
        load_confounds(write(tmp_path, frame), None, load_strategy("27P"))
    assert load_confounds(write(tmp_path, frame), None, load_strategy("24P")).values.shape == (30, 24)


def test_components_are_told_apart_by_their_metadata(tmp_path, frame):
    table = write(tmp_path, frame)
    metadata = tmp_path / "confounds.json"
    masks = {"a_comp_cor_00": "combined", "a_comp_cor_01": "WM", "a_comp_cor_02": "CSF", "a_comp_cor_03": "WM"}
    metadata.write_text(json.dumps({name: {"Mask": mask} for name, mask in masks.items()}))
    strategy = Strategy("own", "A.", acompcor=1)
    assert load_confounds(table, metadata, strategy).names == ("a_comp_cor_01", "a_comp_cor_02")
    more = load_confounds(table, metadata, Strategy("own", "A.", acompcor=2))
    assert more.names == ("a_comp_cor_01", "a_comp_cor_03", "a_comp_cor_02")
    assert more.notes[0] == "Fewer than 2 aCompCor components in confounds.tsv: 1 of cerebrospinal fluid."
    with pytest.raises(RecordingError, match="JSON file next to the table"):
        load_confounds(table, None, strategy)
    metadata.write_text("{")
    with pytest.raises(RecordingError, match=r"confounds\.json cannot be read"):
        load_confounds(table, metadata, strategy)


def test_missing_columns_name_the_file_and_the_remedy(tmp_path, frame):
    table = write(tmp_path, frame.drop(columns=["csf", "rot_x", "rot_x_derivative1"]))
    said = r"confounds\.tsv lacks what the strategy '36P' needs: .*--strategy"
    with pytest.raises(RecordingError, match=said) as caught:
        load_confounds(table, None, load_strategy("36P"))
    assert "rot_x" in str(caught.value)
    assert "csf" in str(caught.value)
    with pytest.raises(RecordingError, match=r"since 23\.1"):
        load_confounds(*VERSIONS["21"], load_strategy("aroma"))


@pytest.mark.parametrize("n_volumes", [1, 29, 31])
def test_rows_and_volumes_must_agree(n_volumes):
    with pytest.raises(RecordingError, match=f"30 rows, but its series has {n_volumes} volumes"):
        load_confounds(*VERSIONS["1.4"], load_strategy("24P"), n_volumes)


def test_numbers_in_the_place_of_names_are_no_table(tmp_path):
    (tmp_path / "confounds.tsv").write_text("0.1\t0.2\n0.3\t0.4\n")
    with pytest.raises(RecordingError, match="must hold column names"):
        load_confounds(tmp_path / "confounds.tsv", None, load_strategy("gsr_only"))


def test_columns_of_a_pattern_and_a_name_come_once_in_the_order_of_the_strategy(tmp_path, frame):
    strategy = Strategy("own", "A.", columns=("csf", r"^cosine\d+$", "cosine01"), optional=("csf", "absent"))
    names = load_confounds(write(tmp_path, frame), None, strategy).names
    assert names == ("csf", "cosine00", "cosine01", "cosine02", "cosine03")


def test_components_are_taken_by_number_not_by_column(tmp_path):
    frame = pd.DataFrame(
        {f"{letter}_comp_cor_{number:02d}": [float(number)] * 5 for letter in "wc" for number in (3, 0, 11, 1)}
    )
    strategy = Strategy("own", "A.", acompcor=2)
    names = load_confounds(write(tmp_path, frame), None, strategy).names
    assert names == ("w_comp_cor_00", "w_comp_cor_01", "c_comp_cor_00", "c_comp_cor_01")


def test_own_strategy_from_a_file(tmp_path):
    (path := tmp_path / "own.yml").write_text("methods: Two\n  columns.\ncolumns: [csf, '^cosine\\d+$']\nacompcor: 3\n")
    strategy = load_strategy(path)
    assert strategy.name == "own"
    assert strategy.methods == "Two columns."
    assert strategy.columns == ("csf", r"^cosine\d+$")
    assert strategy.acompcor == 3
    assert load_strategy(str(path)) == strategy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods: A.\ncolumns: [csf]\ncolums: []\n", "'colums' is not known"),
        ("methods: A.\ncolumns: csf\n", "must be a list of names"),
        ("methods: A.\ncolumns: []\nacompcor: -1\n", "number of components"),
        ("methods: A.\ncolumns: ['^(csf$']\n", "not a regular expression"),
        ("methods: A.\ncolumns: !!python/object/apply:os.getcwd []\n", "cannot be read as YAML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence_with_its_name(tmp_path, text, message):
    (path := tmp_path / "own.yml").write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        load_strategy(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
