"""Displacement in closed form, and the motion filter against XCP-D's formula written out."""

import numpy as np
import pytest
from scipy.signal import butter, filtfilt, iirnotch

from fcpower_bids.core.series import aliased, filter_motion, framewise_displacement, sphere_radius
from fcpower_bids.errors import Unfit

T = 300


def parameters(seed=0, repetition_time=0.8, breath=0.28):
    rng = np.random.default_rng(seed)
    slow = rng.standard_normal((T, 6)).cumsum(axis=0) * 0.01
    return slow + 0.1 * np.sin(2 * np.pi * breath * np.arange(T) * repetition_time)[:, None]


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


@pytest.mark.parametrize("repetition_time", [0.8, 1.4, 2.5])
@pytest.mark.parametrize(
    ("kind", "stop", "order"),
    [("notch", (12.0, 18.0), 4), ("notch", (15.0, 25.0), 8), ("lp", (6.0, None), 4), ("lp", (6.0, None), 2)],
)
def test_the_filter_is_the_published_one(kind, stop, order, repetition_time):
    data = parameters(repetition_time=repetition_time)
    ours = filter_motion(data, repetition_time, kind, stop, order)
    np.testing.assert_allclose(ours, published(data, repetition_time, kind, *stop, order), atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "stop", "repetition_time"),
    [("lp", (30.0, None), 1.0), ("notch", (24.0, 36.0), 1.0), ("lp", (60, None), 1.0)],
)
def test_what_the_scan_cannot_show_is_refused(kind, stop, repetition_time):
    with pytest.raises(Unfit, match="breaths per minute"):
        filter_motion(parameters(), repetition_time, kind, stop)


def test_fast_breathing_is_looked_for_where_it_appears():
    assert aliased(0.2, 2.0) == pytest.approx(0.2)
    assert aliased(0.3, 2.0) == pytest.approx(0.2)
    assert aliased(0.6, 2.0) == pytest.approx(0.1)


def test_displacement_is_the_sum_of_shifts_and_arcs():
    steps = np.zeros((3, 6))
    steps[1], steps[2] = [0.1, 0, 0, 0, 0, 0.02], [0.1, -0.3, 0, 0.01, 0, 0.02]
    np.testing.assert_allclose(framewise_displacement(steps), [np.nan, 0.1 + 50 * 0.02, 0.3 + 50 * 0.01])
    np.testing.assert_allclose(framewise_displacement(steps, 35.0)[1:], [0.1 + 35 * 0.02, 0.3 + 35 * 0.01])


def test_the_radius_is_that_of_a_sphere_of_this_volume():
    assert sphere_radius(4 / 3 * np.pi * 62.5**3) == pytest.approx(62.5)
