"""Alignment against its definition, closed forms and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.alignment import (
    fold_moments,
    fold_targets,
    kernel_alignment,
    kernel_and_derivative,
    slope_from,
)
from fcpower_bids.core.regression.kernels import correlation_kernel, power_features
from tests.core.filters.aligned import target_alignment


def random_kernel(rng, n, d=5):
    features = rng.standard_normal((n, d)) + 0.5
    return features @ features.T


def centred(kernel):
    h = np.eye(len(kernel)) - 1 / len(kernel)
    return h @ kernel @ h


def alignment_by_definition(first, second):
    a, b = centred(first), centred(second)
    return (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)


def unbiased_hsic(first, second):
    """Song et al. 2012, equation 5, term by term."""
    n = len(first)
    k, m = first - np.diag(np.diag(first)), second - np.diag(np.diag(second))
    one = np.ones(n)
    crossed = (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return (np.trace(k @ m) + crossed - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))


def debiased_by_definition(first, second):
    return unbiased_hsic(first, second) / np.sqrt(unbiased_hsic(first, first) * unbiased_hsic(second, second))


def small_cohort(n=14, n_parcels=9, seed=0):
    series = np.random.default_rng(seed).standard_normal((n, n_parcels, 40))
    series += series[:, :1] * 1.5
    values, vectors = np.linalg.eigh(np.stack([np.corrcoef(each) for each in series]))
    return values[:, ::-1], vectors[:, :, ::-1]


def test_folds_targets_and_missing_values_equal_the_definition_on_the_rows_that_count():
    rng = np.random.default_rng(1)
    kernel, masks, targets = random_kernel(rng, 30), rng.random((6, 30)) < 0.7, rng.standard_normal((30, 3)) + 4
    targets[rng.random((30, 3)) < 0.2] = np.nan
    targets[:, 2] = np.where(np.isnan(targets[:, 1]), np.nan, targets[:, 2])
    result = target_alignment(kernel, masks, targets)
    for fold, target in np.ndindex(6, 3):
        rows = masks[fold] & np.isfinite(targets[:, target])
        y = targets[rows, target]
        expected = alignment_by_definition(kernel[np.ix_(rows, rows)], np.outer(y, y))
        assert result[fold, target] == pytest.approx(expected, abs=1e-12)
    fold_specific = np.broadcast_to(targets, (6, 30, 3))
    np.testing.assert_array_equal(target_alignment(kernel, masks, fold_specific), result)


@pytest.mark.parametrize(("debiased", "definition"), [(False, alignment_by_definition), (True, debiased_by_definition)])
def test_alignment_of_two_kernels_equals_the_definition(debiased, definition):
    rng = np.random.default_rng(2)
    first, second = random_kernel(rng, 20), random_kernel(rng, 20)
    assert kernel_alignment(first, second, debiased) == pytest.approx(definition(first, second), abs=1e-12)
    assert kernel_alignment(first, 3 * first + 7, debiased) == pytest.approx(1, abs=1e-12)


def test_constant_targets_and_tiny_folds_are_nan_and_broken_input_is_refused():
    kernel = random_kernel(np.random.default_rng(5), 10)
    masks = np.array([[True] * 10, [True] * 3 + [False] * 7])
    result = target_alignment(kernel, masks, np.stack([np.full(10, 0.1), np.arange(10.0)], axis=1))
    np.testing.assert_array_equal(np.isnan(result), [[True, False], [True, True]])
    with pytest.raises(ValueError, match="missing or infinite"):
        target_alignment(np.full((10, 10), np.nan), masks, np.arange(10.0))
    with pytest.raises(ValueError, match="do not fit"):
        target_alignment(kernel, masks, np.arange(9.0))
    with pytest.raises(ValueError, match=r"of shape \(10, 10\)"):
        kernel_alignment(kernel, kernel[:5, :5])


def test_the_kernel_is_the_correlation_kernel_and_its_derivative_that_of_central_differences():
    values, vectors = small_cohort()
    kernel, derivative = kernel_and_derivative(values, vectors, 0.4)
    np.testing.assert_allclose(kernel, correlation_kernel(power_features(values, vectors, 0.4)), atol=1e-13)
    above, below = (kernel_and_derivative(values, vectors, 0.4 + step)[0] for step in (1e-5, -1e-5))
    np.testing.assert_allclose(derivative, (above - below) / 2e-5, atol=1e-9)


def test_the_analytic_slope_is_that_of_central_differences():
    values, vectors = small_cohort(seed=6)
    rng = np.random.default_rng(6)
    masks, y = rng.random((5, 14)) < 0.8, rng.standard_normal((14, 2))
    kernel, derivative = kernel_and_derivative(values, vectors, 0.6)
    moments = (fold_moments(each, fold_targets(masks, y), kernel) for each in (kernel, derivative))
    slope = slope_from(*moments)
    above, below = (
        target_alignment(kernel_and_derivative(values, vectors, 0.6 + step)[0], masks, y) for step in (1e-5, -1e-5)
    )
    np.testing.assert_allclose(slope, (above - below) / 2e-5, rtol=1e-6, atol=1e-9)


def test_rank_deficient_recordings_have_a_finite_derivative():
    values, vectors = small_cohort()
    values = np.where(np.arange(9) < 6, values, -1e-15)
    kernel, derivative = kernel_and_derivative(values, vectors, 0.35)
    assert np.isfinite(kernel).all()
    assert np.isfinite(derivative).all()
