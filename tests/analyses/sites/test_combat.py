"""ComBat against its published equations, and what a fold may expect of it."""

from __future__ import annotations

import numpy as np

from fcpower_bids.analyses.sites import HarmonisedFeatures, fit_combat


def draw(n=120, n_edges=200, seed=0):
    """Features with a shift and a spread of each of three sites, and the age that they follow."""
    rng = np.random.default_rng(seed)
    sites = np.array(["a", "b", "c"])[rng.permutation(np.arange(n) % 3)]
    age = rng.uniform(20, 80, n)
    place = np.searchsorted(["a", "b", "c"], sites)
    shift, spread = rng.normal(0, 1, (3, n_edges)), rng.uniform(0.5, 2, (3, n_edges))
    clean = 0.02 * age[:, None] * rng.standard_normal(n_edges) + rng.standard_normal((n, n_edges))
    return shift[place] + spread[place] * clean, sites


def harmonise(features, sites, train):
    return HarmonisedFeatures(features, fit_combat(features, sites, train), sites)[:]


def test_it_solves_the_published_equations():
    """Johnson et al. 2007, equations of the posterior means, from the data of one site and one feature at a time."""
    features, sites = draw()
    train = np.arange(90)
    combat = fit_combat(features, sites, train)
    standard = (features[train] - combat.mean) / combat.scale
    for row, site in enumerate(combat.sites):
        own = standard[sites[train] == site]
        n, raw, variance = len(own), own.mean(axis=0), own.var(axis=0, ddof=1)
        tau, m, v = raw.var(ddof=1), variance.mean(), variance.var(ddof=1)
        shape, rate = (2 * v + m**2) / v, (m * v + m**3) / v
        gamma, delta = combat.shift[row], combat.spread[row] ** 2
        expected = (n * tau * raw + delta * raw.mean()) / (n * tau + delta)
        np.testing.assert_allclose(gamma, expected, atol=1e-8)
        squares = ((own - gamma) ** 2).sum(axis=0)
        np.testing.assert_allclose(delta, (rate + squares / 2) / (n / 2 + shape - 1), rtol=1e-8)


def test_nobody_else_has_any_influence():
    features, sites = draw()
    train = np.arange(80)
    spoilt = features.copy()
    spoilt[80:] = 1e3
    one, other = (harmonise(each, sites, train)[:80] for each in (features, spoilt))
    np.testing.assert_array_equal(one, other)


def test_people_of_a_site_that_nobody_trained_stay_as_they_are():
    features, sites = draw()
    train = np.flatnonzero(sites != "b")
    got = harmonise(features, sites, train)
    np.testing.assert_array_equal(got[sites == "b"], features[sites == "b"])
    assert np.abs(got[sites == "a"] - features[sites == "a"]).max() > 0.1


def test_one_site_is_not_adjusted_to_itself():
    features, sites = draw()
    np.testing.assert_array_equal(harmonise(features, sites, np.flatnonzero(sites == "a")), features)


def test_blocks_are_those_of_the_whole():
    features, sites = draw(60, 9000)
    combat = fit_combat(features, sites, np.arange(45))
    lazy = HarmonisedFeatures(features, combat, sites)
    np.testing.assert_array_equal(np.hstack([lazy[:, :4096], lazy[:, 4096:]]), lazy[:])
    np.testing.assert_array_equal(lazy[3:8], lazy[:][3:8])


def test_a_constant_feature_stays():
    features, sites = draw()
    features[:, 5] = 0.25
    np.testing.assert_allclose(harmonise(features, sites, np.arange(90))[:, 5], 0.25, atol=1e-9)
