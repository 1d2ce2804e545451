"""Alignment against its definition, closed forms and finite differences; the exponent of best alignment."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fcpower_bids.core.alignment import (
    alignment_curves,
    alignment_from,
    chebyshev_nodes,
    checked_kernel,
    fold_moments,
    fold_targets,
    kernel_alignment,
    kernel_and_derivative,
    slope_from,
)
from fcpower_bids.core.regression.kernels import correlation_kernel, power_features


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


NODES = chebyshev_nodes(25)
"""So few people and parcels make a rougher curve than a real cohort; 13 nodes leave 1e-3 in alpha here."""


@pytest.fixture(scope="module")
def cohort():
    """Spectra of condition number 1e5 in the median; more noise in the weak modes than in the strong ones."""
    rng = np.random.default_rng(0)
    n, n_parcels = 60, 24
    logs = -np.log(1e5) * np.linspace(0, 1, n_parcels) ** 0.4
    y = rng.standard_normal(n)
    effect = rng.standard_normal((n_parcels, n_parcels))
    noise = rng.standard_normal((n, n_parcels, n_parcels)) * np.exp(-0.05 * (logs[:, None] + logs))
    changes = 0.03 * y[:, None, None] * (effect + effect.T) + 0.05 * (noise + noise.swapaxes(1, 2))
    values, vectors = np.linalg.eigh(np.diag(logs) + changes)
    return np.exp(values[:, ::-1]), vectors[:, :, ::-1], y


def fresh(cohort, alpha):
    values, vectors, _ = cohort
    return correlation_kernel(power_features(values, vectors, alpha))


@pytest.fixture(scope="module")
def folds(cohort):
    rng = np.random.default_rng(1)
    masks = np.ones((8, 60), dtype=bool)
    for row in masks:
        row[rng.choice(60, 12, replace=False)] = False
    second = np.where(rng.random(60) < 0.15, np.nan, cohort[2] + 0.5 * rng.standard_normal(60))
    return masks, np.stack([cohort[2], second], axis=1)


def test_same_optimum_as_brent_with_a_fresh_kernel_at_every_step(cohort, folds):
    masks, targets = folds
    found = alignment_curves(lambda alpha: fresh(cohort, alpha), masks, targets, NODES).optimum()
    assert ((found.alpha > 0.1) & (found.alpha < 0.9)).any()
    for fold, target in [(0, 0), (3, 1), (7, 0)]:

        def loss(alpha, fold=fold, target=target):
            kernel = fresh(cohort, alpha)
            return -target_alignment(kernel, masks[[fold]], targets[:, [target]])[0, 0]

        direct = minimize_scalar(loss, bounds=(0.02, 1), method="bounded", options={"xatol": 1e-6})
        assert found.alpha[fold, target] == pytest.approx(direct.x, abs=1e-4)
        assert found.alignment[fold, target] == pytest.approx(-direct.fun, abs=1e-6)
        assert found.alignment_at_star[fold, target] == pytest.approx(-loss(0.35), abs=1e-6)


def test_the_analytic_slope_vanishes_at_the_optimum(cohort, folds):
    masks, targets = folds
    values, vectors, _ = cohort
    kernel, derivative = (
        lambda alpha, place=place: kernel_and_derivative(values, vectors, alpha)[place] for place in (0, 1)
    )
    curves = alignment_curves(kernel, masks, targets, NODES, derivative)
    found = curves.optimum()
    inside = ~found.at_bound
    assert inside.any()
    assert np.abs(found.slope[inside]).max() < 1e-3 * np.ptp(curves.at(np.linspace(0.02, 1, 50)))
    from_function = alignment_curves(lambda alpha: fresh(cohort, alpha), masks, targets, NODES).optimum()
    np.testing.assert_allclose(found.alpha, from_function.alpha, atol=1e-6)
    assert np.isnan(from_function.slope).all()


def target_alignment(kernel, masks, targets):
    """Of kernel (n, n), masks (F, n), targets (n,), (n, q) or (F, n, q): (F, q)."""
    pairs = fold_targets(masks, targets)
    return alignment_from(fold_moments(checked_kernel(kernel, pairs[0][0].shape[1]), pairs)[None])[0]
