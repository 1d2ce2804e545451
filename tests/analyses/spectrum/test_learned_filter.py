"""Learned spectral filters: the kernel against its definition, gradients against differences, and a planted filter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from fcpower_bids.analyses.spectrum.learned_filters import (
    BinnedFilter,
    NetworkFilter,
    bin_eigenvalues,
    bin_weights,
    filter_grams,
    inner_loss,
    learn_filter,
)
from fcpower_bids.core.connectome.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.regression.kernels import correlation_kernel, power_features
from tests.analyses.spectral_cohorts import weak_mode_cohort

TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def cohort():
    return weak_mode_cohort(n_people=40, n_parcels=12)


@pytest.fixture(scope="module")
def spectra(cohort):
    matrices = rebuild_matrix(cohort.edges, diagonal=1.0, weighted=False)
    values, vectors = zip(*map(eigendecompose, matrices), strict=True)
    return np.stack(values), np.stack(vectors)


@pytest.fixture(scope="module")
def bins(spectra):
    return bin_eigenvalues(spectra[0], 6, TOLERANCE)


def binned_grams(spectra, bins, alpha):
    values, vectors = spectra
    return filter_grams(lambda: vectors, bin_weights(values, bins, alpha, TOLERANCE))


@pytest.fixture(scope="module")
def grams(spectra, bins):
    return binned_grams(spectra, bins, 1.0)


def test_bins_hold_equally_many_and_follow_the_eigenvalues(spectra, bins):
    counts = np.bincount(bins.members.ravel())
    assert counts.sum() == spectra[0].size
    assert np.ptp(counts) <= 1
    assert (np.diff(bins.centres) > 0).all()
    assert (np.diff(bins.members, axis=1) <= 0).all()


def test_eigenvalues_outside_the_range_are_in_no_bin(spectra):
    values = spectra[0].copy()
    values[:, -3:] = 1e-17
    members = bin_eigenvalues(values, 6, TOLERANCE).members
    assert (members[:, -3:] == -1).all()
    assert (members[:, :-3] >= 0).all()


@pytest.mark.parametrize("alpha", [0.35, 1.0])
def test_without_correction_it_is_the_kernel_of_fc_power(spectra, bins, alpha):
    expected = correlation_kernel(power_features(*spectra, alpha))
    kernel = binned_grams(spectra, bins, alpha).kernel(np.ones(6))
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=1e-12)


def test_with_corrections_it_is_the_kernel_of_the_filtered_connectomes(spectra, bins, grams):
    theta = np.random.default_rng(0).standard_normal(6)
    values, vectors = spectra
    weights = values * np.exp(theta[bins.members])
    filtered = (vectors * weights[:, None, :]) @ vectors.swapaxes(1, 2)
    np.testing.assert_allclose(
        grams.kernel(np.exp(theta)), correlation_kernel(vectorise_edges(filtered)), rtol=0, atol=1e-12
    )


def test_gradient_of_the_kernel_and_of_the_loss(cohort, grams):
    target = cohort.phenotypes["weak"].to_numpy()
    inner = np.array_split(np.arange(30), 3)

    def loss(point):
        return inner_loss(grams.kernel(np.exp(point[:-1])), np.exp(point[-1]), target, inner)[0]

    def gradient(point):
        coefficients, penalty = np.exp(point[:-1]), np.exp(point[-1])
        _, by_kernel, by_penalty = inner_loss(grams.kernel(coefficients), penalty, target, inner)
        return np.append(grams.gradient(coefficients, by_kernel) * coefficients, by_penalty * penalty)

    point = np.append(np.random.default_rng(1).standard_normal(6) / 2, -1.0)
    expected = optimize.approx_fprime(point, loss, 1e-6)
    np.testing.assert_allclose(gradient(point), expected, rtol=1e-4, atol=1e-6)
    assert np.abs(expected).max() > 1e-3


def test_gradient_of_the_network(bins):
    network = NetworkFilter(bins, width=5, seed=2)
    np.testing.assert_array_equal(network.theta(network.start), 0)
    rng = np.random.default_rng(3)
    point, upstream = rng.standard_normal(network.start.size), rng.standard_normal(6)
    expected = optimize.approx_fprime(point, lambda each: network.theta(each) @ upstream, 1e-7)
    np.testing.assert_allclose(network.pull_back(point, upstream), expected, rtol=1e-4, atol=1e-5)
    assert NetworkFilter(bins).start.size == 64 + 64 + 64 * 64 + 64 + 64 + 1


@pytest.mark.parametrize("form", [BinnedFilter, NetworkFilter])
def test_a_filter_learned_from_raw_fc_lifts_the_modes_that_carry_the_target(cohort, bins, grams, form):
    target = cohort.phenotypes["weak"].to_numpy()
    inner = np.array_split(np.arange(40), 4)
    theta = learn_filter(grams, form(bins), target, inner)
    before, after = (inner_loss(grams.kernel(np.exp(each)), 0.1, target, inner)[0] for each in (np.zeros(6), theta))
    assert after < 0.5 * before
    assert theta[:3].max() > theta[4:].max() + 1
    assert np.abs(theta).max() <= 5
