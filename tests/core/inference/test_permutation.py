"""Permutations against the definition of exchangeability blocks and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.core.inference.permutation import permutation_p_value, permutations, sign_flips

FAMILIES = np.array(["a", "b", "a", "c", "c", "d", "e", "e", "e", "f"])


def test_p_value_counts_the_observed_statistic_and_ties():
    null = np.array([0.1, 0.2, 0.3, -0.4])
    assert permutation_p_value(0.5, null) == 1 / 5
    assert permutation_p_value(0.3, null) == 2 / 5
    assert permutation_p_value(0.1 + 0.2, null) == 2 / 5
    assert permutation_p_value(0.35, null, "two-sided") == 2 / 5
    assert permutation_p_value(-0.35, null, "less") == 2 / 5
    with pytest.raises(ValueError, match="not a number"):
        permutation_p_value(np.nan, null)
    with pytest.raises(ValueError, match="no alternative"):
        permutation_p_value(0.1, null, "more")


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["free", "within", "whole"]))
def test_every_scheme_gives_an_order_of_all_subjects_that_respects_the_families(seed, scheme):
    (order,) = permutations(10, 1, seed, FAMILIES, scheme)
    assert sorted(order) == list(range(10))
    if scheme == "within":
        np.testing.assert_array_equal(FAMILIES[order], FAMILIES)
    if scheme == "whole":
        for family in np.unique(FAMILIES):
            came_from = order[family == FAMILIES]
            assert len(set(FAMILIES[came_from])) == 1
            assert (FAMILIES[came_from[0]] == FAMILIES).sum() == len(came_from)
            assert (np.diff(came_from) > 0).all()


def test_every_order_that_the_families_allow_is_equally_likely():
    families = ["a", "a", "b", "b", "c", "c"]
    drawn = [tuple(order[::2] // 2) for order in permutations(6, 3000, 0, families, "whole")]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert counts.min() > 420
    assert len({tuple(order) for order in permutations(6, 500, 0, families, "within")}) == 8


def test_seeds_decide_and_impossible_requests_are_refused():
    first, again, other = (list(map(tuple, permutations(8, 5, seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) == 5
    with pytest.raises(ValueError, match="no exchange"):
        permutations(3, 1, 0, ["a", "b", "b"], "whole")
    with pytest.raises(ValueError, match="no exchange"):
        permutations(3, 1, 0, ["a", "b", "c"], "within")
    with pytest.raises(ValueError, match="no permutation scheme"):
        permutations(3, 1, 0, scheme="twins")
    with pytest.raises(ValueError, match="family of each of the 3"):
        permutations(3, 1, 0, ["a", "b"], "within")


def test_signs_are_shared_by_a_family_and_balanced():
    flips = np.stack(list(sign_flips(10, 2000, 3, FAMILIES)))
    assert set(flips.ravel()) == {-1.0, 1.0}
    np.testing.assert_array_equal(flips[:, 6], flips[:, 8])
    assert np.abs(flips.mean(axis=0)).max() < 0.1
    assert abs((flips[:, 0] * flips[:, 1]).mean()) < 0.1
    assert len({tuple(each) for each in sign_flips(4, 300, 0)}) == 16


def test_whole_families_hold_the_level_where_free_permutation_does_not():
    rng = np.random.default_rng(4)
    families = np.repeat(np.arange(15), 4)
    rejected = {"free": 0, "whole": 0}
    for trial in range(120):
        x, y = rng.standard_normal((2, 15))[:, families] + 0.3 * rng.standard_normal((2, 60))
        x, y = x - x.mean(), y - y.mean()
        for scheme in rejected:
            null = [x @ y[order] for order in permutations(60, 99, trial, families, scheme)]
            rejected[scheme] += permutation_p_value(x @ y, null, "two-sided") <= 0.05
    assert rejected["whole"] / 120 < 0.11
    assert rejected["free"] / 120 > 0.2
