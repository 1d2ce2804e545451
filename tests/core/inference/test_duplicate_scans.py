"""Scans that are too much alike: scores by hand, invariances, planted copies and swaps, real people."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core import duplicates as duplicate_scans
from fcpower_bids.core.duplicates import (
    PairScores,
    aligned_correlation,
    median_of_parts,
    misnamed_scans,
    strange_pairs,
    swapped_scans,
)
from fcpower_bids.ondisk import ScratchRows


def kernel_of(n, seed=0, own=0.6):
    """Kernel of n people with two scans each, whose features share a part; persons; sessions."""
    rng = np.random.default_rng(seed)
    trait = np.repeat(rng.standard_normal((n, 500)), 2, axis=0)
    kernel = np.corrcoef(own * trait + (1 - own**2) ** 0.5 * rng.standard_normal((2 * n, 500)))
    return kernel, np.repeat([f"p{i}" for i in range(n)], 2), np.tile(["a", "b"], n)


def test_scores_by_hand():
    kernel, persons, _ = kernel_of(8)
    mean = kernel.mean(axis=0)
    centred = np.array([[kernel[i, j] - mean[i] - mean[j] + kernel.mean() for j in range(16)] for i in range(16)])
    apart = [centred[i, j] for i in range(16) for j in range(i) if persons[i] != persons[j]]
    spread = 1.4826 * np.median(np.abs(apart - np.median(apart)))
    expected = (centred - np.median(apart)) / spread
    scores = PairScores(kernel, persons)
    np.testing.assert_allclose(scores.rows(slice(None)), expected, atol=1e-10)
    np.testing.assert_allclose(scores.own, np.diag(expected), atol=1e-10)
    assert scores.pair(3, 9).score == scores.rows(slice(3, 4))[0, 9] == scores.rows(np.array([9]))[0, 3]


def test_scores_need_four_people_and_a_spread():
    kernel, persons, sessions = kernel_of(3)
    scores = PairScores(kernel, persons)
    assert not scores.known
    assert np.isnan(scores.rows(slice(None))).all()
    assert strange_pairs(scores) == ([], [], [])
    assert swapped_scans(scores, sessions) == misnamed_scans(scores) == []
    assert not PairScores(np.eye(6), np.arange(6)).known


@pytest.mark.parametrize("n", [1, 2, 999, 1000])
def test_the_median_of_parts_is_the_median_to_the_bit(n):
    for values in (np.random.default_rng(n).standard_normal(n).clip(-8, 8), np.repeat([-8.0, 0.25, 8.0], n)):
        assert median_of_parts(lambda values=values: np.array_split(values, 7), 8.0) == np.median(values)


def test_strips_of_rows_on_disk_say_the_same(monkeypatch, tmp_path):
    kernel, persons, sessions = kernel_of(30)
    persons[[11, 21, 31]] = persons[[21, 11, 40]]  # two exchanged, one that moved
    kernel[50], kernel[:, 50] = kernel[3], kernel[:, 3]  # a copy
    kernel[50, 50] = 1
    on_disk = ScratchRows(tmp_path, kernel.shape, np.float64)
    on_disk[:] = kernel
    found = []
    for similarity, strip in ((kernel, 2**22), (on_disk, 7 * 60)):
        monkeypatch.setattr(duplicate_scans, "STRIP_NUMBERS", strip)
        scores = PairScores(similarity, persons)
        found.append((strange_pairs(scores), swapped_scans(scores, sessions), misnamed_scans(scores)))
    assert found[0] == found[1]
    assert all(len(each) for each in (found[0][0][0], found[0][1], found[0][2]))


def test_series_are_compared_at_the_best_shift():
    rng = np.random.default_rng(0)
    series = rng.standard_normal((120, 5))
    assert aligned_correlation(series, series) == pytest.approx(1)
    assert aligned_correlation(series[:80], 3 + 2 * series) == pytest.approx(1, abs=0.05)
    assert aligned_correlation(series[30:], series) == pytest.approx(1, abs=0.05)
    assert aligned_correlation(series, rng.standard_normal((110, 5))) < 0.35
    holed = series.copy()
    holed[:, 0] = np.nan
    assert aligned_correlation(holed, series) == pytest.approx(1)
    assert np.isnan(aligned_correlation(np.ones((9, 2)), series[:9, :2]))


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
