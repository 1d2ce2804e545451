"""The model of an edge, its effects and its permutations against least squares, scipy, nilearn and bctpy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from nilearn.mass_univariate import permuted_ols
from scipy import stats

from fcpower_bids.analyses import edge_model as permuted
from fcpower_bids.analyses.edge_model import (
    EdgeModel,
    cohens_d,
    comparable_t,
    find_components,
    partial_correlation,
    permute_edges,
)
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
        (np.arange(6.0), np.eye(6)[:, :4], "6 people are too few: with 4 columns of covariates and 1 mean"),
        (np.arange(4.0), np.zeros((4, 0)), "3 are needed. Add people, or leave edges out"),
        (np.arange(6.0), 3 - 2 * np.arange(6.0)[:, None], "explain the target completely"),
    ],
)
def test_what_cannot_be_asked_is_refused(target, covariates, said):
    with pytest.raises(Unfit, match=said):
        EdgeModel(target, covariates)


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


PEOPLE, PARCELS, THRESHOLD = 30, 15, 2.0
UPPER = np.triu_indices(PARCELS, 1)


@pytest.fixture(scope="module")
def planted():
    """Edges of which the first twelve go with the target."""
    rng = np.random.default_rng(1)
    target, covariates = rng.standard_normal(PEOPLE), rng.standard_normal((PEOPLE, 1))
    edges = rng.standard_normal((PEOPLE, UPPER[0].size)) + covariates
    edges[:, :12] += 0.8 * target[:, None]
    return target, covariates, edges


@pytest.fixture(scope="module")
def tests(planted):
    target, covariates, edges = planted
    orders = permuted_rows(PEOPLE, 300, 0)
    model = EdgeModel(target, covariates)
    return permute_edges(edges, np.arange(PEOPLE), model, orders, THRESHOLD), model, orders


def test_blocks_and_their_memory_change_nothing(planted, tests, monkeypatch):
    found, model, orders = tests
    null = model.permuted_t(model.residuals(planted[2]), orders)
    np.testing.assert_allclose(found.inflation, np.sqrt((null**2).mean(axis=0) * (model.df - 2) / model.df))
    monkeypatch.setattr(permuted, "SMALLEST_BLOCK", 7)
    monkeypatch.setattr(permuted, "ORDERS", 64)
    again = permute_edges(planted[2], np.arange(PEOPLE), model, orders, THRESHOLD, memory=1)
    for name in ("t", "p_permutation", "p_family_wise", "q", "largest", "extents"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name), rtol=1e-9, err_msg=name)
    assert again.above.tolist() == found.above.tolist()


def test_nilearn_finds_the_same_t_and_the_same_null(planted):
    target, covariates, edges = planted
    theirs = permuted_ols(target, edges, covariates, n_perm=1000, random_state=0, output_type="dict")
    model = EdgeModel(target, covariates)
    ours = permute_edges(edges, np.arange(PEOPLE), model, permuted_rows(PEOPLE, 1000, 1), THRESHOLD)
    np.testing.assert_allclose(ours.t, theirs["t"][0], rtol=1e-8)
    assert stats.ks_2samp(ours.largest, np.ravel(theirs["h0_max_t"])).pvalue > 0.01
    np.testing.assert_allclose(ours.p_family_wise, 10 ** -theirs["logp_max_t"][0], atol=0.06)


@pytest.mark.parametrize("threshold", ["2.5", "3.2"])
def test_networks_and_their_p_are_those_of_bctpy(shared, threshold):
    """Stronger edges alone, as the reference has them; the components exactly, p within what permutations err."""
    arrays = np.load(shared / "golden/cohort/nbs.npz")
    expected = json.loads((shared / "golden/cohort/nbs.json").read_text())["results"][f"right_{threshold}"]
    groups = [np.moveaxis(arrays[name], -1, 0) for name in ("group_a", "group_b")]
    upper = np.triu_indices(groups[0].shape[1], 1)
    edges = np.concatenate(groups)[:, upper[0], upper[1]]
    target = np.repeat([1.0, 0.0], [len(each) for each in groups])
    model = EdgeModel(target, np.zeros((len(target), 0)))
    t = model.statistic(model.residuals(edges)).t
    above = np.flatnonzero(t > float(threshold))
    found = find_components(np.zeros(above.size, dtype=int), upper[0][above], upper[1][above], groups[0].shape[1])
    assert sorted(found.extent) == sorted(expected["n_edges"])
    null = []
    for each in model.permuted_t(model.residuals(edges), permuted_rows(len(target), 1000, 0)):
        up = np.flatnonzero(each > float(threshold))
        drawn = find_components(np.zeros(up.size, dtype=int), upper[0][up], upper[1][up], len(groups[0][0]))
        null.append(drawn.extent.max(initial=0))
    largest = max(expected["n_edges"])
    theirs = np.array(expected["null"]) >= largest
    ours = np.array(null) >= largest
    assert abs(ours.mean() - theirs.mean()) < 4 * np.sqrt(2 * max(theirs.mean(), 0.002) / 1000)
    assert stats.ks_2samp(null, expected["null"]).pvalue > 0.01


@pytest.mark.parametrize("kind", ["classes", "sites", "families"])
def test_noise_is_seldom_found_where_people_differ(kind):
    """Twenty cohorts of noise: Student's t and q of its p find edges in most; false alarms stay near five in a hundred.

    Twenty patients twice as spread as eighty controls; a site twice as spread in edges and target; twins.
    """
    rng, n, hits, plain = np.random.default_rng(0), 100, [], []
    for _ in range(20):
        edges, sites, families = rng.standard_normal((n, 300)), None, None
        target = (np.arange(n) < 20).astype(float)
        groups = target
        if kind == "sites":
            groups = sites = np.arange(n) // 50
            target = rng.standard_normal(n) * (1 + 2 * sites)
        if kind == "families":
            families, groups = np.arange(n) // 2, np.zeros(n)
            target, edges = np.repeat(target[::2], 2), edges + np.repeat(edges[::2], 2, axis=0)
        edges *= (1 + groups)[:, None]
        model, orders = EdgeModel(target, np.zeros((n, 0)), sites, groups), permuted_rows(n, 99, 0, families, sites)
        found = permute_edges(edges, np.arange(n), model, orders, THRESHOLD)
        hits.append([found.p_family_wise.min() <= 0.05, found.q.min() < 0.05])
        t = EdgeModel(target, np.zeros((n, 0)), sites).statistic(model.residuals(edges)).t
        plain.append(stats.false_discovery_control(2 * stats.t.sf(np.abs(t), model.df)).min() < 0.05)
    assert np.max(np.sum(hits, axis=0)) <= 3
    assert np.sum(plain) > 6


def test_equally_spread_classes_lose_nothing_to_their_own_variances():
    """Of twenty patients and eighty controls: planted edges are found within 3 in 100 as often as by Student's t."""
    rng, n, hits = np.random.default_rng(0), 100, []
    target, orders = (np.arange(n) < 20).astype(float), permuted_rows(n, 99, 0)
    for _ in range(20):
        edges = rng.standard_normal((n, 300)) + 0.7 * rng.standard_normal((n, 5)) @ rng.standard_normal((5, 300))
        edges[:20, :10] += 1.2 * edges[:, :10].std(axis=0)
        models = [EdgeModel(target, np.zeros((n, 0)), None, groups) for groups in (None, target)]
        found = [permute_edges(edges, np.arange(n), model, orders, THRESHOLD) for model in models]
        hits.append([(each.p_family_wise[:10] <= 0.05).mean() for each in found])
    student, ours = np.mean(hits, axis=0)
    assert 0.3 < student < 0.9
    assert ours > student - 0.03


def test_ratios_of_variances_are_those_of_the_sample_in_whatever_blocks_edges_are_read(monkeypatch):
    """More edges than are compared: runs from everywhere; the blocks in which edges are read change nothing."""
    rng, n = np.random.default_rng(2), 40
    target = (np.arange(n) < 12).astype(float)
    edges = rng.standard_normal((n, permuted.SAMPLE + 201)) * (1 + target)[:, None]
    model, orders = EdgeModel(target, np.zeros((n, 0)), None, target), permuted_rows(n, 20, 0)
    whole = permute_edges(edges, np.arange(n), model, orders, THRESHOLD)
    monkeypatch.setattr(permuted, "BLOCK", 100)
    parts = permute_edges(edges, np.arange(n), model, orders, THRESHOLD)
    np.testing.assert_allclose(parts.t, whole.t, rtol=1e-9)
    np.testing.assert_allclose(parts.largest, whole.largest, rtol=1e-9)
    assert np.median(whole.statistic.df) > 0.9 * model.df
