"""Kernels of sums of filters from one table, against the kernel of the filtered connectomes themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import ortho_group

from fcpower_bids.analyses.spectrum.learned_filters import FilterGrams, filter_grams
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.regression.kernels import correlation_kernel

N, B, P = 9, 4, 11


@pytest.fixture(scope="module")
def vectors():
    return np.stack([ortho_group.rvs(P, random_state=seed) for seed in range(N)])


@pytest.fixture(scope="module")
def weights():
    """Overlapping filters; some modes are in none."""
    rng = np.random.default_rng(0)
    return rng.uniform(0, 2, (N, B, P)) * (rng.uniform(size=(N, B, P)) < 0.6)


def direct(vectors, weights, coefficients):
    summed = np.einsum("b,nbp->np", coefficients, weights)
    return correlation_kernel(vectorise_edges((vectors * summed[:, None, :]) @ vectors.swapaxes(1, 2)))


@pytest.mark.parametrize("panel_bytes", [1, 5000, 1e9])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_kernel_is_that_of_the_filtered_connectomes(vectors, weights, panel_bytes, dtype, tolerance):
    grams = filter_grams(lambda: iter(vectors), weights, dtype, panel_bytes)
    assert grams.packed.size == FilterGrams.size(N, B)
    assert grams.packed.dtype == dtype
    for coefficients in (np.ones(B), np.array([0.01, 100.0, 3.0, 0.5]), np.eye(B)[2]):
        kernel = grams.kernel(coefficients)
        np.testing.assert_allclose(kernel, direct(vectors, weights, coefficients), rtol=0, atol=tolerance)
        np.testing.assert_array_equal(kernel, kernel.T)
        assert (np.diag(kernel) == 1).all()


def test_the_gradient_is_that_of_differences(vectors, weights):
    grams = filter_grams(lambda: iter(vectors), weights)
    upstream = np.random.default_rng(1).standard_normal((N, N))
    at = np.array([0.5, 1.5, 1.0, 2.0])
    expected = optimize.approx_fprime(at, lambda c: float((grams.kernel(c) * upstream).sum()), 1e-7)
    np.testing.assert_allclose(grams.gradient(at, upstream), expected, atol=1e-5)
