from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.series import power_spectrum
from fcpower_bids.reports.brains import make_preview, standardise_trend
from fcpower_bids.reports.figures import shrink

NETWORKS = ("a", "b") * 3


@pytest.fixture
def series():
    return np.random.default_rng(0).standard_normal((120, 6))


def test_the_spectrum_is_that_of_the_series_when_all_is_kept(series):
    kept = np.ones(120, dtype=bool)
    preview = make_preview(series, kept, 2.0, NETWORKS)
    frequencies, power = power_spectrum(series, 2.0)
    np.testing.assert_allclose(preview.frequencies, frequencies)
    np.testing.assert_allclose(preview.power, power.mean(axis=1))


def test_what_censored_volumes_hold_does_not_reach_the_spectrum(series):
    kept = np.ones(120, dtype=bool)
    kept[[0, 1, 40, 41, 119]] = False
    clean = make_preview(series, kept, 2.0, NETWORKS)
    spoilt = np.where(kept[:, None], series, 1e6)
    np.testing.assert_array_equal(make_preview(spoilt, kept, 2.0, NETWORKS).power, clean.power)


def test_carpet_rows_are_sorted_by_network(series):
    carpet = make_preview(series, np.ones(120, dtype=bool), 2.0, NETWORKS).carpet
    np.testing.assert_array_equal(carpet, series[:, [0, 2, 4, 1, 3, 5]].T)


def test_line_and_scale_are_those_of_the_kept_volumes(series):
    kept = np.ones(120, dtype=bool)
    kept[:5] = False
    line = 3e4 + 70 * np.arange(120)[:, None]
    raw = line + 250 * series
    raw[:5] = 1e9
    raw[:, 5] = np.nan
    standard = standardise_trend(raw, kept)
    assert np.isnan(standard[:, 5]).all()
    np.testing.assert_allclose(standard[kept][:, :5].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(standard[kept][:, :5].std(axis=0, ddof=1), 1)
    slope = np.polynomial.polynomial.polyfit(np.flatnonzero(kept), standard[kept][:, :5], 1)[1]
    np.testing.assert_allclose(slope, 0, atol=1e-9)


def test_shrinking_averages_what_is_known_in_bins_of_equal_width():
    image = np.arange(12.0).reshape(2, 6)
    image[0, 1] = np.nan
    np.testing.assert_array_equal(shrink(image, 2, 3), [[0, 2.5, 4.5], [6.5, 8.5, 10.5]])
    widths = np.diff([0, *np.flatnonzero(np.diff(shrink(np.arange(1000.0)[None], 1, 300)[0]) > 3.4)])
    assert widths.max() <= 4
    np.testing.assert_array_equal(shrink(image, 5, 9), image)
