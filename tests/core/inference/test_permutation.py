"""P of permutations, and false discoveries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.core.differences import false_discovery_rates, permutation_p_value


def test_p_value_counts_the_observed_statistic_and_ties():
    null = np.array([0.1, 0.2, 0.3, -0.4])
    assert permutation_p_value(0.5, null) == 1 / 5
    assert permutation_p_value(0.3, null) == 2 / 5
    assert permutation_p_value(0.1 + 0.2, null) == 2 / 5
    with pytest.raises(ValueError, match="not a number"):
        permutation_p_value(np.nan, null)


def test_false_discovery_rates_are_those_of_scipy_and_missing_ones_stay_so():
    rng = np.random.default_rng(0)
    for p in (rng.random(500) ** 2, np.round(rng.random(500), 1), np.array([0.2])):
        np.testing.assert_array_equal(false_discovery_rates(p), stats.false_discovery_control(p))
        gaps = np.insert(p, [0, len(p)], np.nan)
        np.testing.assert_array_equal(false_discovery_rates(gaps)[1:-1], stats.false_discovery_control(p))
        assert np.isnan(false_discovery_rates(gaps)[[0, -1]]).all()
    assert np.isnan(false_discovery_rates(np.full(3, np.nan))).all()
