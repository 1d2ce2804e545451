"""Effect sizes and their intervals against scipy, and how often the intervals cover the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.analyses.edge_model import EdgeModel, cohens_d, comparable_t, partial_correlation


def test_without_covariates_it_is_pearsons_r_with_fishers_interval():
    x, y = np.random.default_rng(0).standard_normal((2, 30))
    model = EdgeModel(x, np.zeros((30, 0)))
    r, low, high = partial_correlation(model.statistic(model.residuals(y[:, None])), model)
    expected = stats.pearsonr(x, y)
    assert r.item() == pytest.approx(expected.statistic)
    assert (low.item(), high.item()) == pytest.approx(tuple(expected.confidence_interval()))


def test_d_is_the_difference_in_standard_deviations_and_its_limits_have_their_probability():
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal(12) + 1, rng.standard_normal(17)
    model = EdgeModel(np.repeat([1.0, 0.0], [12, 17]), np.zeros((29, 0)))
    found = model.statistic(model.residuals(np.concatenate([one, other])[:, None]))
    d, low, high = cohens_d(found, model)
    pooled = np.sqrt((one.var(ddof=1) * 11 + other.var(ddof=1) * 16) / 27)
    assert d.item() == pytest.approx((one.mean() - other.mean()) / pooled)
    assert stats.nct.cdf(found.t, model.df, low * model.length).item() == pytest.approx(0.975, abs=1e-6)
    assert stats.nct.cdf(found.t, model.df, high * model.length).item() == pytest.approx(0.025, abs=1e-6)


def test_intervals_given_a_covariate_cover_the_truth():
    """2,000 draws of 25 people: partial r .4, and d .8, with a covariate that goes with both."""
    rng = np.random.default_rng(0)
    n, draws = 25, 2000
    covariate = rng.standard_normal(n)
    group = (rng.standard_normal(n) + covariate > 0).astype(float)
    model = EdgeModel(group, covariate[:, None])
    edges = 0.8 * group[:, None] + covariate[:, None] + rng.standard_normal((n, draws))
    _, low, high = cohens_d(model.statistic(model.residuals(edges)), model)
    assert 0.935 < np.mean((low < 0.8) & (high > 0.8)) < 0.965
    hits = []
    for _ in range(draws):
        shared, own, other = rng.standard_normal((3, n))
        x, y = shared + own, shared + 0.4 * own + np.sqrt(1 - 0.16) * other
        r_model = EdgeModel(x, shared[:, None])
        _, low, high = partial_correlation(r_model.statistic(r_model.residuals(y[:, None])), r_model)
        hits.append(low.item() < 0.4 < high.item())
    assert 0.935 < np.mean(hits) < 0.965


def test_intervals_cover_the_truth_where_classes_and_sites_are_not_equally_spread():
    """Twelve patients thrice as spread as forty controls: Welch's interval of d covers; that of equal variances not."""
    rng, draws = np.random.default_rng(0), 2000
    group = (np.arange(52) < 12).astype(float)
    scale = np.where(group == 1, 3.0, 1.0)[:, None]
    edges = scale * rng.standard_normal((52, draws))
    covered = []
    for groups in (None, group):
        model = EdgeModel(group, np.zeros((52, 0)), groups=groups)
        for effect in (cohens_d, partial_correlation):
            found = model.statistic(model.residuals(edges))
            _, low, high = effect(found, model)
            covered.append(np.mean((low < 0) & (high > 0)))
    assert max(covered[:2]) < 0.85
    assert min(covered[2:]) > 0.935
    assert max(covered[2:]) < 0.965


def test_t_at_other_degrees_of_freedom_is_as_far_in_the_tail():
    t, df = (each.ravel() for each in np.meshgrid(np.linspace(-6, 6, 25), [5.0, 20, 60]))
    moved = comparable_t(t, df, 80)
    np.testing.assert_array_equal(np.sign(moved), np.sign(t))
    np.testing.assert_allclose(stats.t.isf(stats.t.sf(np.abs(t), df), 80), np.abs(moved), atol=0.03)
    np.testing.assert_allclose(comparable_t(t, np.full(t.shape, 80.0), 80), t, atol=1e-9)
