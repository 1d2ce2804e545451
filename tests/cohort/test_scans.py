"""Runs become scans: what is combined equals what the combined series gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.cohort.inclusion import read_quality
from fcpower_bids.cohort.scans import Run, assemble_edges, combine_edges, group_scans, read_edges, tabulate_scans
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.series import z_score
from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Settings
from tests.planting.participant_outputs import P, add_output, series_of

LENGTHS = (30, 45, 70)


def edges_of(series):
    return vectorise_edges(pearson_connectivity(series), weighted=False)


def load(out, **choices):
    settings = replace(Settings(out, out, "group", quiet=True), **choices)
    found = list_connectomes(out)
    edges = read_edges([one.path for one in found], settings)
    scans, rows = group_scans([Run(one, read_quality(one), place) for place, one in enumerate(found)])
    return scans, rows, edges, settings


def three_runs(out):
    series = [series_of(i, volumes) for i, volumes in enumerate(LENGTHS)]
    for number, one in enumerate(series):
        add_output(out, f"sub-01_run-{number + 1}", one, mean_fd=0.1 * number, degrees_of_freedom=10.0 + number)
    return series


@pytest.mark.parametrize("choices", [{"preset": "recommended"}])
def test_concat_equals_the_correlation_of_the_joined_series(tmp_path, choices):
    series = three_runs(tmp_path)
    scans, _, edges, settings = load(tmp_path, **choices)
    expected = edges_of(np.concatenate([z_score(one) for one in series]))
    np.testing.assert_allclose(combine_edges(scans[0], edges, settings), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("choices", [{"preset": "paper"}, {"preset": "cbig"}])
def test_average_is_the_weighted_mean_of_fisher_z(tmp_path, choices):
    series = three_runs(tmp_path)
    scans, _, edges, settings = load(tmp_path, **choices)
    z = np.arctanh([edges_of(one) for one in series])
    expected = np.tanh((10 * z[0] + 11 * z[1] + 12 * z[2]) / 33)
    np.testing.assert_allclose(combine_edges(scans[0], edges, settings), expected, rtol=0, atol=1e-15)


def test_runs_of_a_program_that_states_no_degrees_of_freedom_weigh_their_volumes(tmp_path):
    series = three_runs(tmp_path)
    add_output(tmp_path, "sub-01_run-2", series[1], degrees_of_freedom=np.nan)
    scans, _, edges, settings = load(tmp_path, preset="paper")
    weights, z = np.array(LENGTHS) - 1, np.arctanh([edges_of(one) for one in series])
    expected = np.tanh(weights @ z / weights.sum())
    np.testing.assert_allclose(combine_edges(scans[0], edges, settings), expected, rtol=0, atol=1e-15)


def test_the_table_adds_up_the_runs(tmp_path):
    three_runs(tmp_path)
    add_output(tmp_path, "sub-02", series_of(9))
    scans, _, _, settings = load(tmp_path, preset="recommended")
    table = tabulate_scans(scans, settings)
    assert table["seconds"].tolist() == [2.0 * sum(LENGTHS), 80.0]
    assert table["n_runs"].tolist() == [3, 1]
    assert table["combination"].tolist() == ["concat", "none"]
    assert table["mean_fd"][0] == pytest.approx((0.1 * 45 + 0.2 * 70) / 145)


def test_a_parcel_that_one_run_lacks_is_missing_in_the_scan(tmp_path):
    add_output(tmp_path, "sub-01_run-1", series_of(0, missing=(2,)))
    add_output(tmp_path, "sub-01_run-2", series_of(1))
    for how in ("recommended", "paper"):
        scans, _, edges, settings = load(tmp_path, preset=how)
        lost = np.isnan(combine_edges(scans[0], edges, settings))
        assert lost.sum() == P - 1


def test_runs_of_different_repetition_times_are_left_out(tmp_path):
    add_output(tmp_path, "sub-01_run-1", series_of(0))
    path = add_output(tmp_path, "sub-01_run-2", series_of(1))
    add_output(tmp_path, "sub-02", series_of(2))
    quality = next(path.parent.glob("*run-2*_qc.tsv"))
    quality.write_text(quality.read_text().replace("\t80\t", "\t28.8\t"))
    scans, rows, _, _ = load(tmp_path)
    assert [scan[0].connectome.participant for scan in scans] == ["sub-02"]
    assert "repetition times 0.72 s, 2 s" in rows[0].reason
    assert scans[0][0].quality.repetition_time == 2.0


def test_runs_without_weight_or_with_equal_parcels_cannot_be_averaged(tmp_path):
    add_output(tmp_path, "sub-01_run-1", series_of(0), degrees_of_freedom=-1.0)
    add_output(tmp_path, "sub-01_run-2", series_of(1))
    scans, _, edges, settings = load(tmp_path, preset="paper")
    with pytest.raises(DatasetError, match="no known length"):
        combine_edges(scans[0], edges, settings)
    twice = series_of(0)
    twice[:, 1] = twice[:, 0]
    add_output(tmp_path, "sub-01_run-1", twice)
    scans, _, edges, settings = load(tmp_path, preset="paper")
    with pytest.raises(DatasetError, match=r"cannot be averaged: .*LH_a, LH_b.*recommended"):
        combine_edges(scans[0], edges, settings)


def test_scans_of_one_run_are_the_rows_that_are_there(tmp_path):
    for i in range(3):
        add_output(tmp_path, f"sub-0{i}", series_of(i))
    scans, _, edges, settings = load(tmp_path)
    everything = np.ones(P, dtype=bool)
    whole = assemble_edges(scans, edges, everything, settings)
    np.testing.assert_array_equal(whole, edges.array)
    kept = everything.copy()
    kept[2] = False
    some = assemble_edges(scans[1:], edges, kept, settings)
    expected = [edges_of(series_of(i)[:, kept]) for i in (1, 2)]
    np.testing.assert_allclose(some, expected, rtol=0, atol=1e-15)
