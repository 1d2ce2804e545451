"""Codes among values, shares of groups, rank correlations: closed forms, referees, variables as people have them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.core.sentinel_codes import (
    group_share,
    rank_association,
    repeated_extremes,
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


def test_what_is_not_defined_is_nan():
    assert np.isnan(group_share([1.0, 2.0, 3.0], ["a", "a", "a"]).p)
    assert np.isnan(group_share([2.0, 2.0, 2.0], ["a", "b", "a"]).p)
    assert np.isnan(rank_association([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]).p)


def test_ranks_over_those_who_have_both():
    one, two = np.array([1, 2, 3, 4, 9, np.nan]), np.array([10, 20, 25, 80, 81, 3.0])
    found = rank_association(one, two)
    assert (found.size, found.n) == (pytest.approx(1), 5)
