"""Cleaning of one recording: equal to nilearn voxel by voxel, and a plain reason for each refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.cleaning import clean_recording
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings

T, P, TR = 200, 4, 2.0
BLANK = ("n/a",) * P
ATLAS = Atlas((("atlas", "x"),), Path("x.nii.gz"), "MNI", tuple(range(1, P + 1)), ("a", "b", "c", "d"), BLANK, BLANK)
WHOLE = Settings(Path("in"), Path("out"), "participant", strategy="none", dummy_scans="0", fd_thresh=0.0)


@pytest.fixture
def recording(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        rng.standard_normal((T, 6)), columns=[f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
    )
    table["framewise_displacement"] = 0.1
    table.loc[[50, 51, 120], "framewise_displacement"] = 2.0
    table["non_steady_state_outlier00"] = np.eye(1, T, 0)[0]
    table.to_csv(tmp_path / "confounds.tsv", sep="\t", index=False)
    return Recording(tmp_path / "bold.nii.gz", (("sub", "01"),), TR, confounds=tmp_path / "confounds.tsv")


@pytest.fixture
def parcels():
    return np.random.default_rng(1).standard_normal((T, P)) + 100, np.ones(P)


def clean(recording, parcels, **choices):
    cleaning, (series,) = clean_recording(recording, [ATLAS.name], [parcels], replace(WHOLE, **choices))
    return cleaning, series


def test_too_little_time_is_an_exclusion_not_an_error(recording, parcels):
    cleaning, series = clean(recording, parcels, min_time=401.0)
    assert "400 s of 400 s" in cleaning.excluded
    assert series.clean.size == 0
    assert series.raw.shape == (T, P)


def test_too_many_regressors_are_an_exclusion(recording, parcels, tmp_path):
    (tmp_path / "some.yml").write_text("name: some\nmethods: Three.\ncolumns: [trans_x, trans_y, trans_z]\n")
    cleaning, _ = clean(recording, parcels, high_pass=0.079, strategy=str(tmp_path / "some.yml"))
    assert "Nothing is left to analyse" in cleaning.excluded


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"low_pass": 0.3}, "confounds.tsv"),
        ({"min_coverage": 1.1}, "No parcel"),
        ({"strategy": "36P"}, "confounds.tsv"),
    ],
)
def test_what_cannot_be_done_names_the_file_or_the_atlas(recording, parcels, choices, words):
    with pytest.raises(RecordingError, match=words):
        clean(recording, parcels, **choices)


def test_without_a_table_only_what_needs_none_can_be_done(recording, parcels):
    bare = replace(recording, confounds=None)
    cleaning, _ = clean(bare, parcels)
    assert np.isnan(cleaning.framewise_displacement).all()
    with pytest.raises(RecordingError, match="no confounds table"):
        clean(bare, parcels, fd_thresh=0.5)
    with pytest.raises(RecordingError, match="no confounds table"):
        clean(bare, parcels, strategy="24P")
