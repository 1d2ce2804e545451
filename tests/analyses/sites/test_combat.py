"""ComBat against neuroHarmonize's numbers, and what a fold may expect of it."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.analyses.sites import HarmonisedFeatures, fit_combat
from fcpower_bids.errors import Unfit


def draw(n=120, n_edges=200, seed=0):
    """Features with a shift and a spread of each of three sites, and the age that they follow."""
    rng = np.random.default_rng(seed)
    sites = np.array(["a", "b", "c"])[rng.permutation(np.arange(n) % 3)]
    age = rng.uniform(20, 80, n)
    place = np.searchsorted(["a", "b", "c"], sites)
    shift, spread = rng.normal(0, 1, (3, n_edges)), rng.uniform(0.5, 2, (3, n_edges))
    clean = 0.02 * age[:, None] * rng.standard_normal(n_edges) + rng.standard_normal((n, n_edges))
    return shift[place] + spread[place] * clean, sites, age[:, None]


def harmonise(features, sites, kept, train):
    return HarmonisedFeatures(features, fit_combat(features, sites, kept, train), sites, kept)[:]


@pytest.mark.shared
def test_it_is_neuroharmonize(shared):
    golden = np.load(shared / "golden/cohort/combat.npz")
    features, n_train = golden["X"], int(golden["n_train"])
    kept = np.column_stack([golden["age"], golden["sex"]])
    got = harmonise(features, golden["site"], kept, np.arange(n_train))
    np.testing.assert_allclose(got[:n_train], golden["train_eb"], atol=5e-6)
    np.testing.assert_allclose(got[n_train:], golden["test_eb"], atol=5e-6)


def test_it_solves_the_published_equations():
    """Johnson et al. 2007, equations of the posterior means, from the data of one site and one feature at a time."""
    features, sites, kept = draw()
    train = np.arange(90)
    combat = fit_combat(features, sites, kept, train)
    standard = (features[train] - combat.mean - kept[train] @ combat.slopes) / combat.scale
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


def test_sites_are_gone_and_what_is_kept_is_not():
    features, sites, age = draw(600)
    train = np.arange(600)
    got = harmonise(features, sites, age, train)
    between = [np.array([each[sites == site].mean(axis=0) for site in "abc"]).std(axis=0) for each in (features, got)]
    assert np.median(between[1]) < 0.2 * np.median(between[0])
    steep = np.abs([np.corrcoef(age[:, 0], column)[0, 1] for column in got.T])
    assert steep.max() > 0.3


def test_nobody_else_has_any_influence():
    features, sites, kept = draw()
    train = np.arange(80)
    spoilt = features.copy()
    spoilt[80:] = 1e3
    one, other = (harmonise(each, sites, kept, train)[:80] for each in (features, spoilt))
    np.testing.assert_array_equal(one, other)


def test_people_of_a_site_that_nobody_trained_stay_as_they_are():
    features, sites, kept = draw()
    train = np.flatnonzero(sites != "b")
    got = harmonise(features, sites, kept, train)
    np.testing.assert_array_equal(got[sites == "b"], features[sites == "b"])
    assert np.abs(got[sites == "a"] - features[sites == "a"]).max() > 0.1


def test_one_site_is_not_adjusted_to_itself():
    features, sites, kept = draw()
    np.testing.assert_array_equal(harmonise(features, sites, kept, np.flatnonzero(sites == "a")), features)


def test_blocks_are_those_of_the_whole():
    features, sites, kept = draw(60, 9000)
    combat = fit_combat(features, sites, kept, np.arange(45))
    lazy = HarmonisedFeatures(features, combat, sites, kept)
    np.testing.assert_array_equal(np.hstack([lazy[:, :4096], lazy[:, 4096:]]), lazy[:])
    np.testing.assert_array_equal(lazy[3:8], lazy[:][3:8])


def test_a_constant_feature_stays():
    features, sites, kept = draw()
    features[:, 5] = 0.25
    np.testing.assert_allclose(harmonise(features, sites, kept, np.arange(90))[:, 5], 0.25, atol=1e-9)


def test_what_goes_with_the_sites_cannot_be_kept():
    features, sites, _ = draw()
    with pytest.raises(Unfit, match="are confounded with the sites"):
        fit_combat(features, sites, (sites == "a").astype(float)[:, None], np.arange(90))
