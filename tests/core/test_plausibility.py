"""Volumes and parcels that cannot be signal are found; what sound recordings do is not taken for it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from fcpower_bids.core.plausibility import (
    compare_with_table,
    find_copies,
    find_spikes,
    find_stray,
    gain_step,
    times_of_cosines,
)

T, P = 160, 40


def draw(seed, volumes=T, parcels=P, level=1e4, smooth=0.8, spikes=3, integers=False):
    """Series as a scanner gives them: autocorrelated, with a global signal, drift, bright beginning and spikes."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((volumes, parcels + 1))
    new = np.sqrt(1 - smooth**2)
    noise[0] /= new
    noise = lfilter([new], [1, -smooth], noise, axis=0)
    signal = 0.01 * (noise[:, :-1] + noise[:, -1:] * rng.uniform(0.5, 1.5, parcels))
    signal += 0.02 * np.linspace(-1, 1, volumes)[:, None] * rng.standard_normal(parcels)
    signal[:2] += [[0.3], [0.1]]
    for volume in rng.choice(np.arange(5, volumes), spikes, replace=False):
        signal[volume] -= rng.uniform(0.02, 0.1) * rng.uniform(0.5, 1.5, parcels)
    series = level * rng.uniform(0.7, 1.3, parcels) * (1 + signal)
    return np.round(series) if integers else series


SOUND = [
    {"volumes": 80},
    {"volumes": 600},
    {"smooth": 0.0},
    {"integers": True, "level": 400.0},
    {"parcels": 4},
    {"spikes": 20},
]


@pytest.mark.parametrize("kind", SOUND, ids=str)
def test_sound_series_are_not_accused(kind):
    for seed in range(8):
        for series in (one := draw(seed, **kind), one - one.mean(axis=0), -one):
            found = find_stray(series, np.abs(series - series[0]).max(axis=1))
            assert not found.volumes.any()
            assert not found.parcels.any()
            assert gain_step(series, np.arange(len(series)) >= 2)[0] < 0.05


def test_a_table_of_the_same_recording_agrees_and_of_another_does_not():
    def measure(series, seed):
        noisy = series + np.random.default_rng(seed).normal(0, 10, series.shape)
        return noisy.mean(axis=1), np.sqrt(np.square(np.diff(noisy, axis=0, prepend=np.nan)).mean(axis=1))

    all_volumes = np.ones(T, dtype=bool)
    for seed in range(20):
        ours, same, other = measure(draw(seed), 0), measure(draw(seed), 1), measure(draw(seed + 100), 1)
        fit = compare_with_table(*ours, same, all_volumes)
        assert min(fit.global_signal, fit.dvars) > 0.6
        assert fit.lag == 0
        assert fit.level == pytest.approx(1, rel=0.01)
        foreign = compare_with_table(*ours, other, all_volumes)
        assert max(foreign.global_signal, foreign.dvars) < 0.5
        shift = seed % 5 + 1
        late = tuple(np.roll(values, shift) for values in same)
        assert compare_with_table(*ours, late, all_volumes).lag == shift


def test_spikes_are_those_of_the_series_where_they_are_few():
    table, usable = draw(5, spikes=12).mean(axis=1), np.arange(T) >= 5
    assert not find_spikes(1.7 * table, table).any(), "motion is in both"
    spiked = table.copy()
    spiked[[20, 50, 90]] *= 1.08, 0.9, 1.15
    assert np.flatnonzero(find_spikes(spiked, table)).tolist() == [20, 50, 90]
    spiked[usable & (np.arange(T) % 4 == 0)] *= 1.15
    assert not find_spikes(spiked, table).any(), "a table of another recording, or a gain"
    assert not find_spikes(spiked, np.full(T, np.nan)).any()


def test_copies_are_found_wherever_they_are_and_the_first_is_kept():
    series = draw(0)
    series[[50, 51, 120]] = series[20] + 1e-9
    assert np.flatnonzero(find_copies(series)).tolist() == [50, 51, 120]
    assert find_copies(np.ones((5, 3))).tolist() == [False, True, True, True, True]


def test_each_fault_is_of_its_kind():
    series = draw(1)
    series[30] = 0.0
    series[31] = series[10]
    series[40, 5] *= 3
    series[60] *= 1.5
    series[80:, 7] = 0.1 * series[80:, 7]
    series[100:130, 8] = series[100, 8]
    farthest = np.full(T, 500.0)
    farthest[90] = 1e7
    found = find_stray(series, farthest)
    assert np.flatnonzero(found.empty).tolist() == [30]
    assert np.flatnonzero(found.copied).tolist() == [31]
    assert np.flatnonzero(found.stray).tolist() == [40, 60, 90]
    assert np.flatnonzero(found.parcels).tolist() == [7, 8]


@pytest.mark.parametrize("size", [-0.06, 0.3])
def test_a_gain_is_measured_where_it_changes(size):
    series = draw(2, spikes=0)
    series[70:] *= 1 + size
    found, volume = gain_step(series, np.ones(T, dtype=bool))
    assert volume == 70
    assert found == pytest.approx(abs(size), abs=0.03)


@pytest.mark.parametrize(("volumes", "time"), [(300, 2.0), (1200, 0.72)])
def test_cosines_know_the_repetition_time(volumes, time):
    """The columns as nipype's ``_cosine_drift`` makes them, of a table that was cut."""
    order = max(int(2 * volumes * time / 128), 1)
    steps = np.arange(volumes) + 0.5
    cosines = np.sqrt(2 / volumes) * np.cos(np.pi / volumes * np.outer(steps, np.arange(1, order)))
    shortest, longest = times_of_cosines(cosines[:40])
    assert shortest <= time < longest
    assert not shortest <= time / 2 < longest
    assert not shortest <= time * 2 < longest
