"""Every rule of inclusion leaves out what it should, and says so."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fcpower_bids.cohort.assembly import exclude_duplicates
from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.cohort.inclusion import (
    Exclusion,
    choose_parcels,
    exclude_by_quality,
    read_quality,
    tabulate_exclusions,
)
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.names import QUALITY
from fcpower_bids.settings import Settings
from tests.planting.participant_outputs import add_output, series_of

SETTINGS = Settings(Path("bids"), Path("out"), "group", min_time=60.0)


def tree(out: Path, *names: str, **choices):
    for number, name in enumerate(names):
        add_output(out, name, series_of(number), **choices)
    return list_connectomes(out), replace(SETTINGS, output_dir=out)


@pytest.mark.parametrize("cell", ["low", "inf", ""])
def test_words_for_figures_are_told_and_missing_figures_are_not(tmp_path, cell):
    add_output(tmp_path, "sub-01", series_of(0), mean_fd=0.125)
    found = list_connectomes(tmp_path)
    table = found[0].beside(QUALITY)
    assert "0.125" in table.read_text()
    table.write_text(table.read_text().replace("0.125", cell))
    keep, rows = exclude_by_quality(found, [read_quality(one) for one in found], SETTINGS)
    assert keep == [cell == ""]
    assert all(f"{table.name} has '{cell}' for mean_fd" in row.reason for row in rows)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()), "cannot be read"),
        (lambda path: path.write_text(path.read_text()[:-40]), "is cut short"),
        (lambda path: path.write_text(""), "is cut short"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "cannot be read"),
        (lambda path: (path.unlink(), path.symlink_to("nothing")), "a link that leads to no file"),
    ],
)
def test_damaged_quality_leaves_the_recording_out_by_name(tmp_path, damage, words):
    add_output(tmp_path, "sub-01", series_of(0), mean_fd=0.125)
    found = list_connectomes(tmp_path)
    path = found[0].beside(QUALITY)
    damage(path)
    keep, (row,) = exclude_by_quality(found, [read_quality(one) for one in found], SETTINGS)
    assert keep == [False]
    assert path.name in row.reason
    assert str(tmp_path) not in row.reason
    assert words in row.reason


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_text(path.read_text()[:-9]), "is not valid JSON"),
        (lambda path: path.unlink(), "is missing; run the participant level again"),
    ],
)
def test_a_damaged_sidecar_leaves_the_recording_out_by_name(tmp_path, damage, words):
    add_output(tmp_path, "sub-01", series_of(0), mean_fd=0.125)
    found = list_connectomes(tmp_path)
    path = found[0].path.with_suffix(".json")
    damage(path)
    keep, (row,) = exclude_by_quality(found, [read_quality(one) for one in found], SETTINGS)
    assert keep == [False]
    assert f"{path.name} {words}" in row.reason


def test_quality_limits(tmp_path):
    add_output(tmp_path, "sub-01", series_of(0), mean_fd=0.1)
    add_output(tmp_path, "sub-02", series_of(1), mean_fd=0.4)
    add_output(tmp_path, "sub-03", series_of(2, volumes=29), mean_fd=0.1)
    add_output(tmp_path, "sub-04", series_of(3))
    found = list_connectomes(tmp_path)
    found[3].beside(QUALITY).unlink()
    quality = [read_quality(one) for one in found]
    assert (quality[0].seconds, quality[0].volumes, quality[0].mean_fd, quality[0].degrees_of_freedom) == (
        80,
        40,
        0.1,
        20,
    )
    assert quality[3].seconds == 80, "from the sidecar"
    assert exclude_by_quality(found, quality, SETTINGS)[0] == [True, True, False, True]
    keep, rows = exclude_by_quality(found, quality, replace(SETTINGS, max_mean_fd=0.3))
    assert keep == [True, False, False, False]
    assert ["0.400 mm, more than" in rows[0].reason, "58 s are left" in rows[1].reason, "not known" in rows[2].reason]


def test_of_equal_connectomes_of_one_person_the_first_is_kept_and_of_two_people_none(tmp_path):
    found, _ = tree(tmp_path, "sub-01_ses-a", "sub-01_ses-b", "sub-02", "sub-03")
    keep, rows = exclude_duplicates(found, ["x", "x", "y", "z"])
    assert keep == [True, False, True, True]
    assert found[0].recording in rows[0].reason
    keep, rows = exclude_duplicates(found, ["w", "x", "y", "x"])
    assert keep == [True, False, True, False]
    assert [row.participant_id for row in rows] == ["sub-01", "sub-03"]
    assert exclude_duplicates(found, ["w", "x", "y", "x"], {found[3].path})[0] == [True, False, True, True]


def parcels_of(missing, **choices):
    missing = np.asarray(missing, dtype=bool)
    scans = [(f"sub-{i}", "n/a") for i in range(len(missing))]
    names = [f"p{i}" for i in range(missing.shape[1])]
    return choose_parcels(missing, scans, names, replace(SETTINGS, **choices))


def test_parcels_that_many_lack_go_before_scans_that_lack_many():
    missing = np.zeros((10, 10), dtype=bool)
    missing[:3, 0] = True  # 30 % of the scans
    missing[4, 1:6] = True  # more than half of one scan
    missing[5, 7] = True
    scans, parcels, rows = parcels_of(missing, drop_parcels_missing_in=0.2, drop_people_missing=0.25)
    assert np.flatnonzero(~scans).tolist() == [4]
    assert np.flatnonzero(~parcels).tolist() == [0, 7]
    assert [(row.what, row.participant_id) for row in rows] == [("parcel", "n/a")] * 2 + [("recording", "sub-4")]
    assert "p0: 30.0 % of the scans lack it, more than drop_parcels_missing_in" in rows[0].reason
    assert "p7: 10.0 %" in rows[1].reason
    assert "55.6 %" in rows[2].reason


@settings(deadline=None, derandomize=True, max_examples=60)
@given(arrays(bool, (7, 8), elements=st.sampled_from([False, False, False, True])), st.floats(0, 1), st.floats(0, 1))
def test_nothing_is_missing_among_what_is_kept_and_every_loss_has_a_row(missing, parcel_share, scan_share):
    try:
        scans, parcels, rows = parcels_of(missing, drop_parcels_missing_in=parcel_share, drop_people_missing=scan_share)
    except DatasetError as error:
        assert "Missing parcels leave" in str(error)  # noqa: PT017
        return
    assert not missing[np.ix_(scans, parcels)].any()
    assert len(rows) == (~scans).sum() + (~parcels).sum()


def test_a_complete_cohort_loses_nothing():
    scans, parcels, rows = parcels_of(np.zeros((3, 4)), drop_parcels_missing_in=0.0, drop_people_missing=0.0)
    assert scans.all()
    assert parcels.all()
    assert rows == []


def test_no_parcel_left_is_an_error():
    with pytest.raises(DatasetError, match=r"leave 4 scans and 0 parcels"):
        parcels_of(np.eye(4, dtype=bool), drop_parcels_missing_in=1.0, drop_people_missing=1.0)


def test_the_table_has_its_columns_even_without_rows():
    assert list(tabulate_exclusions([]).columns) == ["participant_id", "session", "what", "reason"]
    row = Exclusion("sub-1", "n/a", "person", "x")
    assert len(tabulate_exclusions([row, row])) == 1
