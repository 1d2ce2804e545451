"""Kernels: numpy and scipy as referees, panels, precision, sources on disk, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import fractional_matrix_power

from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.regression.kernels import correlation_kernel, linear_kernel, power_features

quick = settings(max_examples=30, deadline=None, derandomize=True)


@pytest.fixture
def features():
    rng = np.random.default_rng(0)
    return 0.2 + 0.3 * rng.standard_normal((25, 190))


def decompose(matrices):
    values, vectors = zip(*map(eigendecompose, matrices), strict=True)
    return np.stack(values), np.stack(vectors)


@quick
@given(st.integers(2, 12), st.integers(3, 60), st.integers(1, 70), st.floats(-1e3, 1e3), st.integers(0, 99))
def test_correlation_kernel_is_corrcoef(n, n_edges, panel, offset, seed):
    x = offset + np.random.default_rng(seed).standard_normal((n, n_edges))
    kernel = correlation_kernel(x, panel=panel)
    np.testing.assert_allclose(kernel, np.corrcoef(x), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(kernel, kernel.T)


def test_single_precision_keeps_six_digits():
    x = 0.2 + 0.3 * np.random.default_rng(1).standard_normal((40, 20_000))
    exact = correlation_kernel(x)
    error = np.abs(correlation_kernel(x.astype(np.float32), dtype=np.float32) - exact).max()
    assert 0 < error < 1e-6


@pytest.mark.parametrize("kernel", [correlation_kernel, linear_kernel])
def test_missing_feature_names_its_row(features, kernel):
    features[7, 100] = np.nan
    with pytest.raises(ValueError, match="row 7 are missing"):
        kernel(features)


@pytest.mark.parametrize("alpha", [0.2, 0.35, 1.0])
def test_power_features_against_scipy(alpha):
    rng = np.random.default_rng(2)
    matrices = np.stack([np.corrcoef(rng.standard_normal((12, 60))) for _ in range(4)])
    expected = np.stack([vectorise_edges(fractional_matrix_power(m, alpha)) for m in matrices])
    values, vectors = decompose(matrices)
    np.testing.assert_allclose(power_features(values, vectors, alpha), expected, rtol=0, atol=1e-12)
    out = np.empty((4, 66), np.float32)
    assert power_features(values, vectors, alpha, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-6)


def test_kernel_of_powers_follows_the_papers_equation():
    rng = np.random.default_rng(4)
    matrices = np.stack([np.corrcoef(rng.standard_normal((10, 40))) for _ in range(3)])
    values, vectors = decompose(matrices)
    overlap = (vectors[0].T @ vectors[1]) ** 2
    product = values[0] ** 0.35 @ overlap @ values[1] ** 0.35
    features = power_features(values, vectors, 0.35)
    powers = [fractional_matrix_power(m, 0.35) for m in matrices]
    diagonal = np.diag(powers[0]) @ np.diag(powers[1])
    assert linear_kernel(features)[0, 1] == pytest.approx(product - diagonal, rel=1e-12)
