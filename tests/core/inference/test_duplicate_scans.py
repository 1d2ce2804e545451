"""Scans that are too much alike: scores by hand, invariances, planted copies and swaps, real people."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core import duplicates as duplicate_scans
from fcpower_bids.core.duplicates import (
    PairScores,
    aligned_correlation,
    misnamed_scans,
    strange_pairs,
    swapped_scans,
)


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
    np.testing.assert_allclose(scores.values, expected, atol=1e-10)
    assert scores.pair(3, 9).score == scores.values[3, 9] == scores.values[9, 3]


def test_scores_need_four_people_and_a_spread():
    kernel, persons, sessions = kernel_of(3)
    scores = PairScores(kernel, persons)
    assert not scores.known
    assert np.isnan(scores.values).all()
    assert strange_pairs(scores) == ([], [], [])
    assert swapped_scans(scores, sessions) == misnamed_scans(scores) == []
    assert not PairScores(np.eye(6), np.arange(6)).known
    assert misnamed_scans(PairScores(np.ones((1, 1)), np.array(["p"]))) == []


def test_a_copy_an_exchange_and_a_label_that_moved_are_found():
    kernel, persons, sessions = kernel_of(30)
    persons[[11, 21, 31]] = persons[[21, 11, 40]]  # two exchanged, one that moved
    kernel[50], kernel[:, 50] = kernel[3], kernel[:, 3]  # a copy
    kernel[50, 50] = 1
    scores = PairScores(kernel, persons)
    ((copy,), _, _), (swap,), moved = strange_pairs(scores), swapped_scans(scores, sessions), misnamed_scans(scores)
    assert (copy.first, copy.second) == (3, 50)
    assert sorted(swap.pairs) == [(10, 11), (20, 21)]
    assert 31 in [row for row, _ in moved]


def test_who_has_one_scan_has_no_other_name():
    kernel, persons, _ = kernel_of(30)
    persons = np.array([f"p{i}" for i in range(len(persons))])  # everybody has a scan, and somebody's likeness
    scores = PairScores(kernel, persons)
    assert scores.values[0, 1] > duplicate_scans.SWAP_SCORE
    assert misnamed_scans(scores) == []


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
