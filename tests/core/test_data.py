"""Scans that are too much alike, codes among values, shares of groups: by hand, referees, planted faults."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.core.duplicates import PairScores, aligned_correlation, misnamed_scans, strange_pairs, swapped_scans
from fcpower_bids.core.sentinel_codes import group_share, rank_association, repeated_extremes


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


def test_ranks_over_those_who_have_both():
    one, two = np.array([1, 2, 3, 4, 9, np.nan]), np.array([10, 20, 25, 80, 81, 3.0])
    found = rank_association(one, two)
    assert (found.size, found.n) == (pytest.approx(1), 5)
