"""Series that can be read but cannot be right: every fault is named by the command, and no sound series is accused.

The faults are those of ``derivatives/damage.tsv``: all with ``FCPOWER_FAULTS=all`` (``make faults``), else a sample by
the seed ``FCPOWER_SEED``.
"""

from __future__ import annotations

import os

import nibabel
import numpy as np
import pandas as pd
import pytest

from tests.planting.damage import SOUND, UNCHANGED, label, observe, plant, read_catalogue, sample
from tests.running import run_app

SHARE = 1 if os.environ.get("FCPOWER_FAULTS") == "all" else 4
SEED = int(os.environ.get("FCPOWER_SEED", "0"))
ALWAYS = ("four frozen", "a huge voxel", "a dark parcel", "gain up by 6 %", "data type")
LINES = sample(read_catalogue(), SHARE, SEED, ALWAYS)
LABELS = {line.name: label(number) for number, line in enumerate(LINES)}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Some sound recordings, and one for every line."""
    root = tmp_path_factory.mktemp("damaged") / "in"
    plant(root, LINES)
    return run_app(root, root.parent / "out", "--atlas", "builtin")


@pytest.mark.parametrize("line", [line for line in LINES if line.is_named], ids=lambda line: line.name)
def test_every_fault_is_named_in_the_status_or_on_the_page(damaged, line):
    recording = f"sub-{LABELS[line.name]}"
    assert {line.outcome} == {found for key, found in damaged.states().items() if key.startswith(recording)}
    page = (damaged.output / f"{recording}.html").read_text()
    assert line.words in page
    assert str(damaged.output.parent) not in page, "folders are for the logs"
    told = "used with caution" if line.outcome == "done" else line.outcome
    assert told in page
    if line.outcome != "done":
        assert line.words in damaged.reason(recording)
        assert not damaged.files(f"{recording}_*_relmat.tsv")


@pytest.mark.parametrize("line", [line for line in LINES if line.outcome == UNCHANGED], ids=lambda line: line.name)
def test_what_is_too_small_to_be_named_leaves_fc_as_it_was(damaged, line):
    assert observe(damaged, line, LINES.index(line))[0] == UNCHANGED


def test_sound_recordings_are_not_accused(damaged):
    for number in range(1, SOUND + 1):
        (row,) = pd.read_csv(damaged.file(f"sub-{number:02d}", "desc-fcpower_qc.tsv"), sep="\t").to_dict("records")
        kinds = ("empty_volumes", "copied_volumes", "stray_volumes", "stray_parcels", "table_lag", "gain_step")
        assert [row[kind] for kind in kinds] == [0] * 6
        assert min(row["table_global_signal"], row["table_dvars"]) > 0.9
        assert "The recording can be used." in (damaged.output / f"sub-{number:02d}.html").read_text()


def test_agreement_with_the_table_is_that_of_the_files(damaged):
    """Level, and correlation of the changes, of the mean over the brain and of DVARS, from every voxel of the mask."""
    bids = damaged.output.parent / "in"
    for number in range(1, SOUND + 1):
        (row,) = pd.read_csv(damaged.file(f"sub-{number:02d}", "desc-fcpower_qc.tsv"), sep="\t").to_dict("records")
        (bold,) = bids.rglob(f"sub-{number:02d}_*desc-preproc_bold.nii.gz")
        (mask,) = bids.rglob(f"sub-{number:02d}_*desc-brain_mask.nii.gz")
        (confounds,) = bids.rglob(f"sub-{number:02d}_*desc-confounds_timeseries.tsv")
        voxels = np.asarray(nibabel.load(bold).dataobj, float)[np.asarray(nibabel.load(mask).dataobj) > 0]
        table = pd.read_csv(confounds, sep="\t", na_values="n/a")
        rows = slice(int(row["dummy_volumes"]) + 1, None)
        level = np.median(voxels.mean(0)[rows]) / np.median(table["global_signal"][rows])
        assert row["table_level"] == pytest.approx(level, rel=0.01)
        dvars = np.sqrt(np.mean(np.diff(voxels, axis=1) ** 2, axis=0))
        ours = {"global_signal": np.diff(voxels.mean(0)), "dvars": dvars}
        theirs = {"global_signal": np.diff(table["global_signal"]), "dvars": table["dvars"].to_numpy()[1:]}
        for name, values in ours.items():
            start = rows.start - 1
            both = np.corrcoef(values[start:], theirs[name][start:])[0, 1]
            assert row[f"table_{name}"] == pytest.approx(both, abs=0.03)


def read(path):
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)


def test_the_tables_say_which_volumes_and_parcels_were_left_out(damaged):
    volumes = pd.read_csv(damaged.file(f"sub-{LABELS['four frozen']}", "_outliers.tsv"), sep="\t")
    assert np.flatnonzero(volumes["stray"]).tolist() == [21, 22, 23, 24]
    assert not volumes["kept"][21:25].any()
    series = pd.read_csv(damaged.file(f"sub-{LABELS['a dark parcel']}", "_timeseries.tsv"), sep="\t")
    assert np.flatnonzero(series.isna().all()).tolist() == [6]


def test_what_is_left_out_does_not_change_the_rest(damaged):
    """A huge voxel in one volume gives the connectome that a censored volume gives, not that of the artefact."""
    name = LABELS["a huge voxel"]
    fc = pd.read_csv(damaged.file(f"sub-{name}", "stat-pearsoncorrelation_relmat.tsv"), sep="\t", index_col=0)
    clean = pd.read_csv(damaged.file(f"sub-{name}", "stat-mean_timeseries.tsv"), sep="\t")
    assert np.isfinite(fc.to_numpy()).all()
    assert np.abs(clean.to_numpy()).max() < 6
