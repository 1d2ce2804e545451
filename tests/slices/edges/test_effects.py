"""Effect sizes and their intervals against scipy, and how often the intervals cover the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.slices.edges.equations import build_model, cohens_d, partial_correlation


def test_without_covariates_it_is_pearsons_r_with_fishers_interval():
    x, y = np.random.default_rng(0).standard_normal((2, 30))
    model = build_model(x, np.zeros((30, 0)))
    r, low, high = partial_correlation(model.t(model.residuals(y[:, None])), model.df)
    expected = stats.pearsonr(x, y)
    assert r.item() == pytest.approx(expected.statistic)
    assert (low.item(), high.item()) == pytest.approx(tuple(expected.confidence_interval()))


def test_d_is_the_difference_in_standard_deviations_and_its_limits_have_their_probability():
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal(12) + 1, rng.standard_normal(17)
    model = build_model(np.repeat([1.0, 0.0], [12, 17]), np.zeros((29, 0)))
    t = model.t(model.residuals(np.concatenate([one, other])[:, None]))
    d, low, high = cohens_d(t, model.df, model.length)
    pooled = np.sqrt((one.var(ddof=1) * 11 + other.var(ddof=1) * 16) / 27)
    assert d.item() == pytest.approx((one.mean() - other.mean()) / pooled)
    assert stats.nct.cdf(t, model.df, low * model.length).item() == pytest.approx(0.975, abs=1e-6)
    assert stats.nct.cdf(t, model.df, high * model.length).item() == pytest.approx(0.025, abs=1e-6)


def test_intervals_given_a_covariate_cover_the_truth():
    """2,000 draws of 25 people: partial r .4, and d .8, with a covariate that goes with both."""
    rng = np.random.default_rng(0)
    n, draws = 25, 2000
    covariate = rng.standard_normal(n)
    group = (rng.standard_normal(n) + covariate > 0).astype(float)
    model = build_model(group, covariate[:, None])
    edges = 0.8 * group[:, None] + covariate[:, None] + rng.standard_normal((n, draws))
    _, low, high = cohens_d(model.t(model.residuals(edges)), model.df, model.length)
    assert 0.935 < np.mean((low < 0.8) & (high > 0.8)) < 0.965
    hits = []
    for _ in range(draws):
        shared, own, other = rng.standard_normal((3, n))
        x, y = shared + own, shared + 0.4 * own + np.sqrt(1 - 0.16) * other
        r_model = build_model(x, shared[:, None])
        _, low, high = partial_correlation(r_model.t(r_model.residuals(y[:, None])), r_model.df)
        hits.append(low.item() < 0.4 < high.item())
    assert 0.935 < np.mean(hits) < 0.965
