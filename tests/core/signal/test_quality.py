import numpy as np
import pytest
from scipy.signal import periodogram

from fcpower_bids.core.series import band_leakage, clean_series, power_spectrum

TIMES = np.arange(300) * 2.0


def sines(*frequencies):
    return np.column_stack([np.sin(2 * np.pi * frequency * TIMES + 1) for frequency in frequencies])


def test_spectrum_integrates_to_the_variance_and_keeps_uncovered_columns():
    series = np.random.default_rng(0).standard_normal((3000, 3))
    series[:, 1] = np.nan
    frequencies, power = power_spectrum(series, 0.8)
    variance = power.sum(axis=0) * frequencies[1]
    np.testing.assert_allclose(variance[[0, 2]], series.var(axis=0)[[0, 2]], rtol=0.02)
    assert np.isnan(power[:, 1]).all()


def test_one_segment_is_the_windowed_periodogram():
    series = np.random.default_rng(0).standard_normal((101, 2))
    frequencies, power = power_spectrum(series, 2.0, segment=None)
    expected = periodogram(series, fs=0.5, window="hann", axis=0)
    np.testing.assert_allclose(frequencies, expected[0])
    np.testing.assert_allclose(power, expected[1], atol=1e-12)


def test_leakage_of_pure_sines_is_none_or_all():
    leakage = band_leakage(sines(0.02, 0.05, 0.2, 0.004), 2.0, 0.01, 0.08)
    np.testing.assert_allclose(leakage[:2], 0, atol=1e-4)
    assert leakage[2] > 0.999
    assert leakage[3] > 0.5
    np.testing.assert_allclose(band_leakage(sines(0.02, 0.2), 2.0, None, None), 0, atol=1e-12)
    np.testing.assert_allclose(band_leakage(sines(0.05, 0.2), 2.0, 0.1, None), [1, 0], atol=1e-4)


def test_gaps_do_not_look_like_leakage_but_leakage_is_seen_across_gaps():
    kept = np.random.default_rng(0).random(300) > 0.1
    series = sines(0.02, 0.05, 0.2) + sines(0.06, 0.03, 0.2)
    leakage = band_leakage(series[kept], 2.0, 0.01, 0.08, kept)
    np.testing.assert_allclose(leakage[:2], 0, atol=2e-3)
    assert leakage[2] > 0.8
    np.testing.assert_array_equal(leakage, band_leakage(series[kept], 2.0, 0.01, 0.08, np.flatnonzero(kept)))


def test_cleaning_brings_white_noise_from_the_share_of_the_band_to_its_soft_edges():
    noise = np.random.default_rng(0).standard_normal((300, 60))
    noise[:, 3] = np.nan
    kept = np.random.default_rng(1).random(300) > 0.1
    before = band_leakage(noise, 2.0, 0.01, 0.08)
    cleaned = clean_series(noise, None, kept, 2.0, 0.01, 0.08)
    after = band_leakage(cleaned.series, 2.0, 0.01, 0.08, cleaned.kept)
    assert np.isnan(after[3])
    assert np.nanmean(before) == pytest.approx(1 - 0.07 / 0.25, abs=0.02)
    assert np.nanmean(after) < 0.08


def test_wrong_number_of_kept_volumes_is_refused():
    with pytest.raises(ValueError, match="300 rows, but 3"):
        band_leakage(sines(0.02), 2.0, 0.01, 0.08, np.arange(3))
