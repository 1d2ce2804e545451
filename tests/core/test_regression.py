"""Kernel ridge regression, its penalties, nested loops and the linear probe, written out with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from fcpower_bids.core.folds import Fold, leave_one_site_out, replicated_folds
from fcpower_bids.core.kernels import correlation_kernel
from fcpower_bids.core.krr import DECADES, KernelRidge, decades
from fcpower_bids.core.nested import nested_cv
from fcpower_bids.core.probe import PRIMAL_WIDTH, LinearProbe, predict_from_arrays, ridge_model_arrays
from fcpower_bids.core.targets import (
    composite_target,
    fixed_target,
    join_targets,
    residual_target,
)
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import MEGA, memory_limit
from tests.referee import linear, nested

PENALTIES = np.array([1e-2, 1e-1, 1.0, 10.0])
# Without shrinking: a failure is told at once, and its seed and sizes are small anyway.
quick = settings(max_examples=5, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
SELECTIONS = ["pooled_pearson", "mean_predictive_cod", "pooled_mse", "mean_pearson", "mean_mae_norm"]


def assert_equals_brute_force(kernel, build, folds, selection, intercept=True):
    """`build`: targets that are built in each fold, or fixed ones."""
    result = nested_cv(KernelRidge(kernel, PENALTIES, intercept), build, folds, selection)
    build = build if callable(build) else fixed_target(build)
    m = result.chosen.shape[1]
    written_out = nested(lambda train: kernel, build, folds, PENALTIES, selection, intercept)
    for i, expected in enumerate(written_out):
        f, j = divmod(i, m)
        assert result.chosen[f, j] == expected[0]
        np.testing.assert_allclose(result.predicted[f][:, j], expected[1], rtol=0, atol=1e-8)
        np.testing.assert_allclose(result.inner_scores[f, :, j], expected[2], rtol=0, atol=1e-8)
    assert i == len(folds) * m - 1
    return result


@st.composite
def cohorts(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, n_edges = draw(st.integers(24, 40)), draw(st.integers(6, 60))
    features = rng.standard_normal((n, n_edges)) + rng.standard_normal((n, 1))
    signal = features @ rng.standard_normal((n_edges, 3)) / np.sqrt(n_edges)
    y = signal + rng.standard_normal((n, 3)) + 5
    y[:, 1] = np.round(y[:, 1])  # ties
    y[rng.random((n, 3)) < draw(st.sampled_from([0.0, 0.1, 0.3]))] = np.nan
    family = rng.integers(0, n, n)
    crowded = np.bincount(family, minlength=n)[family] > 2
    family[crowded] = n + np.flatnonzero(crowded)
    folds = replicated_folds(n, 3, 3, 1, draw(st.integers(0, 9)), family)
    return rng, features, y, folds


@quick
@given(cohorts(), st.sampled_from(SELECTIONS), st.booleans())
def test_missing_targets_and_composites_with_covariates_equal_brute_force(cohort, selection, intercept):
    rng, features, y, folds = cohort
    covariates = np.column_stack([rng.standard_normal(len(y)), rng.integers(0, 2, len(y))])
    build = residual_target(join_targets([composite_target(y + 0.1), fixed_target(y[:, :2])]), covariates)
    for targets in (y, build):
        assert_equals_brute_force(correlation_kernel(features), targets, folds, selection, intercept)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_kernel_that_is_not_finite_is_refused(value):
    kernel = correlation_kernel(np.random.default_rng(0).standard_normal((9, 30)))
    kernel[2, 3] = value
    with pytest.raises(ValueError, match="missing or infinite"):
        KernelRidge(kernel, [1.0])


def test_binary_targets_with_single_class_folds():
    rng = np.random.default_rng(2)
    y = np.repeat([0.0, 1.0, 0.0, 1.0], [12, 6, 4, 12])[:, None]
    features = rng.standard_normal((34, 20)) + y * rng.standard_normal(20)
    folds = leave_one_site_out(np.repeat(["a", "b", "c"], [12, 10, 12]), 3)
    result = assert_equals_brute_force(correlation_kernel(features), fixed_target(y), folds, "mean_auc")
    area = result.fold_scores("auc")[:, 0]
    np.testing.assert_array_equal(np.isnan(area), [True, False, True])
    assert area[1] > 0.8
    assert not np.isnan(result.pooled_scores("auc")).any()


def test_fewer_edges_than_people_and_no_penalty():
    rng = np.random.default_rng(3)
    features, y = rng.standard_normal((40, 8)), rng.standard_normal((40, 1))
    kernel = correlation_kernel(features)
    solver = KernelRidge(kernel, [0, *PENALTIES])
    np.testing.assert_array_equal(solver.penalties, PENALTIES)
    folds = replicated_folds(40, 4, 3, 1)
    result = nested_cv(solver, y, folds)
    assert "Penalty 0 was dropped" in result.notes[0]
    assert_equals_brute_force(kernel, fixed_target(y), folds, "pooled_pearson")
    assert 0 in KernelRidge(correlation_kernel(rng.standard_normal((20, 50))), [0, 1.0]).penalties


def test_constant_target_is_counted_and_gets_the_largest_penalty():
    rng = np.random.default_rng(6)
    y = np.column_stack([np.full(30, 2.5), rng.standard_normal(30)])
    folds = replicated_folds(30, 3, 3, 1)
    result = nested_cv(KernelRidge(correlation_kernel(rng.standard_normal((30, 50))), PENALTIES), y, folds)
    assert (result.chosen[:, 0] == PENALTIES.max()).all()
    assert np.isnan(result.fold_scores("pearson")[:, 0]).all()
    np.testing.assert_allclose(np.concatenate(result.predicted)[:, 0], 2.5, atol=1e-9)
    assert any("In 3 of 6 fits no penalty had a score" in note for note in result.notes)


@pytest.mark.parametrize("kind", ["kernel", "probe", "wide probe"])
def test_predictions_ignore_everything_about_the_test_rows_but_their_features(kind):
    rng = np.random.default_rng(9)
    features = rng.standard_normal((50, 600 if kind == "wide probe" else 30))
    measures, covariates = rng.standard_normal((50, 4)), rng.standard_normal((50, 2))
    fold = replicated_folds(50, 5, 3, 1)[2]

    def predict(measures, covariates, features, test):
        solver = (
            KernelRidge(correlation_kernel(features), PENALTIES)
            if kind == "kernel"
            else LinearProbe(features, PENALTIES)
        )
        build = residual_target(composite_target(measures), covariates)
        result = nested_cv(solver, build, [Fold(0, 0, fold.train, test, fold.inner)])
        return result.chosen, result.predicted[0][0], result.inner_scores

    honest = predict(measures, covariates, features, fold.test)
    measures, covariates, features = measures.copy(), covariates.copy(), features.copy()
    measures[fold.test] = 50 * rng.standard_normal((fold.test.size, 4)) + 20
    covariates[fold.test] += 30
    features[fold.test[1:]] *= rng.uniform(3, 9, (fold.test.size - 1, 1)) * rng.standard_normal(features.shape[1])
    for before, after in zip(honest, predict(measures, covariates, features, fold.test), strict=True):
        np.testing.assert_allclose(before, after, rtol=0, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_one_penalty_after_the_other_gives_the_same_to_the_last_bit(intercept):
    """With little memory one inverse is held at a time; targets may be missing, or built in the fold."""
    rng = np.random.default_rng(7)
    features, y = rng.standard_normal((40, 90)), rng.standard_normal((40, 3))
    kernel, folds = features @ features.T / 90, replicated_folds(40, 4, 3, 2)
    y[:3, 1] = np.nan
    grid = [0.01, 1.0, 100.0]
    together = KernelRidge(kernel, grid, intercept)
    with memory_limit(11 * kernel.nbytes / MEGA):
        apart = KernelRidge(kernel, grid, intercept)
    assert (together.one_by_one, apart.one_by_one) == (False, True)
    for targets in (y, composite_target(y[:, [0, 2]])):
        one, other = (nested_cv(solver, targets, folds) for solver in (together, apart))
        assert one.notes == other.notes
        for name in ("chosen", "inner_scores", "at_edge"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(np.concatenate(one.predicted), np.concatenate(other.predicted))


@pytest.mark.parametrize("last", [-5, -4, -3])
def test_the_search_ends_at_the_penalty_before_that_for_which_the_kernel_is_singular(last, monkeypatch):
    rng = np.random.default_rng(3)
    features = rng.standard_normal((40, 90))
    kernel, folds = features @ features.T / 90, replicated_folds(40, 4, 3, 1)
    grid, y = decades(1.0, DECADES), features[:, :10].sum(axis=1)
    whole, at = nested_cv(KernelRidge(kernel, grid, unit=1.0), y, folds), KernelRidge.at
    limit = decades(1.0, (last,))[0]

    def singular(self, penalties):
        if (penalties < limit * 0.99).any():
            raise Unfit("The smallest penalty is too small for this kernel; remove it from the grid.")
        return at(self, penalties)

    monkeypatch.setattr(KernelRidge, "at", singular)
    least = nested_cv(KernelRidge(kernel, grid, unit=1.0), y, folds)
    np.testing.assert_array_equal(least.chosen, np.maximum(whole.chosen, limit))
    assert whole.chosen.min() < grid.min()


@pytest.fixture
def cohort():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 60)) + rng.standard_normal(60), rng.standard_normal((40, 2))


def test_linear_kind_is_ridge_on_z_scores(cohort):
    features, y = cohort
    got = predict_from_arrays(ridge_model_arrays(features[:30], y[:30], 2.0, "linear"), features[30:])[0]
    scaler = StandardScaler().fit(features[:30])
    expected = Ridge(alpha=2.0).fit(scaler.transform(features[:30]), y[:30]).predict(scaler.transform(features[30:]))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


def test_similarity_is_the_mean_correlation_with_the_training_scans(cohort):
    features, y = cohort
    arrays = ridge_model_arrays(features, y, 1.0)
    new = np.random.default_rng(1).standard_normal((3, 60)) + features.mean(axis=0)
    expected = [np.mean([np.corrcoef(x, row)[0, 1] for row in features]) for x in new]
    np.testing.assert_allclose(predict_from_arrays(arrays, new)[1], expected, atol=1e-12)


PROBED = np.array([0.1, 1.0, 10.0, 100.0])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scaling", ["fold", "everyone"])
@pytest.mark.parametrize("width", [8, PRIMAL_WIDTH + 1])
@pytest.mark.parametrize(("large", "tolerance"), [(False, 1e-9), (True, 1e-5)])
def test_equal_to_scikit_learn(width, large, tolerance, scaling, intercept, monkeypatch):
    if large:
        monkeypatch.setattr("fcpower_bids.core.probe.SINGLE", 0)
    rng = np.random.default_rng(width)
    features = rng.standard_normal((45, width)) * rng.uniform(0.1, 9, width) + rng.uniform(-3, 3, width)
    features[:, 3] = 0.1
    y = features[:, :2] @ [[1.0], [0.3]] + rng.standard_normal((45, 1))
    y[[4, 20, 33]] = np.nan
    folds = replicated_folds(45, 4, 3, 1)
    probe = LinearProbe(features, PROBED, intercept, scaling == "everyone")
    result = nested_cv(probe, y, folds)

    def kernel_of(train):
        return linear(features, slice(None) if scaling == "everyone" else train)

    expected = nested(kernel_of, fixed_target(y), folds, PROBED, intercept=intercept)
    for f, (penalty, predicted, _) in enumerate(expected):
        assert result.chosen[f, 0] == penalty
        np.testing.assert_allclose(result.predicted[f][:, 0], predicted, rtol=0, atol=tolerance)
