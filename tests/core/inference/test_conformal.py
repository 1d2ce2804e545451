"""Intervals cover what they claim, at sites that were not seen, and claim no more than the sites allow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fcpower_bids.core.inference.conformal import (
    cautious_radius,
    group_radius,
    measured_coverage,
    recalibrated_residuals,
    shrunken_offset,
)


def shifted_sites(rng, n_sites=20, within=1.0, between=1.0):
    sizes = rng.integers(8, 60, n_sites)
    labels = np.repeat(np.arange(n_sites), sizes)
    return rng.normal(0, between, n_sites)[labels] + rng.normal(0, within, len(labels)), labels


def test_single_members_give_the_quantile_of_split_conformal_prediction():
    residuals = np.random.default_rng(0).normal(size=99)
    expected = np.sort(np.abs(residuals))[math.ceil(100 * 0.9) - 1]
    found = group_radius(residuals, np.arange(99), 0.9)
    assert (found.value, found.level, found.groups) == (expected, 0.9, 99)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_few_groups_claim_no_more_than_they_can(n):
    found = group_radius(np.arange(1.0, n + 1), np.arange(n), 0.9)
    assert found.value == n
    assert found.level == pytest.approx(n / (n + 1))


def test_a_person_of_a_further_site_is_covered_as_claimed():
    rng = np.random.default_rng(1)
    covered, cautious = [], []
    for _ in range(300):
        residuals, sites = shifted_sites(rng, 21)
        seen, new = sites < 20, sites == 20
        covered.append(np.mean(np.abs(residuals[new]) <= group_radius(residuals[seen], sites[seen]).value))
        wide = cautious_radius(residuals[seen], sites[seen])
        cautious.append(np.mean(np.abs(residuals[new]) <= wide.value) >= 0.9)
    assert 0.88 < np.mean(covered) < 0.95
    assert np.mean(cautious) > 0.85


def test_ordinary_residuals_would_not_have_covered_them():
    rng = np.random.default_rng(2)
    residuals, sites = shifted_sites(rng, 40, between=2.0)
    centred = residuals - np.array([residuals[sites == one].mean() for one in range(40)])[sites]
    ordinary = group_radius(centred, np.arange(len(centred))).value
    assert np.mean(np.abs(residuals) <= ordinary) < 0.7
    assert np.nanmean(measured_coverage(residuals, sites)) > 0.85


def test_measured_coverage_leaves_the_own_group_out():
    residuals, sites = np.array([1.0, 1.0, 1.0, 50.0]), np.array(["a", "a", "b", "c"])
    assert measured_coverage(residuals, sites, 0.6).tolist() == [1.0, 1.0, 0.0]
    assert np.isnan(measured_coverage([1.0, 2.0], ["a", "a"])).all()


def test_the_offset_is_the_posterior_mean_of_the_one_way_layout():
    rng = np.random.default_rng(3)
    residuals, sites = shifted_sites(rng, 400, within=2.0, between=3.0)
    local = np.full(5, 4.0)
    assert shrunken_offset(local, residuals, sites) == pytest.approx(4 * 45 / (45 + 4), rel=0.03)
    same = rng.normal(0, 1, 4000)
    assert abs(shrunken_offset(local, same, np.arange(4000) % 20)) < 0.5


def test_local_people_narrow_the_interval_and_keep_the_coverage():
    rng = np.random.default_rng(4)
    residuals, sites = shifted_sites(rng, 40, between=3.0)
    after, whose = recalibrated_residuals(residuals, sites, 10, seed=0)
    assert group_radius(after, whose).value < 0.7 * group_radius(residuals, sites).value
    assert 0.85 < np.mean(measured_coverage(after, whose)) < 0.95
    assert len(recalibrated_residuals(residuals, sites, 1000)[0]) == 0


@pytest.mark.parametrize(("residuals", "level"), [([], 0.9), ([1.0], 0.0), ([1.0], 1.0)])
def test_wrong_arguments_are_refused(residuals, level):
    with pytest.raises(ValueError, match="interval needs"):
        group_radius(residuals, residuals, level)
    with pytest.raises(ValueError, match="two groups"):
        shrunken_offset([1.0], [1.0, 2.0], ["a", "a"])
