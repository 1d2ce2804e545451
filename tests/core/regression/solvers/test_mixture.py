"""Mixtures of kernels against himalaya's random search, and the choice between them."""

import dataclasses

import numpy as np
import pytest
from himalaya.kernel_ridge import solve_multiple_kernel_ridge_random_search
from himalaya.scoring import correlation_score

from fcpower_bids.analyses.engine.cross_validation import merge_results, run_nested_cv
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.penalties import regress_on_kernel
from fcpower_bids.core.regression.presets import PAPER, RECOMMENDED
from fcpower_bids.core.regression.solvers.mixture import KernelMixture, simplex_weights

N = 60
PENALTIES = (0.1, 1.0, 10.0)
PLAIN = dataclasses.replace(PAPER, penalties=PENALTIES, intercept=False, selection="mean_pearson")


@pytest.fixture(scope="module")
def kernels():
    rng = np.random.default_rng(0)
    return [np.corrcoef(rng.standard_normal((N, 90))) for _ in range(3)]


@pytest.fixture(scope="module")
def targets(kernels):
    """One that follows the first kernel, one the second and third, one nothing."""
    rng = np.random.default_rng(1)
    roots = [np.linalg.cholesky(kernel + 1e-6 * np.eye(N)) @ rng.standard_normal(N) for kernel in kernels]
    return np.column_stack([roots[0], roots[1] + roots[2], rng.standard_normal(N)])


def mix(kernels, weights, preset):
    return KernelMixture(lambda own: regress_on_kernel(np.tensordot(own, kernels, 1), preset), weights)


def test_it_is_himalayas_random_search(kernels, targets):
    weights = simplex_weights(3)
    folds = replicated_folds(N, 4, 3, 1)
    result = run_nested_cv(mix(kernels, weights, PLAIN), targets, folds, PLAIN)
    for number, fold in enumerate(folds):
        place = {row: at for at, row in enumerate(fold.train)}
        inner = [[place[row] for row in rows] for rows in fold.inner]
        splits = [(np.setdiff1d(np.arange(fold.train.size), rows), np.array(rows)) for rows in inner]
        blocks = np.stack([kernel[np.ix_(fold.train, fold.train)] for kernel in kernels])
        deltas, dual, _ = solve_multiple_kernel_ridge_random_search(
            blocks,
            targets[fold.train],
            n_iter=weights,
            alphas=np.array(PENALTIES),
            score_func=correlation_score,
            cv=splits,
            return_weights="dual",
            progress_bar=False,
        )
        ours = result.weights[number] / result.chosen[number][:, None]
        np.testing.assert_allclose(ours.T, np.exp(deltas), rtol=1e-8, atol=1e-12)
        cross = np.stack([kernel[np.ix_(fold.test, fold.train)] for kernel in kernels])
        expected = np.einsum("kij,km,jm->im", cross, np.exp(deltas), dual)
        np.testing.assert_allclose(result.predicted[number], expected, atol=1e-8)


def test_weights_follow_the_kernel_that_predicts(kernels, targets):
    result = run_nested_cv(mix(kernels, simplex_weights(3), PAPER), targets, replicated_folds(N, 5, 3, 2), PAPER)
    assert result.weights.shape == (10, 3, 3)
    np.testing.assert_allclose(result.weights.sum(axis=2), 1)
    assert result.weights[:, 0].mean(axis=0).argmax() == 0
    assert result.weights[:, 1, 0].mean() < 0.34


def test_one_kernel_is_kernel_ridge(kernels, targets):
    folds = replicated_folds(N, 5, 3, 1)
    for preset in (PAPER, RECOMMENDED):
        mixed = run_nested_cv(mix(kernels[:1], simplex_weights(1), preset), targets, folds, preset)
        alone = run_nested_cv(regress_on_kernel(kernels[0], preset), targets, folds, preset)
        np.testing.assert_array_equal(mixed.chosen, alone.chosen)
        np.testing.assert_allclose(np.concatenate(mixed.predicted), np.concatenate(alone.predicted), atol=1e-10)


def test_the_choice_is_the_best_inner_score_of_the_fold(kernels, targets):
    weights, folds = simplex_weights(2), replicated_folds(N, 5, 3, 1)
    result = run_nested_cv(mix(kernels[:2], weights, RECOMMENDED), targets, folds, RECOMMENDED)
    each = [
        run_nested_cv(regress_on_kernel(np.tensordot(own, kernels[:2], 1), RECOMMENDED), targets, folds, RECOMMENDED)
        for own in weights
    ]
    scores = np.stack([one.best_scores for one in each])
    np.testing.assert_array_equal(result.best_scores, scores.max(axis=0))
    np.testing.assert_array_equal(result.weights, weights[scores.argmax(axis=0)])
    for fold in range(5):
        for target in range(3):
            own = each[scores[:, fold, target].argmax()]
            np.testing.assert_array_equal(result.predicted[fold][:, target], own.predicted[fold][:, target])
            assert result.chosen[fold, target] == own.chosen[fold, target]


def test_parts_are_put_together(kernels, targets):
    folds, solver = replicated_folds(N, 5, 3, 2), mix(kernels, simplex_weights(3), PAPER)
    whole = run_nested_cv(solver, targets, folds, PAPER)
    parts = [run_nested_cv(solver, targets, folds[at : at + 5], PAPER) for at in (5, 0)]
    np.testing.assert_array_equal(merge_results(parts).weights, whole.weights)


def test_what_is_not_kept_is_made_again(kernels, targets):
    folds, weights = replicated_folds(N, 5, 3, 1), simplex_weights(2)
    made = []
    solver = KernelMixture(
        lambda own: made.append(1) or regress_on_kernel(np.tensordot(own, kernels[:2], 1), PAPER), weights, keep=False
    )
    one, other = (run_nested_cv(solver, targets, folds, PAPER) for _ in range(2))
    np.testing.assert_array_equal(np.concatenate(one.predicted), np.concatenate(other.predicted))
    assert len(made) == 2 * len(weights) - 1


@pytest.mark.parametrize("n_kernels", [1, 2, 3, 5])
def test_weights_are_on_the_simplex(n_kernels):
    weights = simplex_weights(n_kernels)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights[0], 1 / n_kernels)
    assert len(np.unique(weights.round(12), axis=0)) == len(weights)
    assert all((weights == corner).all(axis=1).any() for corner in np.eye(n_kernels))
