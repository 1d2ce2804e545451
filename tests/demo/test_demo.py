"""The demo: its truth is found again by others, and what a recording holds is what was designed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.image import resample_to_img
from nilearn.maskers import NiftiLabelsMasker

from fcpower_bids.demo import DemoDesign, make_dataset, signals
from fcpower_bids.demo import __main__ as demo_command
from fcpower_bids.demo.dataset import (
    DERIVATIVES,
    LOADINGS,
    draw_people,
)
from fcpower_bids.demo.signals import (
    build_confounds,
    draw_clean_series,
    draw_physiology,
    load_head,
    paint_recording,
)
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import N_PARCELS, builtin_atlas
from tests.running import PATIENCE


@pytest.fixture(scope="module")
def head():
    return load_head()


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


def test_confounds_explain_what_was_added(tiny):
    folder, truth = tiny
    for index, recording in enumerate(truth.recordings):
        table = pd.read_csv(find(folder, recording, "confounds_timeseries.tsv"), sep="\t", na_values="n/a")
        plain = table.filter(regex=r"^(trans|rot)_[xyz]$|^csf$|^white_matter$|^cosine|outlier")
        design = np.column_stack([np.ones(len(table)), plain])
        added = truth.painted[index] - truth.clean[index]
        left = added - design @ np.linalg.lstsq(design, added, rcond=None)[0]
        assert left.var() < 0.02 * added.var()


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


def test_a_wrong_wish_is_one_line_and_exit_code_2(tmp_path, capsys):
    assert demo_command.main([str(tmp_path / "d"), "--volumes", "5"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"subjects": 0}, "participant"),
        ({"volumes": 10}, "at least 40"),
        ({"seed": -1, "runs": 0}, "run; the seed"),
    ],
)
def test_impossible_designs_are_refused_in_one_sentence(changes, words):
    with pytest.raises(UsageError, match=words):
        DemoDesign(**changes)
    DemoDesign(sessions=26, volumes=40, repetition_time=0.1, noise=0)  # the ends are possible


def test_measures_share_the_factor_as_their_loadings_say():
    people = draw_people(600, np.random.default_rng(1))
    for name, loading in LOADINGS.items():
        scores = np.array(people.cognition[name][:-1], dtype=float)
        assert np.corrcoef(scores, people.factor[:-1])[0, 1] == pytest.approx(loading, abs=0.05)
    assert abs(np.corrcoef(people.participants["null_score"], people.factor)[0, 1]) < 3 / np.sqrt(600)
    assert people.cognition["attention"][-1] == "n/a"


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_clean_series_have_the_asked_correlation_and_deviation(rng):
    target = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.1], [-0.3, 0.1, 1.0]])
    series = draw_clean_series(target, 20_000, 2.0, rng)
    # In the band there are about 2 * 20000 * 2 * 0.067 = 5360 independent numbers per parcel.
    np.testing.assert_allclose(np.corrcoef(series.T), target, atol=4 / np.sqrt(5360))
    np.testing.assert_allclose(series.std(axis=0), signals.SIGNAL_SD, rtol=0.05)


def test_clean_series_lie_in_the_band(rng):
    series = draw_clean_series(np.eye(2), 400, 2.0, rng)
    power = np.abs(np.fft.rfft(series, axis=0)) ** 2
    frequencies = np.fft.rfftfreq(400, 2.0)
    inside = (frequencies > 0.01) & (frequencies < 0.08)
    # What is outside comes from rounding to whole numbers alone.
    assert power[~inside].sum() / power.sum() < signals.QUANTUM**2 / 12 / signals.SIGNAL_SD**2 * 1.5


def test_labels_are_what_nilearn_resamples_to_the_grid(head, tmp_path):
    target = nib.Nifti1Image(head.brain.astype(np.uint8), head.affine)
    atlas = nib.load(builtin_atlas("MNI152NLin6Asym", tmp_path).image)
    resampled = resample_to_img(atlas, target, interpolation="nearest", force_resample=True, copy_header=True)
    labels = np.asarray(resampled.dataobj)
    np.testing.assert_array_equal(labels[head.brain], head.parcel)
    assert not labels[~head.brain].any()


FIRST = 2


@pytest.fixture(scope="module")
def recording(head):
    rng = np.random.default_rng(3)
    design = DemoDesign.tiny(volumes=120)
    physiology = draw_physiology(120, 0.05, 1.0, rng)
    voxels = paint_recording(head, np.zeros((120, N_PARCELS)), physiology, design.noise, rng)
    return voxels, physiology, build_confounds(head, voxels, physiology, design)


def test_components_are_orthonormal_high_passed_and_find_the_sources(recording):
    _, physiology, columns = recording
    cosines = np.array([value for name, value in columns.items() if name.startswith("cosine")])
    assert len(cosines) == int(2 * (120 - FIRST) * 2.5 / 128)
    for letter in "cw":
        names = [name for name in columns if name.startswith(f"{letter}_comp_cor")]
        components = np.array([columns[name] for name in names])
        assert not components[:, :FIRST].any()
        np.testing.assert_allclose(components @ components.T, np.eye(len(names)), atol=1e-5)  # written to 6 decimals
        np.testing.assert_allclose(components @ cosines.T, 0, atol=1e-5)
    first = physiology.white_matter[FIRST:, 0]
    components = np.array([columns[f"w_comp_cor_{index:02d}"][FIRST:] for index in range(5)])
    assert np.linalg.norm(components @ (first - first.mean())) / np.linalg.norm(first - first.mean()) > 0.9
