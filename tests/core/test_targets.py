"""Targets: composites, residuals and classes against scikit-learn, defined by the training rows alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcpower_bids.core.regression.targets import (
    composite_target,
    encode_binary,
    fit_composite,
    permuted_rows,
    predict_known,
    residual_target,
)

quick = settings(max_examples=30, deadline=None, derandomize=True)


def measures_of(seed, n=40, q=5, missing=0.1):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, 1)) * rng.uniform(-1, 1, q) + 0.7 * rng.standard_normal((n, q)) + 3
    values[rng.random((n, q)) < missing] = np.nan
    return values


@quick
@given(st.integers(0, 50), st.integers(20, 39), st.floats(0, 0.3))
def test_composite_is_scale_pca_of_complete_rows(seed, n_train, missing):
    values = measures_of(seed, missing=missing)
    train = np.random.default_rng(seed).permutation(40)[:n_train]
    known = ~np.isnan(values).any(axis=1)
    assume(known[train].sum() > 5)
    referee = make_pipeline(StandardScaler(), PCA(1)).fit(values[train[known[train]]])
    expected = np.full(40, np.nan)
    expected[known] = referee.transform(values[known])[:, 0]
    got = composite_target(values)(train)[:, 0]
    np.testing.assert_array_equal(np.isnan(got), ~known)
    sign = np.sign(got[known] @ expected[known])
    np.testing.assert_allclose(got[known], sign * expected[known], rtol=0, atol=1e-9)


@quick
@given(st.integers(0, 50), st.integers(1, 4), st.booleans())
def test_residuals_of_the_training_regression(seed, n_covariates, collinear):
    rng = np.random.default_rng(seed)
    y, x = rng.standard_normal((30, 3)), rng.standard_normal((30, n_covariates)) + 50
    x = np.hstack([x, 2 * x[:, :1] + 1]) if collinear else x
    y[rng.random((30, 3)) < 0.1] = np.nan
    train = rng.permutation(30)[:20]
    got = residual_target(y, x)(train)
    for j in range(3):
        rows = train[~np.isnan(y[train, j])]
        referee = LinearRegression().fit(x[rows], y[rows, j])
        np.testing.assert_allclose(got[:, j], y[:, j] - referee.predict(x), rtol=0, atol=1e-8)


def test_two_classes_become_zero_and_one():
    labels = ["F", "M", None, "F", "n/a", float("nan"), ""]
    np.testing.assert_array_equal(encode_binary(labels), [0, 1, np.nan, 0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(encode_binary(np.array([2, 1, 2.0])), [1, 0, 1])
    with pytest.raises(ValueError, match="needs two classes; found 3"):
        encode_binary(["a", "b", "c"])


@quick
@given(st.lists(st.integers(1, 3), min_size=3, max_size=12), st.integers(0, 20))
def test_permutations_exchange_families_of_one_size_whole(sizes, seed):
    family = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    for order in permuted_rows(family.size, 4, seed, family):
        np.testing.assert_array_equal(np.sort(order), np.arange(family.size))
        for name in np.unique(family):
            sources = family[order[family == name]]
            assert len(set(sources)) == 1
            assert np.sum(family == sources[0]) == np.sum(family == name)


def test_permutations_are_uniform_and_seeded():
    orders = permuted_rows(4, 6000, seed=1)
    counts = np.stack([np.bincount(orders[:, i], minlength=4) for i in range(4)])
    assert abs(counts / 6000 - 0.25).max() < 0.03
    np.testing.assert_array_equal(permuted_rows(9, 3, 2), permuted_rows(9, 3, 2))
    pairs = permuted_rows(4, 2000, 0, [0, 0, 1, 1])
    assert np.mean(pairs[:, 0] >= 2) == pytest.approx(0.5, abs=0.05)
    assert np.mean(pairs[:, 0] % 2) == pytest.approx(0.5, abs=0.05)


def test_permutations_within_sites_leave_everyone_at_their_site():
    rng = np.random.default_rng(0)
    sites, families = rng.integers(0, 3, 40), np.arange(40) // 2
    for order in permuted_rows(40, 20, 1, families, sites):
        assert np.array_equal(sites[order], sites)
        assert np.array_equal(np.sort(order), np.arange(40))
        pairs = [row for row in range(0, 40, 2) if sites[row] == sites[row + 1]]
        assert all(families[order[row]] == families[order[row + 1]] for row in pairs)
    np.testing.assert_array_equal(permuted_rows(9, 3, 2), permuted_rows(9, 3, 2, sites=np.zeros(9)))


def guess_by_sklearn(known, values, train):
    """A line within the range of the training rows, drawn to the mean by the slope on rows that are left out."""
    inside = known.clip(known[train].min(axis=0), known[train].max(axis=0))
    left_out = cross_val_predict(LinearRegression(), inside[train], values[train, 0], cv=LeaveOneOut())
    slope, mean = np.clip(np.polyfit(left_out, values[train, 0], 1)[0], 0, 1), values[train].mean()
    return mean + slope * (LinearRegression().fit(inside[train], values[train]).predict(inside) - mean)


@pytest.mark.parametrize("strength", [0.0, 0.2, 0.5, 2.0])
def test_known_columns_predict_as_leaving_each_row_out_says(strength):
    rng = np.random.default_rng(3)
    columns, train = rng.standard_normal((35, 3)), np.arange(25)
    values = strength * columns[:, :1] + rng.standard_normal((35, 1))
    expected = guess_by_sklearn(columns, values, train)
    np.testing.assert_allclose(predict_known(values, columns, train), expected)
    twice = np.hstack([columns, columns[:, :1]])
    np.testing.assert_allclose(predict_known(values, twice, train), expected, err_msg="collinear columns count once")


def test_one_far_person_who_is_tested_is_not_extrapolated_to():
    rng = np.random.default_rng(0)
    known = rng.standard_normal((30, 1))
    known[0] = 50.0
    values = known.clip(-3, 3) + 0.1 * rng.standard_normal((30, 1))
    train = np.arange(1, 30)
    found = predict_known(values, known, train)
    np.testing.assert_allclose(found, guess_by_sklearn(known, values, train))
    assert abs(values - found)[0, 0] < 3


def test_the_sign_of_a_composite_of_opposed_measures_is_that_of_the_first_in_every_fold():
    """Their cubed loadings add up to rounding, which must not decide."""
    rng = np.random.default_rng(0)
    accuracy = rng.standard_normal(60)
    measures = np.column_stack([accuracy, -accuracy + 0.3 * rng.standard_normal(60)])
    for _ in range(40):
        train = rng.permutation(60)[:48]
        assert fit_composite(measures, train)[2][0] > 0
