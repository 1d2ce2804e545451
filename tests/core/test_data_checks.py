"""Scans too much alike, shares of groups, and series that cannot be signal: by hand, referees, planted faults."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from fcpower_bids.core.data_checks import (
    aligned_correlation,
    group_share,
    repeated_extremes,
)
from fcpower_bids.core.plausibility import (
    find_copies,
    find_stray,
    gain_step,
    times_of_cosines,
)


def test_the_correlation_by_hand():
    rng = np.random.default_rng(1)
    one, two = rng.standard_normal((12, 3)), rng.standard_normal((9, 3))
    a, b = ((each - each.mean(axis=0)) / each.std(axis=0) for each in (one, two))
    best = -1.0
    for shift in range(-8, 12):
        rows = [(i, i - shift) for i in range(12) if 0 <= i - shift < 9]
        if len(rows) >= 4.5:
            best = max(best, float(np.mean([a[i] * b[j] for i, j in rows])))
    assert aligned_correlation(one, two) == pytest.approx(best)


SOUND = {
    "ages": lambda rng: rng.integers(18, 80, 80),
    "normal": lambda rng: rng.standard_normal(80),
    "a scale of five": lambda rng: rng.integers(1, 6, 80),
    "two classes": lambda rng: rng.integers(0, 2, 80),
    "counts": lambda rng: rng.negative_binomial(1, 0.1, 80),
    "zeros and amounts": lambda rng: np.where(rng.random(80) < 0.5, 0, rng.integers(1, 30, 80)),
    "a ceiling": lambda rng: np.minimum(rng.normal(27, 3, 80).round(), 30),
    "differences": lambda rng: rng.integers(-9, 10, 80),
    "IQ": lambda rng: rng.normal(100, 15, 80).round(),
    "incomes": lambda rng: np.exp(rng.normal(10, 1, 80)).round(-3),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_variables_are_not_accused(name):
    assert sum(bool(repeated_extremes(SOUND[name](np.random.default_rng(seed)))) for seed in range(100)) <= 1


def test_the_share_between_groups_and_its_test():
    rng = np.random.default_rng(0)
    values, groups = rng.standard_normal(50), rng.integers(0, 4, 50).astype(str)
    values[3] = np.nan
    known = np.isfinite(values)
    parts = [values[known & (groups == group)] for group in np.unique(groups)]
    found = group_share(values, groups)
    assert found.p == pytest.approx(stats.f_oneway(*parts).pvalue)
    whole = np.concatenate(parts)
    between = sum(len(part) * (part.mean() - whole.mean()) ** 2 for part in parts)
    assert found.size == pytest.approx(between / ((whole - whole.mean()) ** 2).sum())
    assert found.n == 49
    assert group_share([1, 1, 2, 2.0], list("aabb")).p == 0


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


PLAUSIBILITY_SOUND = [
    {"volumes": 80},
    {"volumes": 600},
    {"smooth": 0.0},
    {"integers": True, "level": 400.0},
    {"parcels": 4},
    {"spikes": 20},
]


@pytest.mark.parametrize("kind", PLAUSIBILITY_SOUND, ids=str)
def test_sound_series_are_not_accused(kind):
    for seed in range(8):
        for series in (one := draw(seed, **kind), one - one.mean(axis=0), -one):
            found = find_stray(series, np.abs(series - series[0]).max(axis=1))
            assert not found.volumes.any()
            assert not found.parcels.any()
            assert gain_step(series, np.arange(len(series)) >= 2)[0] < 0.05


def test_each_fault_is_of_its_kind():
    series = draw(1)
    series[30] = 0.0
    series[[31, 32]] = series[10] + 1e-9
    series[40, 5] *= 3
    series[60] *= 1.5
    series[80:, 7] = 0.1 * series[80:, 7]
    series[100:130, 8] = series[100, 8]
    farthest = np.full(T, 500.0)
    farthest[90] = 1e7
    found = find_stray(series, farthest)
    assert np.flatnonzero(found.empty).tolist() == [30]
    assert np.flatnonzero(found.copied).tolist() == [31, 32]
    assert np.flatnonzero(found.stray).tolist() == [40, 60, 90]
    assert np.flatnonzero(found.parcels).tolist() == [7, 8]
    assert find_copies(np.ones((5, 3))).tolist() == [False, True, True, True, True]


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
