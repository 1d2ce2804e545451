"""Rates and ratios of normal scores have closed forms; few pairs promise little."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.slices.clinic.equations import error_rates, verify

RNG = np.random.default_rng(0)
SAME, DIFFERENT = RNG.normal(4, 1, 4000), RNG.normal(0, 1, 20000)


@pytest.mark.parametrize("score", [1.0, 2.0, 3.0])
def test_normal_scores(score):
    found = verify(score, SAME, DIFFERENT)
    assert found.false_match == pytest.approx(stats.norm.sf(score), rel=0.2)
    assert found.false_non_match == pytest.approx(stats.norm.cdf(score - 4), rel=0.25, abs=5e-4)
    assert np.log(found.likelihood_ratio) == pytest.approx(4 * score - 8, abs=0.5)


def test_the_ratio_stays_within_what_the_pairs_can_show():
    assert verify(40.0, SAME[:50], DIFFERENT[:100]).likelihood_ratio <= 101
    assert verify(-40.0, SAME[:50], DIFFERENT[:100]).likelihood_ratio >= 1 / 51
    assert np.isnan(verify(1.0, SAME[:5], DIFFERENT).likelihood_ratio)
    assert verify(100.0, SAME, DIFFERENT).false_match == 1 / 20001


def test_error_rates_are_those_of_the_thresholds():
    rows = np.array(list(error_rates(SAME, DIFFERENT)))
    assert len(rows) == 4
    for threshold, matches, misses in rows:
        assert matches == pytest.approx(np.mean(threshold <= DIFFERENT))
        assert misses == pytest.approx(np.mean(threshold > SAME))
    np.testing.assert_allclose(rows[:3, 1], [0.001, 0.01, 0.05], atol=1e-4)
    assert rows[3, 1] == pytest.approx(rows[3, 2], abs=1e-3)
    assert rows[3, 0] == pytest.approx(2, abs=0.1)
    assert len(list(error_rates(SAME, DIFFERENT[:30]))) == 2
    assert list(error_rates([], DIFFERENT)) == []
