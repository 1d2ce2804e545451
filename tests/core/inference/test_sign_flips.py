"""Paired tests over people: all flips by hand, agreement with McNemar where that holds, type I error."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fcpower_bids.core.differences import exact_mcnemar, largest_of_permutations, sign_flip_p_value, sum_by_block


@pytest.mark.parametrize(
    "values", [[1, 1, 1, -1], [2, 1, 0, -1, 2], [0.5, 1 / 3, -1, 1, 2], [1.0], [0.1234567, 2.7, -1]]
)
def test_all_flips_by_hand(values):
    sums = [abs(np.dot(signs, values)) for signs in product((-1, 1), repeat=len(values))]
    exact = np.mean(np.array(sums) >= abs(sum(values)) - 1e-9)
    assert sign_flip_p_value(values, n_flips=40_000) == pytest.approx(exact, abs=0.01 if 0.1234567 in values else 1e-12)


def test_one_search_each_is_mcnemar():
    assert sign_flip_p_value([1] * 9 + [-1] * 2 + [0] * 30) == pytest.approx(exact_mcnemar(9, 2))


def test_a_person_who_is_found_twice_counts_once():
    searches = [1] * 24
    people = np.repeat(np.arange(12), 2)
    assert sign_flip_p_value(sum_by_block(searches, people)) == pytest.approx(2 * 0.5**12)
    assert exact_mcnemar(24, 0) == pytest.approx(2 * 0.5**24)


def test_nothing_and_no_difference():
    assert np.isnan(sign_flip_p_value([]))
    assert sign_flip_p_value([0.0, 0.0]) == 1
    assert sign_flip_p_value([3.0, 1.0]) == sign_flip_p_value([-3.0, -1.0])
    with pytest.raises(ValueError, match="not a number"):
        sign_flip_p_value([1.0, np.nan])


def test_type_one_error():
    rng = np.random.default_rng(0)
    p_values = [sign_flip_p_value(rng.standard_normal(20), n_flips=199, seed=i) for i in range(400)]
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.085


def test_mcnemar_rejects_too_often_where_the_searches_of_a_person_go_together():
    """200 draws of a true null: both searches of a person go together in three of four people, and paired errors."""
    rng, people, rejected = np.random.default_rng(0), 40, np.zeros(3)
    for draw in range(200):
        first = rng.choice([-1, 0, 1], people, p=[0.15, 0.7, 0.15])
        second = np.where(rng.random(people) < 0.75, first, rng.choice([-1, 0, 1], people, p=[0.15, 0.7, 0.15]))
        searches = np.concatenate([first, second])
        net = sum_by_block(searches, np.tile(np.arange(people), 2))
        errors = rng.standard_normal(people) * rng.gamma(1, 1, people)
        p_values = [
            exact_mcnemar(int((searches > 0).sum()), int((searches < 0).sum())),
            sign_flip_p_value(net),
            sign_flip_p_value(errors, n_flips=199, seed=draw),
        ]
        rejected += np.less(p_values, 0.05)
    mcnemar, flips_of_people, flips_of_errors = rejected / 200
    assert mcnemar > 0.07
    assert flips_of_people < 0.08
    assert 0.01 < flips_of_errors < 0.09


def test_the_largest_of_each_permutation():
    rng = np.random.default_rng(0)
    null = rng.standard_normal((99, 3))
    observed = np.array([0.4, 2.2, np.nan])
    p_values, needed = largest_of_permutations(observed, null)
    largest = null.max(axis=1)
    assert p_values[:2] == pytest.approx([(1 + (largest >= value).sum()) / 100 for value in observed[:2]])
    assert np.isnan(p_values[2])
    assert largest_of_permutations([needed + 1e-9], null)[0][0] < 0.05 <= largest_of_permutations([needed], null)[0][0]
    assert largest_of_permutations([9.0], null[:18])[1] == np.inf
    assert np.isfinite(largest_of_permutations([9.0], null[:20])[1])
