"""Connectomes, series and embeddings of scans are what the files of their runs say, to the bit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fcpower_bids.cohort import scans as cohort_scans
from fcpower_bids.cohort.inclusion import list_connectomes, read_quality
from fcpower_bids.cohort.scans import (
    Run,
    combine_edges,
    group_scans,
    read_edges,
    read_embeddings,
    read_parcel_facts,
    tabulate_scans,
)
from fcpower_bids.core.connectome import pearson_connectivity
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_table, write_matrix, write_table
from fcpower_bids.settings import Settings
from tests.planting import participant_outputs as made
from tests.planting.participant_outputs import PARCELS, P, add_embedding, add_output, series_of


@pytest.mark.parametrize(
    ("change", "words"), [((0, 1, 0.5), "not symmetric"), ((slice(None), slice(None), 2.0), "outside -1")]
)
def test_a_table_that_is_no_connectome_is_told_and_the_others_are_read(tmp_path, change, words):
    paths = [add_output(tmp_path / "out", f"sub-0{i + 1}", series_of(i)) for i in range(3)]
    settings = Settings(tmp_path, tmp_path / "out", "group").changed(quiet=True)
    matrix = pearson_connectivity(series_of(0))
    matrix[change[:2]] = change[2]
    write_matrix(paths[0], matrix, PARCELS, PARCELS)
    edges = read_edges(paths, settings)
    assert list(edges.unreadable) == paths[:1]
    assert words in edges.unreadable[paths[0]]
    assert str(paths[0]) in edges.unreadable[paths[0]]
    values = np.asarray(edges.array)[: len(edges.missing)]
    np.testing.assert_array_equal(values, [edges_of(series_of(i)) for i in (1, 2)])
    with pytest.raises(DatasetError, match=words):
        read_edges(paths[:1], settings)


def edges_of(series):
    return vectorise_edges(pearson_connectivity(series), weighted=False)


def scans_of(out):
    """Scans, and what is said of recordings that are left out."""
    return group_scans([Run(one, read_quality(one), i) for i, one in enumerate(list_connectomes(out))])


def test_runs_are_put_end_to_end_and_added_up(tmp_path):
    lengths = (30, 45, 70)
    series = [series_of(i, volumes) for i, volumes in enumerate(lengths)]
    for number, one in enumerate(series):
        add_output(tmp_path, f"sub-01_run-{number + 1}", one, mean_fd=0.1 * number, degrees_of_freedom=10.0 + number)
    for number, missing in enumerate(((2,), ())):
        add_output(tmp_path, f"sub-02_run-{number + 1}", series_of(number, missing=missing))
    paths = [one.path for one in list_connectomes(tmp_path)]
    edges = read_edges(paths, Settings(tmp_path, tmp_path, "group").changed(quiet=True))
    scans, _ = scans_of(tmp_path)
    table = tabulate_scans(scans)
    assert table["seconds"].tolist() == [2.0 * sum(lengths), 160.0]
    assert table["n_runs"].tolist() == [3, 2]
    assert table["mean_fd"][0] == pytest.approx((0.1 * 45 + 0.2 * 70) / 145)
    whole = np.vstack([(one - one.mean(axis=0)) / one.std(axis=0, ddof=1) for one in series])
    np.testing.assert_allclose(combine_edges(scans[0], edges), edges_of(whole), rtol=0, atol=1e-15)
    lost = np.isnan(combine_edges(scans[1], edges))
    assert lost.sum() == P - 1, "a parcel that one run lacks is missing in the scan"
    quality = next((tmp_path / "sub-01").rglob("*run-2*_qc.tsv"))
    write_table(quality, read_table(quality).assign(kept_volumes="n/a"))
    scans, _ = scans_of(tmp_path)
    expected = np.average([edges_of(one) for one in series], axis=0, weights=lengths)
    np.testing.assert_allclose(combine_edges(scans[0], edges), expected, rtol=0, atol=1e-15)


def test_runs_of_different_repetition_times_are_left_out(tmp_path):
    add_output(tmp_path, "sub-01_run-1", series_of(0))
    path = add_output(tmp_path, "sub-01_run-2", series_of(1))
    add_output(tmp_path, "sub-02", series_of(2))
    quality = next(path.parent.glob("*run-2*_qc.tsv"))
    quality.write_text(quality.read_text().replace("\t80\t", "\t28.8\t"))
    scans, rows = scans_of(tmp_path)
    assert [scan[0].connectome.participant for scan in scans] == ["sub-02"]
    assert "repetition times 0.72 s, 2 s" in rows[0].reason
    assert scans[0][0].quality.repetition_time == 2.0


@pytest.fixture
def out(tmp_path):
    for number, name in enumerate(("sub-01_run-1", "sub-01_run-2", "sub-02")):
        add_output(tmp_path, name, series_of(number))
    return tmp_path


def test_embeddings_are_averaged_over_runs_and_missing_where_there_is_none_of_the_series_that_is_there(out):
    """An embedding stays where a participant level without --encoder writes FC of another strategy beside it."""
    add_output(out, "sub-03", series_of(3))
    add_embedding(out, "sub-01_run-1", np.array([1.0, 2.0]))
    add_embedding(out, "sub-01_run-2", np.array([3.0, 6.0]), NuisanceStrategy="24P", weights="elsewhere")
    add_embedding(out, "sub-03", np.array([1.0, 2.0]), NuisanceStrategy="36P")
    embeddings, rows, _ = read_embeddings(scans_of(out)[0])
    np.testing.assert_array_equal(embeddings["fbert1m"], [[2.0, 4.0], [np.nan, np.nan], [np.nan, np.nan]])
    reasons = {(row.participant_id, row.what): row.reason for row in rows}
    assert reasons.keys() == {("sub-02", "embedding"), ("sub-03", "embedding")}
    assert reasons["sub-02", "embedding"] == "no embedding 'fbert1m'"
    assert "cleaned otherwise since; run the participant level again with --encoder" in reasons["sub-03", "embedding"]


@pytest.mark.parametrize(
    ("vector", "facts", "words"),
    [
        ([1.0, 2.0, 3.0], {}, "2 and 3 dimensions"),
        ([1.0, 2.0], {"sha256": "cd"}, "different weights"),
        ([1.0, 2.0], {"read": "windows"}, "read differently"),
    ],
)
def test_embeddings_that_cannot_be_compared_are_an_error(out, vector, facts, words):
    add_embedding(out, "sub-01_run-1", np.array([1.0, 2.0]))
    add_embedding(out, "sub-02", np.array(vector), **facts)
    with pytest.raises(DatasetError, match=words):
        read_embeddings(scans_of(out)[0])


def test_series_are_read_when_asked_for_with_the_parcels_asked_for(out):
    wanted = (PARCELS[4], PARCELS[0])
    functions, notes = cohort_scans.series_of(scans_of(out)[0], wanted)
    assert notes == []
    runs = pickle.loads(pickle.dumps(functions[0]))()  # noqa: S301  (other processes get them)
    for number, run in enumerate(runs):
        np.testing.assert_array_equal(run, series_of(number)[:, [4, 0]])
    with pytest.raises(DatasetError, match="no parcel LH_z"):
        cohort_scans.series_of(scans_of(out)[0], ("LH_z",))[0][0]()


def test_places_come_from_the_copy_of_the_atlas(tmp_path):
    settings = made.make_outputs(tmp_path, people=1)
    path = next(settings.output_dir.glob("sourcedata/atlases/*/*_dseg.tsv"))
    table = read_table(path)
    write_table(path, table.assign(x=range(len(table)), y=1.5, z=-2.0))
    one = list_connectomes(settings.output_dir)[0]
    centroids = read_parcel_facts(settings.output_dir, one, (PARCELS[2], "unknown", PARCELS[0])).centroids
    np.testing.assert_array_equal(centroids, [[2, 1.5, -2], [np.nan] * 3, [0, 1.5, -2]])
