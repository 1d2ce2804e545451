"""Folds: partitions, whole families, sites, seeds, and MATLAB's random streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fcpower_bids.core.regression.folds import (
    Fold,
    cbig_folds,
    check_folds,
    deal_families,
    folds_table,
    leave_one_site_out,
    replicated_folds,
)

quick = settings(max_examples=40, deadline=None, derandomize=True)


def families_of(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


@quick
@given(st.lists(st.integers(1, 4), min_size=20, max_size=40), st.integers(2, 5), st.integers(2, 3), st.integers(0, 5))
def test_families_are_whole_and_every_row_is_tested_once(sizes, n_folds, n_inner, seed):
    family = families_of(sizes)
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


@quick
@given(st.lists(st.integers(1, 6), min_size=30, max_size=60), st.integers(2, 6), st.integers(0, 3))
def test_fold_sizes_differ_by_less_than_the_largest_family(sizes, n_folds, seed):
    assume(max(sizes) <= sum(sizes) / n_folds)
    counts = np.bincount(deal_families(families_of(sizes), n_folds, np.random.default_rng(seed)))
    assert counts.max() - counts.min() <= max(sizes)


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
    for fold in folds:
        holders = [i for i, rows in enumerate(fold.inner) if set(family[rows]) & {100}]
        assert len(holders) <= 1


def test_inner_loop_can_hold_out_sites_too():
    site = np.repeat(["a", "b", "c"], 6)
    for fold in leave_one_site_out(site, inner_by_site=True):
        assert [len(set(site[rows])) for rows in fold.inner] == [1, 1]
    with pytest.raises(ValueError, match="too few"):
        leave_one_site_out(["a"] * 6)


def test_cbig_families_are_whole_in_the_outer_loop():
    family = [f"f{i // 3}" for i in range(60)]
    folds = cbig_folds([f"s{i}" for i in range(60)], 5, 4, [1, 2], family)
    check_folds(folds, 60)
    for fold in folds:
        assert not {family[i] for i in fold.train} & {family[i] for i in fold.test}


@pytest.mark.parametrize(
    ("fold", "message"),
    [
        (Fold(0, 0, np.array([0, 1, 2]), np.array([2, 3]), (np.array([0]), np.array([1, 2]))), "a row twice"),
        (Fold(0, 0, np.array([0, 1, 2]), np.array([3]), (np.array([0]), np.array([1]))), "inner folds must divide"),
    ],
)
def test_unsound_folds_are_refused(fold, message):
    with pytest.raises(ValueError, match=message):
        check_folds([fold], 4)


def spread(folds, strata):
    """People of every stratum (columns) in every test set (rows)."""
    return np.array([np.bincount(strata[fold.test], minlength=strata.max() + 1) for fold in folds])


def test_strata_are_spread_to_one_person_in_both_loops():
    strata = np.random.default_rng(0).permutation(np.repeat(np.arange(5), (52, 40, 11, 10, 7)))
    folds = replicated_folds(120, 10, 5, 2, seed=1, strata=strata)
    assert np.ptp(spread(folds, strata), axis=0).max() <= 1
    assert {fold.test.size for fold in folds} == {12}
    for fold in folds:
        inner = np.array([np.bincount(strata[rows], minlength=5) for rows in fold.inner])
        assert np.ptp(inner, axis=0).max() <= 1
    by_chance = spread(replicated_folds(120, 10, 5, 2, seed=1), strata)
    assert np.ptp(by_chance, axis=0).max() > 2
    assert not np.array_equal(folds[0].test, folds[10].test)


def test_table_holds_every_membership():
    site = np.array(["a"] * 4 + ["b"] * 5)
    folds = leave_one_site_out(site, n_inner=2, families=[0, 1, 2, 3, 0, 5, 6, 7, 8])
    table = folds_table(folds, 9)
    assert {len(column) for column in table.values()} == {18}
    for fold in folds:
        here = (table["repeat"] == fold.repeat) & (table["fold"] == fold.fold)
        for role, rows in (("test", fold.test), ("train", fold.train)):
            np.testing.assert_array_equal(table["row"][here & (table["role"] == role)], rows)
        for number, rows in enumerate(fold.inner):
            np.testing.assert_array_equal(table["row"][here & (table["inner_fold"] == number)], rows)
        assert (table["inner_fold"][here & (table["role"] != "train")] == -1).all()
    assert (table["role"] == "excluded").sum() == 2
