import numpy as np
import pytest

from fcpower_bids.demo import signals
from fcpower_bids.demo.signals import draw_clean_series, draw_motion, measure_displacement


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_clean_series_have_the_asked_correlation_and_deviation(rng):
    target = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.1], [-0.3, 0.1, 1.0]])
    series = draw_clean_series(target, 20_000, 2.0, rng)
    # In the band there are about 2 * 20000 * 2 * 0.067 = 5360 independent numbers per parcel.
    np.testing.assert_allclose(np.corrcoef(series.T), target, atol=4 / np.sqrt(5360))
    np.testing.assert_allclose(series.std(axis=0), signals.SIGNAL_SD, rtol=0.05)


def test_clean_series_lie_in_the_band(rng):
    series = draw_clean_series(np.eye(2), 400, 2.0, rng)
    power = np.abs(np.fft.rfft(series, axis=0)) ** 2
    frequencies = np.fft.rfftfreq(400, 2.0)
    inside = (frequencies > 0.01) & (frequencies < 0.08)
    # What is outside comes from rounding to whole numbers alone.
    assert power[~inside].sum() / power.sum() < signals.QUANTUM**2 / 12 / signals.SIGNAL_SD**2 * 1.5


def test_displacement_of_a_known_move():
    motion = np.zeros((4, 6))
    motion[2] = [0.1, -0.2, 0.0, 0.0, 0.002, 0.0]
    np.testing.assert_allclose(measure_displacement(motion), [0, 0, 0.4, 0.4])


@pytest.mark.parametrize("share", [0.0, 0.015, 0.25, 0.85])
def test_spikes_are_as_many_as_asked_and_nothing_else_passes_the_threshold(share, rng):
    displacement = measure_displacement(draw_motion(200, share, rng))
    assert (displacement > 0.5).sum() == max(1, round(share * 200))
    assert displacement[:5].max() < 0.5
