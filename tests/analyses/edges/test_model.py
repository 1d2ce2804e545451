"""The model of an edge against ordinary least squares, and its permutations against Freedman and Lane by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.analyses.edge_model import EdgeModel, comparable_t
from fcpower_bids.core.regression.targets import permuted_rows
from fcpower_bids.errors import Unfit

N, EDGES = 40, 12


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    covariates = rng.standard_normal((N, 2))
    sites = np.repeat(["one", "two", "three"], [15, 15, 10])
    target = rng.standard_normal(N) + covariates[:, 0] + (sites == "two")
    edges = rng.standard_normal((N, EDGES)) + 0.4 * target[:, None] - covariates[:, 1:]
    return target, covariates, sites, edges


def least_squares_t(design, edges):
    """t of the last column of a design, edge by edge."""
    weights = np.linalg.lstsq(design, edges, rcond=None)[0]
    left = edges - design @ weights
    df = len(design) - np.linalg.matrix_rank(design)
    variance = (left**2).sum(axis=0) / df * np.linalg.inv(design.T @ design)[-1, -1]
    return weights[-1] / np.sqrt(variance), df


def designs(target, covariates, sites):
    own = np.column_stack([sites == name for name in dict.fromkeys(sites)]).astype(float)
    reduced = np.column_stack([own, covariates])
    return reduced, np.column_stack([reduced, target])


def test_t_is_that_of_least_squares(data):
    target, covariates, sites, edges = data
    _, full = designs(*data[:3])
    expected, df = least_squares_t(full, edges)
    model = EdgeModel(target, covariates, sites)
    assert model.df == df == N - 6
    np.testing.assert_allclose(model.statistic(model.residuals(edges)).t, expected, rtol=1e-10)
    np.testing.assert_allclose(model.slopes(edges), np.linalg.lstsq(full, edges, rcond=None)[0][-1], rtol=1e-9)
    twice = EdgeModel(target, np.column_stack([covariates, covariates[:, 0] + 1, sites == "one"]), sites)
    assert twice.df == df
    np.testing.assert_allclose(twice.statistic(twice.residuals(edges)).t, expected, rtol=1e-8)


def test_with_a_variance_of_each_group_it_is_welchs_test(data):
    from scipy import stats

    edges, group = data[3] * np.where(np.arange(N) % 3 == 0, 3, 1)[:, None], np.arange(N) % 3 == 0
    model = EdgeModel(group, np.zeros((N, 0)), groups=group)
    found = model.statistic(model.residuals(edges))
    expected = stats.ttest_ind(edges[group], edges[~group], equal_var=False)
    np.testing.assert_allclose(found.t, expected.statistic, rtol=1e-10)
    np.testing.assert_allclose(found.df, expected.df, rtol=1e-10)
    assert model.freedom.tolist() == pytest.approx([(~group).sum() - 1, group.sum() - 1])


def welch_by_hand(residuals, tested, groups, freedom):
    """Slope over its standard error from the variance of each group, with Satterthwaite's degrees of freedom."""
    slope = tested @ residuals
    left = (residuals - np.outer(tested, slope)) ** 2
    parts = np.array([(tested[groups == g] ** 2).sum() * left[groups == g].sum(axis=0) for g in np.unique(groups)])
    parts /= freedom[:, None]
    return slope / np.sqrt(parts.sum(axis=0)), parts.sum(axis=0) ** 2 / (parts**2 / freedom[:, None]).sum(axis=0)


