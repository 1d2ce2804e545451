"""What every measure keeps to, the new ones too: columns, determinism, excluded recordings, averaged runs."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.measures import MEASURES
from fcpower_bids.outputs.tables import plain
from fcpower_bids.records import ParcelSeries
from tests.measures.test_measures import ATLAS, SETTINGS, P, T, make_cleaning


@pytest.fixture(params=MEASURES)
def measure(request):
    return MEASURES[request.param]


@pytest.fixture
def series() -> ParcelSeries:
    clean = np.random.default_rng(0).standard_normal((T, P))
    clean[:, 3] = np.nan
    coverage = np.array([1, 0.9, 0.5, 0.2, 1])
    return ParcelSeries(
        coverage, np.random.default_rng(1).standard_normal((100, P)), clean, pearson_connectivity(clean)
    )


def compute(measure, series, cleaning=None):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return measure.compute(series, cleaning or make_cleaning(), ATLAS, SETTINGS)


def test_columns_are_those_that_were_declared(measure, series):
    table, facts = compute(measure, series)
    assert list(table.columns) == list(measure.table.columns)
    assert len(table)
    json.dumps(plain(facts), allow_nan=False)


def test_the_same_twice_and_nothing_that_was_given_is_changed(measure, series):
    before = [array.copy() for array in (series.coverage, series.raw, series.clean, series.connectivity)]
    (first, one), (second, other) = compute(measure, series), compute(measure, series)
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert plain(one) == plain(other)
    for array, old in zip((series.coverage, series.raw, series.clean, series.connectivity), before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_a_table_of_parcels_has_a_row_for_each_of_them(measure, series):
    table, _ = compute(measure, series)
    if "Node" in table:
        assert list(table["Node"]) == list(ATLAS.names)


def test_runs_that_were_averaged_have_no_series_and_are_no_fault(measure, series):
    averaged = dataclasses.replace(series, raw=np.empty((0, P)), clean=np.empty((0, P)))
    if not measure.of_recording:
        table, _ = compute(measure, averaged)
        assert list(table.columns) == list(measure.table.columns)


def test_an_excluded_recording_is_measured_where_that_is_declared(measure, series):
    excluded = dataclasses.replace(series, clean=np.empty((0, P)), connectivity=np.empty((0, 0)))
    if measure.of_recording or measure.of_excluded:
        table, _ = compute(measure, excluded, make_cleaning(excluded="too short"))
        assert list(table.columns) == list(measure.table.columns)


def test_files_have_different_names():
    outputs = [measure.output for measure in MEASURES.values()]
    assert len(set(outputs)) == len(outputs)
