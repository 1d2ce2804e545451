"""Kernels, means, factor analysis and alignment against numpy, scipy, scikit-learn and what defines them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import FactorAnalysis as Referee

from fcpower_bids.core.alignment import alignment_from, fold_moments, fold_targets, kernel_and_derivative
from fcpower_bids.core.connectome import eigendecompose
from fcpower_bids.core.kernels import correlation_kernel, power_features
from fcpower_bids.transforms.fitted import FactorAnalysis

quick = settings(max_examples=30, deadline=None, derandomize=True)


def draw_spectra(n, n_parcels, n_volumes=40):
    """Eigenvalues and eigenvectors of connectomes."""
    series = np.random.default_rng(4).standard_normal((n, n_parcels, n_volumes))
    matrices = np.stack([np.corrcoef(each) for each in series])
    values, vectors = zip(*map(eigendecompose, matrices), strict=True)
    return np.stack(values), np.stack(vectors)


@quick
@given(st.integers(2, 12), st.integers(3, 60), st.integers(1, 70), st.floats(-1e3, 1e3), st.integers(0, 99))
def test_correlation_kernel_is_corrcoef(n, n_edges, panel, offset, seed):
    x = offset + np.random.default_rng(seed).standard_normal((n, n_edges))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fcpower_bids.core.kernels.PANEL", panel)
        kernel = correlation_kernel(x)
    np.testing.assert_allclose(kernel, np.corrcoef(x), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(kernel, kernel.T)


@pytest.mark.parametrize("iterations", [1, 4, 10])
@pytest.mark.filterwarnings("ignore:FactorAnalysis did not converge")
def test_every_step_is_that_of_scikit_learn(iterations):
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 300))
    features = signal + rng.uniform(0.5, 2, 300) * rng.standard_normal((40, 300)) + 5
    ours = FactorAnalysis(5, iterations).fit(features)
    theirs = Referee(5, max_iter=iterations, svd_method="lapack").fit(features)
    np.testing.assert_allclose(ours.noise_, theirs.noise_variance_, rtol=1e-4)
    scores, expected = ours.transform(features), theirs.transform(features)
    scores *= np.sign((scores * expected).sum(axis=0))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-3)
    assert iterations == 10 or not ours.converged_


def test_folds_targets_and_missing_values_equal_the_definition_on_the_rows_that_count():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((30, 5)) + 0.5
    kernel, masks, targets = features @ features.T, rng.random((6, 30)) < 0.7, rng.standard_normal((30, 3)) + 4
    targets[rng.random((30, 3)) < 0.2] = np.nan
    targets[:, 2] = np.where(np.isnan(targets[:, 1]), np.nan, targets[:, 2])
    result = target_alignment(kernel, masks, targets)
    for fold, target in np.ndindex(6, 3):
        rows = masks[fold] & np.isfinite(targets[:, target])
        y = targets[rows, target]
        centring = np.eye(len(y)) - 1 / len(y)
        a, b = (centring @ each @ centring for each in (kernel[np.ix_(rows, rows)], np.outer(y, y)))
        expected = (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)
        assert result[fold, target] == pytest.approx(expected, abs=1e-12)
    fold_specific = np.broadcast_to(targets, (6, 30, 3))
    np.testing.assert_array_equal(target_alignment(kernel, masks, fold_specific), result)


def test_the_kernel_is_the_correlation_kernel_and_its_derivative_that_of_central_differences():
    values, vectors = draw_spectra(14, 9)
    kernel, derivative = kernel_and_derivative(values, vectors, 0.4)
    np.testing.assert_allclose(kernel, correlation_kernel(power_features(values, vectors, 0.4)), atol=1e-13)
    above, below = (kernel_and_derivative(values, vectors, 0.4 + step)[0] for step in (1e-5, -1e-5))
    np.testing.assert_allclose(derivative, (above - below) / 2e-5, atol=1e-9)


def target_alignment(kernel, masks, targets):
    """Of kernel (n, n), masks (F, n), targets (n,), (n, q) or (F, n, q): (F, q)."""
    pairs = fold_targets(masks, targets)
    return alignment_from(fold_moments(np.asarray(kernel), pairs)[None])[0]
