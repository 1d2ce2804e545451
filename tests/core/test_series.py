"""Censoring, filtering, motion and cleaning against scipy, XCP-D's formula and nilearn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.signal import butter, detrend, filtfilt, iirnotch, sosfiltfilt

from fcpower_bids.core.series import (
    LONGEST_SPLINE,
    band_leakage,
    censor_mask,
    check_band,
    clean_series,
    filter_degrees_of_freedom,
    filter_motion,
    filter_series,
    interpolate_censored,
    power_spectrum,
    regress_confounds,
)
from fcpower_bids.errors import Unfit


def test_volumes_above_the_threshold_or_of_unknown_motion_and_dummy_scans_are_not_kept():
    displacement = [np.nan, 0.1, 0.6, 0.5, 0.0, 2.0]
    assert censor_mask(displacement, 0.5).tolist() == [True, True, False, True, True, False]
    assert censor_mask(displacement, 0.5, dummy_scans=2).tolist() == [False, False, False, True, True, False]
    assert censor_mask(displacement, None).all()
    assert censor_mask(displacement, 0, dummy_scans=1).tolist() == [False] + [True] * 5
    displacement = [np.nan, 0.1, np.nan, 0.1]
    assert censor_mask(displacement, None).all()
    with pytest.raises(ValueError, match="of 1 volumes is unknown"):
        censor_mask(displacement, 0.5)
    assert censor_mask(displacement, 0.5, dummy_scans=3).tolist() == [False, False, False, True]


def test_long_gaps_are_bridged_by_a_line_and_short_ones_still_by_the_spline():
    series = np.random.default_rng(0).standard_normal((100, 3))
    kept = np.ones(100, dtype=bool)
    kept[10 : 10 + LONGEST_SPLINE] = False
    kept[40 : 41 + LONGEST_SPLINE] = False
    filled = interpolate_censored(series, kept)
    rows = np.flatnonzero(kept)
    short, long = np.arange(10, 10 + LONGEST_SPLINE), np.arange(40, 41 + LONGEST_SPLINE)
    np.testing.assert_allclose(filled[short], CubicSpline(rows, series[rows])(short), atol=1e-12)
    for parcel in range(3):
        np.testing.assert_allclose(filled[long, parcel], np.interp(long, rows, series[rows, parcel]), atol=1e-12)


@pytest.mark.parametrize(
    ("n_volumes", "high_pass", "low_pass", "lost"),
    [(300, 0.01, 0.1, 191), (300, None, None, 0), (300, None, 0.125, 150), (300, 0.125, None, 149), (300, 0, 0.25, 0)],
)
def test_degrees_of_freedom_of_the_filter(n_volumes, high_pass, low_pass, lost):
    assert filter_degrees_of_freedom(n_volumes, 2.0, high_pass, low_pass) == lost


def published(data, tr, kind, low_bpm, high_bpm, order):
    """XCP-D 26, utils/confounds.py: _modify_motion_filter, then filter_motion."""
    sampling = 1 / tr
    nyquist = sampling / 2
    edges = np.array([low_bpm, low_bpm if high_bpm is None else high_bpm]) / 60
    edges = np.abs(edges - np.floor((edges + nyquist) / sampling) * sampling)
    if kind == "lp":
        b, a = butter(int(np.floor(order / 2)), edges[0], btype="lowpass", output="ba", fs=sampling)
        return filtfilt(b, a, data, axis=0, padtype="constant", padlen=len(data) - 1)
    target = np.mean(edges)
    b, a = iirnotch(target, target / np.abs(np.diff(edges))[0], fs=sampling)
    for _ in range(int(np.floor(order / 4))):
        data = filtfilt(b, a, data, axis=0, padtype="constant", padlen=len(data) - 1)
    return data


@pytest.mark.parametrize("repetition_time", [0.8, 2.5])
@pytest.mark.parametrize(
    ("kind", "stop", "order"),
    [("notch", (12.0, 18.0), 4), ("notch", (15.0, 25.0), 8), ("lp", (6.0, None), 4), ("lp", (6.0, None), 2)],
)
def test_the_filter_is_the_published_one(kind, stop, order, repetition_time):
    slow = np.random.default_rng(0).standard_normal((300, 6)).cumsum(axis=0) * 0.01
    data = slow + 0.1 * np.sin(2 * np.pi * 0.28 * np.arange(300) * repetition_time)[:, None]
    ours = filter_motion(data, repetition_time, kind, stop, order)
    np.testing.assert_allclose(ours, published(data, repetition_time, kind, *stop, order), atol=1e-12)


def sines(*frequencies):
    return np.sin(2 * np.pi * np.outer(np.arange(300) * 2.0, frequencies) + 1)


def test_spectrum_integrates_to_the_variance_and_keeps_uncovered_columns():
    series = np.random.default_rng(0).standard_normal((3000, 3))
    series[:, 1] = np.nan
    frequencies, power = power_spectrum(series, 0.8)
    variance = power.sum(axis=0) * frequencies[1]
    np.testing.assert_allclose(variance[[0, 2]], series.var(axis=0)[[0, 2]], rtol=0.02)
    assert np.isnan(power[:, 1]).all()


def leakage_of(series, *band):
    return band_leakage(series, np.ones(len(series), dtype=bool), 2.0, *band)


def test_leakage_of_pure_sines_is_none_or_all():
    leakage = leakage_of(sines(0.02, 0.05, 0.2, 0.004), 0.01, 0.08)
    np.testing.assert_allclose(leakage[:2], 0, atol=1e-4)
    assert leakage[2] > 0.999
    assert leakage[3] > 0.5
    np.testing.assert_allclose(leakage_of(sines(0.02, 0.2), None, None), 0, atol=1e-12)
    np.testing.assert_allclose(leakage_of(sines(0.05, 0.2), 0.1, None), [1, 0], atol=1e-4)


def test_gaps_do_not_look_like_leakage_but_leakage_is_seen_across_gaps():
    kept = np.random.default_rng(0).random(300) > 0.1
    series = sines(0.02, 0.05, 0.2) + sines(0.06, 0.03, 0.2)
    leakage = band_leakage(series[kept], kept, 2.0, 0.01, 0.08)
    np.testing.assert_allclose(leakage[:2], 0, atol=2e-3)
    assert leakage[2] > 0.8


BAND = (0.01, 0.08)
VOLUMES, PARCELS, CONFOUNDS = 240, 8, 5
EVERYTHING = np.ones(VOLUMES, dtype=bool)


def simulate(seed=0, volumes=VOLUMES):
    """Series that hold the confounds, a drift and a large mean, like BOLD."""
    rng = np.random.default_rng(seed)
    confounds = rng.standard_normal((volumes, CONFOUNDS)).cumsum(axis=0)
    series = rng.standard_normal((volumes, PARCELS)) * 3 + confounds @ rng.standard_normal((CONFOUNDS, PARCELS))
    return 1e4 + series + np.linspace(0, 20, volumes)[:, None], confounds


def scattered(seed=0, share=0.15, volumes=VOLUMES):
    """Kept volumes with losses inside, at both ends, and in mirrored pairs."""
    kept = np.random.default_rng(seed).random(volumes) > share
    kept[[0, 1, 30, volumes - 31, 31, volumes - 32, volumes - 1]] = False
    return kept


def explicit(series, confounds, kept, repetition_time=2.0):
    """Spell the steps out in numpy and scipy: spline, de-trend, filter, censor, least squares, z-score."""
    rows = np.flatnonzero(kept)
    grid = np.arange(rows[0], rows[-1] + 1)
    sections = butter(2, BAND, btype="bandpass", fs=1 / repetition_time, output="sos")

    def prepare(columns):
        whole = detrend(CubicSpline(rows, columns[rows])(grid), axis=0)
        return sosfiltfilt(sections, whole, axis=0, padtype="even", padlen=len(grid) - 1)[kept[grid]]

    data, design = prepare(series), np.column_stack([prepare(confounds), np.ones(len(rows))])
    residuals = data - design @ np.linalg.lstsq(design, data, rcond=None)[0]
    return (residuals - residuals.mean(axis=0)) / residuals.std(axis=0, ddof=1)


@pytest.mark.parametrize("padding", ["odd", "even", "constant"])
@pytest.mark.parametrize(("high_pass", "low_pass"), [(0.01, 0.08), (0.01, None), (None, 0.08)])
@pytest.mark.parametrize("with_confounds", [True, False])
def test_equals_nilearn_where_nothing_is_censored(padding, high_pass, low_pass, with_confounds):
    signal = pytest.importorskip("nilearn.signal")
    series, confounds = simulate()
    confounds = confounds if with_confounds else None
    pad = {} if padding == "odd" else {"butterworth__padtype": padding, "butterworth__padlen": VOLUMES - 1}
    expected = signal.clean(
        series.copy(), confounds=confounds, detrend=high_pass is not None, standardize="zscore_sample", t_r=2.0,
        high_pass=high_pass, low_pass=low_pass, butterworth__order=2, **pad,
    )  # fmt: skip
    ours = clean_series(series, confounds, EVERYTHING, 2.0, high_pass, low_pass, padding=padding)
    np.testing.assert_allclose(ours.series, expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_censored_series_equals_the_explicit_reference(seed):
    series, confounds = simulate(seed)
    kept = scattered(seed)
    expected = explicit(series, confounds, kept)
    series[~kept], confounds[~kept] = 1e8, np.nan  # what is censored changes nothing
    ours = clean_series(series, confounds, kept, 2.0, *BAND)
    np.testing.assert_allclose(ours.series, expected, atol=1e-8)
    np.testing.assert_array_equal(ours.kept, np.flatnonzero(kept))


def test_degrees_of_freedom_are_counted():
    series, confounds = simulate(volumes=300)
    kept = np.ones(300, dtype=bool)
    cleaned = clean_series(series, confounds, kept, 2.0, 0.01, 0.1)
    assert (cleaned.n_regressors, cleaned.degrees_of_freedom) == (5, 300 - 191 - 5 - 1)
    kept[100:150] = False
    assert clean_series(series, None, kept, 2.0, 0.01, 0.1).degrees_of_freedom == 250 * 0.36


def test_collinear_and_constant_confounds_are_not_counted():
    series, confounds = simulate()
    expected = clean_series(series, confounds, EVERYTHING, 2.0, *BAND)
    ramp = np.linspace(0, 1, VOLUMES)
    more = np.column_stack([np.full(VOLUMES, 1e3), confounds, 3 * confounds[:, 0] - confounds[:, 1], ramp])
    cleaned = clean_series(series, more, EVERYTHING, 2.0, *BAND)
    assert cleaned.dropped_confounds == (0, CONFOUNDS + 2)
    assert cleaned.n_regressors == CONFOUNDS
    np.testing.assert_allclose(cleaned.series, expected.series, atol=1e-8)


def test_uncovered_parcels_stay_nan_and_flat_ones_are_named():
    series, confounds = simulate()
    kept = scattered()
    expected = clean_series(series, confounds, kept, 2.0, *BAND).series
    series[:, 2] = np.nan
    series[np.flatnonzero(kept)[7], 4] = np.nan
    series[:, 5] = 812.5
    series[:, 6] = 2 * confounds[:, 0] - 1
    cleaned = clean_series(series, confounds, kept, 2.0, *BAND)
    assert cleaned.flat_parcels == (5, 6)
    assert np.isnan(cleaned.series[:, [2, 4, 5, 6]]).all()
    np.testing.assert_allclose(cleaned.series[:, [0, 1, 3, 7]], expected[:, [0, 1, 3, 7]], atol=1e-10)


def test_without_a_band_the_mean_alone_is_taken_off_and_a_band_must_be_possible_and_have_sixteen_volumes():
    series = np.random.default_rng(0).standard_normal((200, 6)).cumsum(axis=0)
    kept = np.arange(200) % 5 != 0
    expected = series[kept] - series[kept].mean(axis=0)
    np.testing.assert_array_equal(filter_series(series, kept, 2.0, (None, None)), expected)
    assert filter_series(series[:16], EVERYTHING[:16], 2.0, BAND, padding="odd").shape == (16, 6)
    with pytest.raises(Unfit, match="15 volumes are too few"):
        filter_series(series[:15], EVERYTHING[:15], 2.0, BAND, padding="odd")
    for impossible, words in (((2.0, 0.08, 0.01), "empty"), ((7.0, 0.01, 0.08), "Nyquist")):
        with pytest.raises(Unfit, match=words):
            check_band(*impossible)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(seed=st.integers(0, 1000), volumes=st.integers(8, 40), rank=st.integers(1, 6), copies=st.integers(0, 4))
def test_regression_equals_least_squares_with_an_intercept(seed, volumes, rank, copies):
    rng = np.random.default_rng(seed)
    independent = rng.standard_normal((volumes, rank))
    confounds = np.hstack([independent, independent @ rng.standard_normal((rank, copies))])
    series = rng.standard_normal((volumes, 3)) + 5
    design = np.column_stack([independent, np.ones(volumes)])
    expected = series - design @ np.linalg.lstsq(design, series, rcond=None)[0]
    residuals, found = regress_confounds(series, confounds)
    assert found == rank
    np.testing.assert_allclose(residuals, expected, atol=1e-9)
