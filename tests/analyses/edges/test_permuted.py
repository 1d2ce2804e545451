"""Permutation tests of all edges against loops by hand, nilearn, and the network-based statistic of bctpy."""

from __future__ import annotations

import json

import networkx
import numpy as np
import pytest
from nilearn.mass_univariate import permuted_ols
from scipy import stats

from fcpower_bids.analyses import edge_model as permuted
from fcpower_bids.analyses.edge_model import EdgeModel, find_components, permute_edges
from fcpower_bids.core.regression.targets import permuted_rows

N, PARCELS, THRESHOLD = 30, 15, 2.0
UPPER = np.triu_indices(PARCELS, 1)


@pytest.fixture(scope="module")
def data():
    """Edges of which the first twelve go with the target."""
    rng = np.random.default_rng(1)
    target, covariates = rng.standard_normal(N), rng.standard_normal((N, 1))
    edges = rng.standard_normal((N, UPPER[0].size)) + covariates
    edges[:, :12] += 0.8 * target[:, None]
    return target, covariates, edges


@pytest.fixture(scope="module")
def tests(data):
    target, covariates, edges = data
    orders = permuted_rows(N, 300, 0)
    model = EdgeModel(target, covariates)
    return permute_edges(edges, np.arange(N), model, orders, THRESHOLD), model, orders


def networks_by_hand(t):
    """Extents and intensities of the networks of stronger, then of weaker edges, by networkx."""
    found = []
    for sign in (1, -1):
        graph = networkx.Graph()
        for i, j, value in zip(*UPPER, sign * t, strict=True):
            if value > THRESHOLD:
                graph.add_edge(i, j, excess=value - THRESHOLD)
        for each in networkx.connected_components(graph):
            part = graph.subgraph(each)
            found.append((part.number_of_edges(), part.size("excess")))
    return np.array(sorted(found)).reshape(-1, 2)


def test_networks_are_those_of_networkx_in_the_data_and_in_every_permutation(data, tests):
    found, model, orders = tests
    own = networks_by_hand(found.t)
    ours = np.column_stack([found.components.extent, found.components.intensity])
    np.testing.assert_allclose(np.array(sorted(map(tuple, ours))), own)
    permuted_t = model.permuted_t(model.residuals(data[2]), orders)
    np.testing.assert_allclose(found.inflation, np.sqrt((permuted_t**2).mean(axis=0) * (model.df - 2) / model.df))
    null = [networks_by_hand(t) for t in permuted_t[:60]]
    largest = np.array([each.max(axis=0, initial=0) for each in null])
    np.testing.assert_allclose(np.column_stack([found.extents, found.intensities])[:60], largest)
    extent, intensity = found.p_components()
    assert extent.min() < 0.01
    best = int(found.components.intensity.argmax())
    size = found.components.intensity[best]
    assert intensity[best] == pytest.approx((1 + (found.intensities >= size).sum()) / 301)


def test_blocks_and_their_memory_change_nothing(data, tests, monkeypatch):
    found, model, orders = tests
    monkeypatch.setattr(permuted, "SMALLEST_BLOCK", 7)
    monkeypatch.setattr(permuted, "ORDERS", 64)
    again = permute_edges(data[2], np.arange(N), model, orders, THRESHOLD, memory=1)
    for name in ("t", "p_permutation", "p_family_wise", "q", "largest", "extents", "intensities"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name), rtol=1e-9, err_msg=name)
    assert again.above.tolist() == found.above.tolist()


def test_nilearn_finds_the_same_t_and_the_same_null(data):
    target, covariates, edges = data
    theirs = permuted_ols(target, edges, covariates, n_perm=1000, random_state=0, output_type="dict")
    model = EdgeModel(target, covariates)
    ours = permute_edges(edges, np.arange(N), model, permuted_rows(N, 1000, 1), THRESHOLD)
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
    found = find_components(
        np.zeros(above.size, dtype=int), upper[0][above], upper[1][above], t[above], groups[0].shape[1]
    )
    assert sorted(found.extent) == sorted(expected["n_edges"])
    null = []
    for each in model.permuted_t(model.residuals(edges), permuted_rows(len(target), 1000, 0)):
        up = np.flatnonzero(each > float(threshold))
        drawn = find_components(np.zeros(up.size, dtype=int), upper[0][up], upper[1][up], each[up], len(groups[0][0]))
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


def test_ratios_of_variances_are_those_of_the_sample_in_whatever_blocks_edges_are_read(data, monkeypatch):
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
