"""The closed-form student: closed forms, and scikit-learn as referee."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import Ridge

from fcpower_bids.core.filters.student import fit_student, power_edges, principal_coordinates
from fcpower_bids.errors import Unfit


@pytest.fixture
def kernel():
    points = np.random.default_rng(0).standard_normal((12, 30))
    return np.corrcoef(points)


def test_all_coordinates_have_the_inner_products_of_the_centred_kernel(kernel):
    points = principal_coordinates(kernel, 12)
    centring = np.eye(12) - 1 / 12
    assert points.shape == (12, 11)  # centring takes one
    np.testing.assert_allclose(points @ points.T, centring @ kernel @ centring, atol=1e-12)


def test_few_coordinates_are_those_of_kernel_pca_with_a_fixed_sign(kernel):
    points = principal_coordinates(kernel, 3)
    expected = KernelPCA(3, kernel="precomputed").fit_transform(kernel)
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-10)
    assert (points[np.abs(points).argmax(axis=0), range(3)] > 0).all()


@pytest.mark.parametrize(("kind", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_the_fit_is_ridge_regression_with_an_intercept(kind, tolerance):
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((20, 50)).astype(kind), rng.standard_normal((20, 4))
    mean, weights = fit_student(X, Y, ridge=0.1)
    referee = Ridge(alpha=0.1 * ((X - X.mean(0)) ** 2).sum() / 20).fit(X.astype(float), Y)
    np.testing.assert_allclose(weights, referee.coef_.T, atol=tolerance)
    new = rng.standard_normal((5, 50))
    np.testing.assert_allclose((new - mean) @ weights + Y.mean(0), referee.predict(new), atol=100 * tolerance)


def test_windows_that_are_all_alike_are_refused():
    with pytest.raises(Unfit, match="same connectome"):
        fit_student(np.ones((5, 10)), np.eye(5))


def test_features_do_not_depend_on_scale_or_level():
    windows = np.random.default_rng(2).standard_normal((3, 40, 6))
    np.testing.assert_allclose(power_edges(3 * windows + 7, 0.35), power_edges(windows, 0.35), atol=1e-12)
