"""Codes among values, shares of groups, rank correlations: closed forms, referees, variables as people have them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.core.sentinel_codes import (
    group_share,
    mixed_units,
    one_class_groups,
    rank_association,
    repeated_extremes,
    repeated_inside,
)

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
    for look in (repeated_extremes, repeated_inside):
        assert sum(bool(look(SOUND[name](np.random.default_rng(seed)))) for seed in range(100)) <= 1
    sites = np.arange(80) % 4
    assert sum(bool(mixed_units(SOUND[name](np.random.default_rng(seed)), sites)) for seed in range(100)) == 0


@pytest.mark.parametrize(("factor", "found"), [(12, 12), (1 / 12, 1 / 12), (2.54, 2.54), (4, None), (1, None)])
def test_a_site_in_another_unit_is_found(factor, found):
    heights = np.random.default_rng(0).normal(170, 9, 90)
    sites = np.repeat(["a", "b", "c"], 30)
    heights[sites == "b"] *= factor
    assert mixed_units(heights, sites) == ([("b", pytest.approx(found, rel=0.05))] if found else [])


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


def test_what_is_not_defined_is_nan():
    assert np.isnan(group_share([1.0, 2.0, 3.0], ["a", "a", "a"]).p)
    assert np.isnan(group_share([2.0, 2.0, 2.0], ["a", "b", "a"]).p)
    assert np.isnan(rank_association([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]).p)


def test_ranks_over_those_who_have_both():
    one, two = np.array([1, 2, 3, 4, 9, np.nan]), np.array([10, 20, 25, 80, 81, 3.0])
    found = rank_association(one, two)
    assert (found.size, found.n) == (pytest.approx(1), 5)


def test_groups_of_one_class_by_counting():
    values = np.r_[np.ones(8), 0, 0, 0, 0, 0, 0, 1, 1]
    groups = np.repeat(["a", "b"], 8)
    chance = math.comb(10, 8) / math.comb(16, 8)  # the other class has too few people for a group of eight
    assert one_class_groups(values, groups, 2 * chance * 1.01) == ["a"]
    assert one_class_groups(values, groups, 2 * chance * 0.99) == []
    assert one_class_groups([0, 0, 1, 1.0], list("aabb"), 0.05) == []