def test_welchs_t_with_covariates_and_sites_is_that_of_the_residuals_in_any_order(data):
    """Two variance groups in each site; permuted residuals are not fitted to the covariates again."""
    target, covariates, sites, edges = data
    groups = np.array([f"{site}{number % 2}" for number, site in enumerate(sites)])
    model = EdgeModel(target, covariates, sites, groups)
    full = designs(target, covariates, sites)[1]
    leverage = np.einsum("ij,ji->i", full, np.linalg.pinv(full))
    np.testing.assert_allclose(model.freedom, np.bincount(model.groups, 1 - leverage))
    residuals = model.residuals(edges)
    found = model.statistic(residuals)
    t, df = welch_by_hand(residuals, model.tested, model.groups, model.freedom)
    np.testing.assert_allclose(found.t, t, rtol=1e-9)
    np.testing.assert_allclose(found.df, df, rtol=1e-9)
    given_back = model.freedom + np.bincount(model.groups, (model.covariates**2).sum(axis=1))
    orders = permuted_rows(N, 5, 0, None, sites)
    for order, row in zip(orders, model.permuted_t(residuals, orders), strict=True):
        t, df = welch_by_hand(residuals, model.tested[order], model.groups[order], given_back)
        np.testing.assert_allclose(row, comparable_t(t, df, model.df), rtol=1e-8)


def test_groups_too_small_for_a_variance_of_their_own_share_one():
    model = EdgeModel(np.arange(20.0), np.zeros((20, 0)), groups=[0] * 10 + [1] * 5 + [2, 3, 4, 5, 6])
    assert np.bincount(model.groups).tolist() in ([10, 5, 5], [10, 10])
    assert model.freedom.min() >= 3
    assert model.freedom.sum() == pytest.approx(model.df)
    alone = EdgeModel([0.0, 0, 0, 0, 0, 1], np.zeros((6, 0)), groups=[0, 0, 0, 0, 0, 1])
    assert alone.freedom.tolist() == pytest.approx([4])


@pytest.mark.parametrize("with_sites", [False, True])
def test_permuted_t_is_that_of_freedman_and_lane(data, with_sites):
    target, covariates, sites, edges = data
    labels = sites if with_sites else np.repeat("all", N)
    reduced, full = designs(target, covariates, labels)
    model = EdgeModel(target, covariates, sites if with_sites else None)
    orders = permuted_rows(N, 5, 0, None, sites if with_sites else None)
    found = model.permuted_t(model.residuals(edges), orders)
    fitted = reduced @ np.linalg.lstsq(reduced, edges, rcond=None)[0]
    for order, t in zip(orders, found, strict=True):
        back = np.argsort(order)
        permuted = fitted + (edges - fitted)[back]
        np.testing.assert_allclose(t, least_squares_t(full, permuted)[0], rtol=1e-9)


def test_an_edge_without_variation_has_no_t_and_disturbs_no_other(data):
    target, covariates, sites, edges = data
    flat = edges.copy()
    flat[:, 3], flat[:, 5] = 0.3, 0.2 + 0.1 * covariates[:, 0]
    model = EdgeModel(target, covariates, sites)
    t = model.statistic(model.residuals(flat)).t
    assert np.isnan(t).tolist() == [i in (3, 5) for i in range(EDGES)]
    expected = model.statistic(model.residuals(edges)).t
    np.testing.assert_array_equal(np.delete(t, [3, 5]), np.delete(expected, [3, 5]))


def test_permutations_that_can_only_repeat_the_result_are_told():
    model = EdgeModel([0.0, 0, 0, 1, 1, 1], np.zeros((6, 0)))
    orders = np.array([[0, 1, 2, 3, 4, 5], [1, 0, 2, 5, 3, 4], [3, 4, 5, 0, 1, 2], [0, 1, 3, 2, 4, 5]])
    assert model.keeps_design(orders).tolist() == [True, True, True, False]
    covariate = EdgeModel([0.0, 0, 0, 1, 1, 1], np.array([[1.0], [2], [4], [1], [2], [4]]))
    assert covariate.keeps_design(orders).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("target", "covariates", "said"),
    [
        (np.ones(6), np.zeros((6, 0)), "same for everyone"),
        (
            np.arange(6.0),
            np.eye(6)[:, :4],
            "6 people are too few: with 4 columns of covariates and 1 mean",
        ),
        (np.arange(4.0), np.zeros((4, 0)), "3 are needed. Add people, or leave edges out"),
        (np.arange(6.0), 3 - 2 * np.arange(6.0)[:, None], "explain the target completely"),
    ],
)
def test_what_cannot_be_asked_is_refused(target, covariates, said):
    with pytest.raises(Unfit, match=said):
        EdgeModel(target, covariates)
