import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from fcpower_bids.core.series import butterworth, check_band, filter_degrees_of_freedom, filter_series

BAND = (0.01, 0.08)


@pytest.fixture
def series():
    return np.random.default_rng(0).standard_normal((200, 6)).cumsum(axis=0)


@pytest.mark.parametrize(("padding", "length"), [("even", 199), ("constant", 199), ("odd", None)])
@pytest.mark.parametrize(
    ("high_pass", "low_pass", "kind", "edges"),
    [(0.01, 0.08, "bandpass", [0.01, 0.08]), (0.01, None, "highpass", 0.01), (None, 0.08, "lowpass", 0.08)],
)
def test_equals_scipy(series, padding, length, high_pass, low_pass, kind, edges):
    sections = butter(2, edges, btype=kind, fs=0.5, output="sos")
    expected = sosfiltfilt(sections, series, axis=0, padtype=padding, padlen=length)
    np.testing.assert_array_equal(butterworth(series, 2.0, high_pass, low_pass, padding=padding), expected)


def test_without_a_band_nothing_changes(series):
    np.testing.assert_array_equal(butterworth(series, 2.0, None, None), series)
    kept = np.arange(200) % 5 != 0
    expected = series[kept] - series[kept].mean(axis=0)
    np.testing.assert_array_equal(filter_series(series, kept, 2.0, (None, None)), expected)


@pytest.mark.parametrize(
    ("n_volumes", "high_pass", "low_pass", "lost"),
    [(300, 0.01, 0.1, 191), (300, None, None, 0), (300, None, 0.125, 150), (300, 0.125, None, 149), (300, 0, 0.25, 0)],
)
def test_degrees_of_freedom_of_the_filter(n_volumes, high_pass, low_pass, lost):
    assert filter_degrees_of_freedom(n_volumes, 2.0, high_pass, low_pass) == lost


def test_degrees_of_freedom_count_the_fourier_frequencies_of_the_band():
    for n_volumes, repetition_time in ((300, 2.0), (1200, 0.72), (375, 0.8)):
        frequencies = np.fft.fftfreq(n_volumes, repetition_time)
        inside = ((np.abs(frequencies) >= 0.01) & (np.abs(frequencies) <= 0.08)).sum()
        lost = filter_degrees_of_freedom(n_volumes, repetition_time, *BAND)
        assert abs((n_volumes - 1 - lost) - inside) <= 2


@pytest.mark.parametrize(
    ("repetition_time", "high_pass", "low_pass", "message"),
    [
        (0.0, 0.01, 0.08, "positive"),
        (np.nan, 0.01, 0.08, "positive"),
        (2.0, 0.08, 0.01, "empty"),
        (2.0, -0.01, 0.08, "empty"),
        (2.0, 0.3, None, "Nyquist"),
        (7.0, 0.01, 0.08, "Nyquist"),
    ],
)
def test_impossible_bands_are_refused(repetition_time, high_pass, low_pass, message):
    with pytest.raises(ValueError, match=message):
        check_band(repetition_time, high_pass, low_pass)


def test_too_short_a_series_is_refused(series):
    for padding in ("even", "odd"):
        assert butterworth(series[:16], 2.0, *BAND, padding=padding).shape == (16, 6)
        with pytest.raises(ValueError, match="15 volumes are too few"):
            butterworth(series[:15], 2.0, *BAND, padding=padding)
