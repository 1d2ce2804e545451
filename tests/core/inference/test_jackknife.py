"""The jackknife of a mean is the textbook's t limit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.pretrain.judgement import jackknife_limit


def test_the_limit_of_a_mean_is_that_of_the_t_test():
    values = np.random.default_rng(0).standard_normal(12)
    without = [np.delete(values, i).mean() for i in range(12)]
    low = stats.ttest_1samp(values, 0, alternative="greater").confidence_interval(0.95).low
    assert jackknife_limit(values.mean(), without, 0.95) == pytest.approx(low)


def test_where_nobody_matters_the_limit_is_the_estimate():
    assert jackknife_limit(0.3, [0.3] * 6, 0.95) == 0.3
