"""Groups that a kernel tells apart are recognised, others are not more often than chance allows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import PredefinedSplit

from fcpower_bids.core.duplicates import PENALTY, compare_sources, recognise_groups

PEOPLE = 60


def kernel_of(features):
    return np.corrcoef(features)


def test_groups_of_chance_are_seldom_told():
    shares, p_values = [], []
    for seed in range(60):
        rng = np.random.default_rng((1, seed))
        features = rng.standard_normal((PEOPLE, 100))
        found = recognise_groups(kernel_of(features), rng.integers(0, 3, PEOPLE), n_permutations=99, seed=seed)
        shares.append(found.share)
        p_values.append(found.p)
    assert np.mean(shares) == pytest.approx(1 / 3, abs=0.04)
    assert np.mean(np.array(p_values) <= 0.05) <= 0.13


def test_the_share_is_that_of_ridge_on_centred_features():
    rng = np.random.default_rng(2)
    groups = rng.integers(0, 2, PEOPLE)
    features = rng.standard_normal((PEOPLE, 30)) + groups[:, None] * rng.standard_normal(30)
    features -= features.mean(axis=0)
    folds = np.random.default_rng(7).permutation(np.arange(PEOPLE) % 5)
    members = np.eye(2)[groups]
    sizes = members.sum(axis=0)
    labels = (members - sizes / PEOPLE) / np.sqrt(sizes)
    penalty = PENALTY * np.sum(features**2) / PEOPLE
    correct = np.zeros(PEOPLE)
    for train, test in PredefinedSplit(folds).split():
        model = Ridge(alpha=penalty, fit_intercept=False).fit(features[train], labels[train])
        correct[test] = model.predict(features[test]).argmax(axis=1) == groups[test]
    expected = np.mean([correct[groups == group].mean() for group in (0, 1)])
    assert recognise_groups(features @ features.T, groups, 9, seed=7).share == pytest.approx(expected)


def test_small_groups_are_left_out():
    rng = np.random.default_rng(3)
    groups = ["a"] * 30 + ["b"] * 26 + ["c"] * 4
    found = recognise_groups(kernel_of(rng.standard_normal((PEOPLE, 20))), groups, 9)
    assert (found.n, found.n_groups) == (56, 2)
    assert np.isnan(recognise_groups(np.eye(10), ["a"] * 9 + ["b"], 9).p)


def test_a_change_that_all_people_share_is_found_with_its_size():
    rng = np.random.default_rng(2)
    people, size = 30, 4000
    scans = rng.standard_normal((people, 1, size)) + 0.5 * rng.standard_normal((people, 2, size))
    scans[:, 1] += 0.4 * rng.standard_normal(size)
    features = scans.reshape(2 * people, size)
    first, second = np.arange(0, 2 * people, 2), np.arange(1, 2 * people, 2)
    found = compare_sources(features @ features.T, first, second)
    changes = scans[:, 1] - scans[:, 0]
    lengths = (changes**2).sum(axis=1)
    common = np.mean([changes[i] @ changes[j] for i in range(people) for j in range(people) if i != j])
    assert found.share == pytest.approx(common / lengths.mean(), rel=1e-10)
    assert found.share == pytest.approx(0.16 / (0.16 + 2 * 0.25), abs=0.03)
    assert (found.p, found.n) == (pytest.approx(0.001), people)


def test_changes_that_have_nothing_in_common_are_seldom_found():
    p_values = []
    for seed in range(200):
        features = np.random.default_rng((3, seed)).standard_normal((24, 60))
        p_values.append(compare_sources(features @ features.T, range(12), range(12, 24), 199, seed).p)
    assert 0.01 <= np.mean(np.array(p_values) <= 0.05) <= 0.10
    assert np.isnan(compare_sources(np.ones((4, 4)), [0, 1], [2, 3]).p)
