"""From files to files: what was painted into voxels comes out of the tables, whatever pains users had elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from urllib.parse import unquote

import nibabel
import numpy as np
import pandas as pd
import pytest
from nibabel.cifti2 import BrainModelAxis

from fcpower_bids.core.connectome import pearson_connectivity, spectral_power
from fcpower_bids.core.series import filter_series, z_score
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.signals import BOX
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs.tables import read_matrix
from tests.planting.surfaces import save_dlabel, save_dtseries
from tests.running import LINKS, PATIENCE, PLAIN, contents, run_app, start_app

SERIES = "stat-mean_timeseries.tsv"
FC = "stat-pearsoncorrelation_relmat.tsv"
POWER = "desc-power0p35_relmat.tsv"


def test_series_fc_and_power_are_those_of_the_truth(exact_run, exact_demo):
    _, truth = exact_demo
    for recording, painted in zip(truth.recordings, truth.painted, strict=True):
        series, names = read_matrix(exact_run.file(recording, SERIES))
        np.testing.assert_allclose(series, z_score(painted), rtol=0, atol=1e-5)
        connectome = pearson_connectivity(painted)
        fc, fc_names = read_matrix(exact_run.file(recording, FC))
        np.testing.assert_allclose(fc, np.corrcoef(painted.T), rtol=0, atol=1e-10)
        power, _ = read_matrix(exact_run.file(recording, POWER))
        np.testing.assert_allclose(power, spectral_power(connectome, 0.35), rtol=0, atol=1e-8)
        fisher, _ = read_matrix(exact_run.file(recording, "desc-fisherz_relmat.tsv"))
        upper = np.triu_indices(len(fc), 1)
        np.testing.assert_allclose(fisher[upper], np.arctanh(fc[upper]), rtol=0, atol=1e-10)
        assert names == fc_names
        assert len(set(names)) == 60


def test_spectrum_table_is_that_of_the_written_fc(exact_run, exact_demo):
    _, truth = exact_demo
    recording = truth.recordings[0]
    fc, _ = read_matrix(exact_run.file(recording, FC))
    table, columns = read_matrix(exact_run.file(recording, "desc-spectrum_eigenvalues.tsv"))
    assert columns == ["rank", "eigenvalue", "eigenvalue_power"]
    eigenvalues = np.linalg.eigvalsh(fc)[::-1]
    np.testing.assert_allclose(table[:, 1], eigenvalues, atol=1e-10)
    sidecar = json.loads(exact_run.file(recording, "desc-spectrum_eigenvalues.json").read_text())
    assert sidecar["ParticipationRatio"] == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
    np.testing.assert_allclose(table[table[:, 2] > 0, 2], eigenvalues[table[:, 2] > 0] ** 0.35, rtol=1e-6)
    assert sidecar["Rank"] == (table[:, 2] > 0).sum()
    assert sidecar["NumberClipped"] == (table[:, 2] == 0).sum()


def test_states_and_exit_code_of_the_troubled_dataset(troubled_run):
    states = {name.split("_space")[0]: state for name, state in troubled_run.states().items()}
    assert troubled_run.code == 0
    assert len(states) == 9
    assert states["sub-04_ses-b_task-rest_run-1"] == "excluded"
    assert {state for name, state in states.items() if name[:6] in ("sub-01", "sub-02")} == {"done"}
    assert "--min-time" in troubled_run.reason("sub-04_ses-b")
    for path in (troubled_run.output / "logs" / "status").glob("*.json"):
        listed = json.loads(path.read_text())["outputs"]
        made = troubled_run.files(f"sub-*/ses-*/func/{path.stem.partition('_res-')[0]}*")
        assert sorted(listed) == sorted(each.relative_to(troubled_run.output).as_posix() for each in made)
    assert "excluded: sub-04_ses-b" in troubled_run.err


def test_uncovered_parcels_are_missing_everywhere(troubled_run, troubled_demo):
    _, truth = troubled_demo
    expected = truth.coverage[truth.recordings.index("sub-02_ses-a_task-rest_run-1")]
    coverage, _ = read_matrix(troubled_run.file("sub-02_ses-a", "stat-coverage_bold.tsv"))
    np.testing.assert_allclose(coverage[:, 0], expected, atol=1e-12)
    uncovered = expected < 0.5
    assert 0 < uncovered.sum() < 30
    series, names = read_matrix(troubled_run.file("sub-02_ses-a", SERIES))
    np.testing.assert_array_equal(np.isnan(series).all(axis=0), uncovered)
    np.testing.assert_array_equal(np.isnan(series).any(axis=0), uncovered)
    for ending in (FC, POWER):
        matrix, _ = read_matrix(troubled_run.file("sub-02_ses-a", ending))
        np.testing.assert_array_equal(np.isnan(matrix), uncovered[:, None] | uncovered[None, :])
    sidecar = json.loads(troubled_run.file("sub-02_ses-a", FC.replace("tsv", "json")).read_text())
    assert sidecar["UncoveredNodes"] == [name for name, missing in zip(names, uncovered, strict=True) if missing]
    assert len(read_matrix(troubled_run.file("sub-02_ses-a", "eigenvalues.tsv"))[0]) == (~uncovered).sum()


def test_settings_file_alone_repeats_the_run(exact_run, exact_demo, tmp_path):
    folder, _ = exact_demo
    again = run_app(folder, tmp_path / "out", "--config-file", exact_run.output / "logs" / "settings.toml", code=0)
    left, right = (contents(run.output, "logs", "work", LINKS) for run in (exact_run, again))
    # The pages show the settings, of which --config-file is one.
    assert {name for name in left | right if left.get(name) != right.get(name)} <= {"sub-01.html", "sub-02.html"}


def test_pages_made_again_tell_how_the_outputs_were_made_and_not_the_defaults(exact_run, exact_demo, outputs):
    run_app(exact_demo[0], outputs, "--reports-only", code=0)
    left, right = (contents(folder, "work", LINKS) for folder in (exact_run.output, outputs))
    assert {name for name in left | right if left.get(name) != right.get(name)} == set()
    (outputs / "logs" / "settings.toml").write_text("alpha = ")
    damaged = run_app(exact_demo[0], outputs, "--reports-only", code=2)
    assert f"{outputs / 'logs' / 'settings.toml'} cannot be read" in damaged.err


def test_cifti_gives_what_nifti_gives(exact_demo, exact_run, tmp_path):
    """The voxels of a recording as grayordinates, with the labels of the same voxels."""
    folder, truth = exact_demo
    copy = copytree(folder, tmp_path / "in")
    (bold,) = copy.rglob("sub-01_ses-a_*_desc-preproc_bold.nii.gz")
    image = nibabel.load(bold)
    fine = np.asarray(nibabel.load(builtin_atlas("MNI152NLin2009cAsym", tmp_path).image).dataobj)
    labels = fine[BOX]
    axis = BrainModelAxis.from_mask(labels > 0, "CIFTI_STRUCTURE_BRAIN_STEM", affine=image.affine)
    data = image.get_fdata(dtype=np.float32)[labels > 0].T
    stem = "sub-01_ses-a_task-rest_run-1_space-fsLR_den-91k_bold"
    save_dtseries(bold.with_name(f"{stem}.dtseries.nii"), data, axis, 2.5)
    bold.with_name(f"{stem}.json").write_text('{"RepetitionTime": 2.5}')
    names = [f"parcel{label:02d}" for label in range(1, 61)]
    atlas = save_dlabel(tmp_path / "space-fsLR_atlas-Mine_dseg.dlabel.nii", labels[labels > 0], names, axis)
    options = ("--space", "fsLR", "--participant-label", "01", "--session-label", "a", "--atlas", atlas)
    found = run_app(copy, tmp_path / "out", *options, *PLAIN, code=0)
    for ending in (SERIES, FC, POWER):
        ours, columns = read_matrix(found.file("sub-01_ses-a", ending))
        theirs, _ = read_matrix(exact_run.file(truth.recordings[0], ending))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
        assert columns[:2] == ["parcel01", "parcel02"]


ATLAS = ("--atlas", "builtin")
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
    found = run_app(tmp_path / "in", tmp_path / "out", *options, code=0)
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
