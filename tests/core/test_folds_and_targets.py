"""Folds and MATLAB's random streams; targets against scikit-learn, defined by the training rows alone."""

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

from fcpower_bids.core.folds import check_folds, leave_one_site_out, replicated_folds
from fcpower_bids.core.targets import composite_target, fit_composite, permuted_rows, predict_known, residual_target

quick = settings(max_examples=40, deadline=None, derandomize=True)


@quick
@given(st.lists(st.integers(1, 4), min_size=20, max_size=40), st.integers(2, 5), st.integers(2, 3), st.integers(0, 5))
def test_families_are_whole_and_every_row_is_tested_once(sizes, n_folds, n_inner, seed):
    family = np.repeat(np.arange(len(sizes)), sizes)
    assume(max(sizes) <= (family.size - family.size / n_folds - 4) / n_inner)
    folds = replicated_folds(family.size, n_folds, n_inner, n_repeats=2, seed=seed, families=family)
    check_folds(folds, family.size)
    for repeat in (0, 1):
        tested = np.concatenate([fold.test for fold in folds if fold.repeat == repeat])
        np.testing.assert_array_equal(np.sort(tested), np.arange(family.size))
    for fold in folds:
        assert not set(family[fold.train]) & set(family[fold.test])
        for rows in fold.inner:
            assert not set(family[rows]) & set(family[np.setdiff1d(fold.train, rows)])


def test_seed_decides_and_more_repeats_keep_the_first():
    few, many = replicated_folds(40, 4, 3, 2, seed=7), replicated_folds(40, 4, 3, 5, seed=7)
    other = replicated_folds(40, 4, 3, 2, seed=8)
    for a, b in zip(few, many[:8], strict=True):
        np.testing.assert_array_equal(a.test, b.test)
        assert all(np.array_equal(x, y) for x, y in zip(a.inner, b.inner, strict=True))
    assert any(not np.array_equal(a.test, b.test) for a, b in zip(few, other, strict=True))
    assert any(not np.array_equal(a.test, b.test) for a, b in zip(many[:4], many[4:8], strict=True))


def test_each_site_is_held_out_and_relatives_elsewhere_do_not_train():
    site = np.array(["b"] * 10 + ["a"] * 12 + ["c"] * 9)
    family = np.arange(31)
    family[[0, 15]] = 100
    folds = leave_one_site_out(site, n_inner=3, families=family)
    assert [set(site[fold.test]) for fold in folds] == [{"a"}, {"b"}, {"c"}]
    check_folds(folds, 31)
    assert 0 not in folds[0].train
    assert 15 not in folds[1].train
    assert folds[2].train.size == 22
    for fold in (*folds, *leave_one_site_out(site, n_inner=3, families=family, inner_by_site=True)):
        holders = [i for i, rows in enumerate(fold.inner) if set(family[rows]) & {100}]
        assert len(holders) <= 1
    for fold in leave_one_site_out(site, inner_by_site=True):
        assert [len(set(site[rows])) for rows in fold.inner] == [1, 1]
    with pytest.raises(ValueError, match="too few"):
        leave_one_site_out(["a"] * 6)


def spread(tests, strata):
    """Difference of the most and the fewest people of a stratum in a test set."""
    return np.ptp([np.bincount(strata[rows], minlength=5) for rows in tests], axis=0).max()


def test_strata_are_spread_to_one_person_in_both_loops():
    strata = np.random.default_rng(0).permutation(np.repeat(np.arange(5), (52, 40, 11, 10, 7)))
    folds = replicated_folds(120, 10, 5, 2, seed=1, strata=strata)
    assert spread([fold.test for fold in folds], strata) <= 1
    assert {fold.test.size for fold in folds} == {12}
    assert all(spread(fold.inner, strata) <= 1 for fold in folds)
    assert spread([fold.test for fold in replicated_folds(120, 10, 5, 2, seed=1)], strata) > 2
    assert not np.array_equal(folds[0].test, folds[10].test)


@quick
@given(st.integers(0, 50), st.integers(20, 39), st.floats(0, 0.3))
def test_composite_is_scale_pca_of_complete_rows(seed, n_train, missing):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((40, 1)) * rng.uniform(-1, 1, 5) + 0.7 * rng.standard_normal((40, 5)) + 3
    values[rng.random((40, 5)) < missing] = np.nan
    train = rng.permutation(40)[:n_train]
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


@pytest.mark.parametrize(("strength", "far"), [(0.0, 0.0), (0.2, 0.0), (0.5, 0.0), (2.0, 0.0), (1.0, 50.0)])
def test_known_columns_predict_as_leaving_each_row_out_says(strength, far):
    """By a line within the range of the training rows, drawn to the mean by the slope on rows that are left out."""
    rng = np.random.default_rng(3)
    columns, train = rng.standard_normal((35, 3)), np.arange(25)
    columns[30, 0] += far
    values = strength * columns[:, :1].clip(-3, 3) + rng.standard_normal((35, 1))
    inside = columns.clip(columns[train].min(axis=0), columns[train].max(axis=0))
    left_out = cross_val_predict(LinearRegression(), inside[train], values[train, 0], cv=LeaveOneOut())
    slope, mean = np.clip(np.polyfit(left_out, values[train, 0], 1)[0], 0, 1), values[train].mean()
    expected = mean + slope * (LinearRegression().fit(inside[train], values[train]).predict(inside) - mean)
    found = predict_known(values, columns, train)
    np.testing.assert_allclose(found, expected)
    assert abs(found[30, 0]) < 4, "who is far from the training people is not extrapolated to"
    twice = np.hstack([columns, columns[:, :1]])
    np.testing.assert_allclose(predict_known(values, twice, train), expected, err_msg="collinear columns count once")


def test_the_sign_of_a_composite_of_opposed_measures_is_that_of_the_first_in_every_fold():
    """Their cubed loadings add up to rounding, which must not decide."""
    rng = np.random.default_rng(0)
    accuracy = rng.standard_normal(60)
    measures = np.column_stack([accuracy, -accuracy + 0.3 * rng.standard_normal(60)])
    for _ in range(40):
        train = rng.permutation(60)[:48]
        assert fit_composite(measures, train)[2][0] > 0
