"""Embeddings, series and networks of the scans."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.cohort.inclusion import read_quality
from fcpower_bids.cohort.scans import Run, group_scans, read_embeddings, read_parcel_facts, series_of
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_table, write_table
from tests.planting import participant_outputs as made
from tests.planting.participant_outputs import PARCELS, add_embedding, add_output


def scans_of(out):
    return group_scans([Run(one, read_quality(one), i) for i, one in enumerate(list_connectomes(out))])[0]


@pytest.fixture
def out(tmp_path):
    for number, name in enumerate(("sub-01_run-1", "sub-01_run-2", "sub-02")):
        add_output(tmp_path, name, made.series_of(number))
    return tmp_path


def test_embeddings_are_averaged_over_runs_and_missing_where_there_is_none(out):
    add_embedding(out, "sub-01_run-1", np.array([1.0, 2.0]))
    add_embedding(out, "sub-01_run-2", np.array([3.0, 6.0]), weights="elsewhere")
    embeddings, rows = read_embeddings(scans_of(out))
    np.testing.assert_array_equal(embeddings["fbert1m"], [[2.0, 4.0], [np.nan, np.nan]])
    assert [(row.participant_id, row.what, row.reason) for row in rows] == [
        ("sub-02", "value", "no embedding 'fbert1m'")
    ]


def test_an_embedding_of_a_series_that_was_cleaned_otherwise_since_is_left_out(out):
    """The embedding stays where a participant level without --encoder writes FC of another strategy beside it."""
    add_embedding(out, "sub-01_run-1", np.array([1.0, 2.0]), NuisanceStrategy="36P")
    add_embedding(out, "sub-02", np.array([3.0, 6.0]), NuisanceStrategy="24P")
    embeddings, rows = read_embeddings(scans_of(out))
    np.testing.assert_array_equal(embeddings["fbert1m"], [[np.nan, np.nan], [3.0, 6.0]])
    assert "cleaned otherwise since; run the participant level again with --encoder" in rows[0].reason


def test_no_embedding_at_all_is_fine(out):
    assert read_embeddings(scans_of(out)) == ({}, [])


@pytest.mark.parametrize(
    ("vector", "facts", "words"),
    [
        ([1.0, 2.0, 3.0], {}, "2 and 3 dimensions"),
        ([1.0, 2.0], {"sha256": "cd"}, "different weights"),
        ([1.0, 2.0], {"read": "windows"}, "read differently"),
        ([1.0, 2.0], {"protocol": "paper"}, "read differently"),
        ([1.0, 2.0], {"aux_sha256": {"cohort_statistics.tsv": "cd"}}, "read differently"),
        ([1.0, 2.0], {"sha256": None, "weights": "random"}, "different weights"),
    ],
)
def test_embeddings_that_cannot_be_compared_are_an_error(out, vector, facts, words):
    add_embedding(out, "sub-01_run-1", np.array([1.0, 2.0]))
    add_embedding(out, "sub-02", np.array(vector), **facts)
    with pytest.raises(DatasetError, match=words):
        read_embeddings(scans_of(out))


def test_series_are_read_when_asked_for_with_the_parcels_asked_for(out):
    wanted = (PARCELS[4], PARCELS[0])
    functions, notes = series_of(scans_of(out), wanted)
    assert notes == []
    runs = pickle.loads(pickle.dumps(functions[0]))()  # noqa: S301  (other processes get them)
    for number, run in enumerate(runs):
        np.testing.assert_array_equal(run, made.series_of(number)[:, [4, 0]])
    with pytest.raises(DatasetError, match="no parcel LH_z"):
        series_of(scans_of(out), ("LH_z",))[0][0]()


def test_without_series_there_are_none_and_a_note(out):
    next(out.glob("sub-02/func/*_timeseries.tsv")).unlink()
    functions, (note,) = series_of(scans_of(out), PARCELS)
    assert functions == ()
    assert "1 series are not there" in note


def test_networks_come_from_the_copy_of_the_atlas(tmp_path):
    settings = made.make_outputs(tmp_path, people=1)
    one = list_connectomes(settings.output_dir)[0]
    names = (PARCELS[2], PARCELS[0], "unknown")
    facts = read_parcel_facts(settings.output_dir, one, names)
    assert (facts.networks, facts.notes) == (("Som", "Vis", "n/a"), ())
    assert facts.centroids is None
    without = read_parcel_facts(tmp_path, one, names)
    assert without.networks == ("n/a",) * 3
    assert "not known" in without.notes[0]


def test_places_come_from_the_copy_of_the_atlas(tmp_path):
    settings = made.make_outputs(tmp_path, people=1)
    path = next(settings.output_dir.glob("sourcedata/atlases/*/*_dseg.tsv"))
    table = read_table(path)
    write_table(path, table.assign(x=range(len(table)), y=1.5, z=-2.0))
    one = list_connectomes(settings.output_dir)[0]
    centroids = read_parcel_facts(settings.output_dir, one, (PARCELS[2], "unknown", PARCELS[0])).centroids
    np.testing.assert_array_equal(centroids, [[2, 1.5, -2], [np.nan] * 3, [0, 1.5, -2]])
