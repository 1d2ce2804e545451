"""The exponent of best alignment: the interpolant against a fresh kernel at every step."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fcpower_bids.core.alignment import (
    AlignmentCurves,
    alignment_curves,
    chebyshev_nodes,
    kernel_and_derivative,
)
from fcpower_bids.core.regression.kernels import correlation_kernel, power_features
from tests.core.filters.aligned import target_alignment

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


def test_the_interpolant_follows_the_curve_everywhere(cohort, folds):
    masks, targets = folds
    alphas = [0.02, 0.05, 0.2, 0.35, 0.7, 1.0]
    exact = np.stack([target_alignment(fresh(cohort, alpha), masks, targets) for alpha in alphas])
    errors, truncations = [], []
    for n_nodes in (9, 13, 25):
        curves = alignment_curves(lambda alpha: fresh(cohort, alpha), masks, targets, chebyshev_nodes(n_nodes))
        errors.append(np.abs(curves.at(alphas) - exact).max())
        truncations.append(curves.truncation().max())
    assert errors[0] > 10 * errors[2]
    assert errors[1] < 1e-3
    assert errors[2] < 1e-6
    # The stated uncertainty is of the order of the true one, so a caller can trust it.
    assert all(error < 3 * stated < 100 * error for error, stated in zip(errors, truncations, strict=True))


def test_bounds_and_folds_without_variance_are_marked():
    nodes = chebyshev_nodes()
    rising, falling, peaked = nodes, -nodes, -((nodes - 0.4) ** 2)
    numerators = np.stack([rising, falling, peaked, np.full(13, np.nan)], axis=1)[:, :, None]
    found = AlignmentCurves(nodes, np.stack([numerators, np.ones_like(numerators)], axis=1)).optimum()
    np.testing.assert_allclose(found.alpha[:, 0], [1, 0.02, 0.4, np.nan], atol=1e-5)
    np.testing.assert_array_equal(found.at_bound[:, 0], [True, True, False, False])


def test_the_higher_of_two_peaks_is_found():
    nodes = chebyshev_nodes(25)
    numerators = (np.exp(-(((nodes - 0.2) / 0.12) ** 2)) + 1.1 * np.exp(-(((nodes - 0.8) / 0.12) ** 2)))[:, None, None]
    found = AlignmentCurves(nodes, np.stack([numerators, np.ones_like(numerators)], axis=1)).optimum()
    assert found.alpha[0, 0] == pytest.approx(0.8, abs=0.01)
