import io
import json
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo.signals import DemoDesign, build_confounds, draw_physiology, of_release, paint_recording
from fcpower_bids.imaging.atlas.builtin import N_PARCELS

REAL = files("nilearn.interfaces.fmriprep.data")
FIRST = 2


@pytest.fixture(scope="module")
def recording(head):
    rng = np.random.default_rng(3)
    design = DemoDesign.tiny(volumes=120)
    physiology = draw_physiology(120, 0.05, 1.0, rng)
    voxels = paint_recording(head, np.zeros((120, N_PARCELS)), physiology, design, rng)
    return voxels, physiology, build_confounds(head, voxels, physiology, design)


@pytest.fixture(scope="module")
def columns(recording):
    return recording[2][0]


def without_numbers(names):
    return {re.sub(r"\d{2,}$", "#", name) for name in names}


def test_names_are_those_of_a_real_table(columns):
    real = pd.read_csv(io.BytesIO((REAL / "test-v21_desc-confounds_timeseries.tsv").read_bytes()), sep="\t")
    assert without_numbers(columns) == without_numbers(real.columns)


def test_names_of_version_1_are_in_a_real_table_of_version_1(columns):
    header = (REAL / "test_desc-confounds_regressors.tsv").read_text().splitlines()[0].split("\t")
    old, _ = of_release(columns, {}, "1.4.0")
    assert without_numbers(old) - without_numbers(header) == {"motion_outlier#"}
    assert without_numbers(header) - without_numbers(old) == {"aroma_motion_#"}


def test_metadata_has_the_keys_of_real_metadata(recording):
    real = json.loads((REAL / "test-v21_desc-confounds_timeseries.json").read_text())
    metadata = recording[2][1]
    for name in ("a_comp_cor_00", "c_comp_cor_00", "w_comp_cor_00", "csf", "t_comp_cor_00"):
        assert set(metadata[name]) == set(real[name])
    for letter, mask in (("a", "combined"), ("c", "CSF"), ("w", "WM")):
        assert metadata[f"{letter}_comp_cor_00"]["Mask"] == real[f"{letter}_comp_cor_00"]["Mask"] == mask
    json.dumps(metadata)


def test_components_are_orthonormal_high_passed_and_find_the_sources(recording):
    _, physiology, (columns, metadata) = recording
    cosines = np.array([value for name, value in columns.items() if name.startswith("cosine")])
    assert len(cosines) == int(2 * (120 - FIRST) * 2.5 / 128)
    for letter in "acw":
        names = [name for name in columns if name.startswith(f"{letter}_comp_cor")]
        components = np.array([columns[name] for name in names])
        assert not components[:, :FIRST].any()
        np.testing.assert_allclose(components @ components.T, np.eye(len(names)), atol=1e-5)  # written to 6 decimals
        np.testing.assert_allclose(components @ cosines.T, 0, atol=1e-5)
        shares = [metadata[name]["VarianceExplained"] for name in names]
        assert shares == sorted(shares, reverse=True)
        assert metadata[names[-1]]["CumulativeVarianceExplained"] == pytest.approx(sum(shares), abs=1e-5)
    first = physiology.white_matter[FIRST:, 0]
    components = np.array([columns[f"w_comp_cor_{index:02d}"][FIRST:] for index in range(5)])
    assert np.linalg.norm(components @ (first - first.mean())) / np.linalg.norm(first - first.mean()) > 0.9


def test_outliers_are_marked_once_each(columns):
    first = np.array([value for name, value in columns.items() if name.startswith("non_steady")])
    np.testing.assert_array_equal(first, np.eye(FIRST, 120))
    marked = np.array([value for name, value in columns.items() if name.startswith("motion_outlier")])
    np.testing.assert_array_equal(marked.sum(axis=1), 1)
    expected = (columns["framewise_displacement"] > 0.5) | (columns["std_dvars"] > 1.5)
    expected[: FIRST + 1] = False
    np.testing.assert_array_equal(marked.sum(axis=0), expected)
    assert marked.any()


def test_displacement_of_pure_translation_is_the_same_by_both_measures(head):
    rng = np.random.default_rng(0)
    design = DemoDesign.tiny()
    physiology = draw_physiology(80, 0.0, 0.0, rng)
    voxels = paint_recording(head, np.zeros((80, N_PARCELS)), physiology, design, rng)
    motion = np.zeros((80, 6))
    motion[:, 0] = np.arange(80) * 0.1
    columns, _ = build_confounds(
        head, voxels, replace(physiology, motion=motion, displacement=np.r_[0, [0.1] * 79]), replace(design, nuisance=0)
    )
    np.testing.assert_allclose(columns["rmsd"][1:], 0.1)
    np.testing.assert_allclose(columns["framewise_displacement"][1:], 0.1)
    assert "non_steady_state_outlier00" not in columns
