"""Intervals cover what they claim, at sites that were not seen, and claim no more than the sites allow."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.slices.clinic.equations import (
    Layout,
    by_third,
    cautious_radius,
    group_radius,
    held_inside,
    local_radii,
    normal_at,
    radii_by_value,
    recalibrated_residuals,
    regress_on_known,
    shrunken_offset,
    site_radius,
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


def test_sites_that_do_not_differ_give_the_quantile_and_equal_members_that_of_t():
    rng = np.random.default_rng(5)
    alike = rng.normal(size=20_000)
    found = site_radius(alike, np.arange(20_000) % 10, 0.9)
    assert found.value == pytest.approx(np.quantile(np.abs(alike), 0.9), rel=1e-3)
    assert (found.level, found.groups) == (0.9, 10)
    shift = rng.normal(size=6)  # members of a site are equal: six values, no more
    expected = np.sort(np.abs(shift))[5] * stats.t.ppf(0.95, 6) / stats.norm.ppf(0.95)
    assert site_radius(np.repeat(shift, 9), np.repeat(np.arange(6), 9), 0.9).value == pytest.approx(expected)


def test_members_of_their_own_are_so_many_sites():
    found = site_radius(np.arange(1.0, 11), np.arange(10), 0.9)
    assert found.value == pytest.approx(9 * stats.t.ppf(0.95, 10) / stats.norm.ppf(0.95))
    assert site_radius([0.0, 0.0], ["a", "b"]).value == 0


LAWS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "heavy": lambda rng, size: rng.standard_t(3, size) / math.sqrt(3),
    "two": lambda rng, size: rng.choice([-1.0, 1.0], size),
}


@pytest.mark.parametrize(("between", "law"), list(itertools.product([0.0, 1.0, 2.0], LAWS)))
def test_few_sites_of_any_shift_are_covered_neither_less_nor_much_more_than_claimed(between, law):
    """The grid of benchmarks/intervals.py, thinned: sizes of sites 5 to 60, members heavy-tailed where sites are."""
    rng = np.random.default_rng(6)
    within = LAWS["heavy" if law == "heavy" else "normal"]
    for n_sites in (5, 12):
        held = []
        for _ in range(300):
            sites = np.repeat(np.arange(n_sites), rng.integers(5, 60, n_sites))
            radius = site_radius(between * LAWS[law](rng, n_sites)[sites] + within(rng, len(sites)), sites).value
            held.append(np.mean(np.abs(between * LAWS[law](rng, 100) + within(rng, 100)) <= radius))
        # standard errors below half a point; two opposite shifts of five sites: all are seen, and widened
        assert 0.85 <= np.mean(held) <= (0.97 if (law, n_sites) == ("two", 5) else 0.95)


def test_ordinary_residuals_would_not_have_covered_them():
    rng = np.random.default_rng(2)
    residuals, sites = shifted_sites(rng, 40, between=2.0)
    centred = residuals - np.array([residuals[sites == one].mean() for one in range(40)])[sites]
    ordinary = group_radius(centred, np.arange(len(centred))).value
    assert np.mean(np.abs(residuals) <= ordinary) < 0.7
    assert np.nanmean(held_inside(residuals, sites, 0 * residuals)) > 0.85


def test_measured_coverage_leaves_the_own_group_out():
    residuals, sites = np.array([1.0, 1.0, 1.0, 50.0]), np.array(["a", "a", "b", "c"])
    assert held_inside(residuals, sites, residuals, 0.6).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert np.isnan(held_inside([1.0, 2.0], ["a", "a"], [1.0, 2.0])).all()
    rng = np.random.default_rng(7)
    residuals, sites = shifted_sites(rng, 6)
    predicted = rng.standard_normal(len(sites))
    found = held_inside(residuals, sites, predicted, radius=site_radius)
    for one in range(6):
        others = sites != one
        edges = np.quantile(predicted[others], [1 / 3, 2 / 3])
        for part in range(3):
            inside = np.digitize(predicted, edges) == part
            radius = site_radius(residuals[others & inside], sites[others & inside]).value
            own = inside & ~others
            assert (found[own] == (np.abs(residuals[own]) <= radius)).all()


def test_each_third_of_the_predicted_values_has_its_own_width():
    rng = np.random.default_rng(8)
    predicted = rng.standard_normal(6000)
    residuals = rng.standard_normal(6000) * np.exp(predicted)
    found = radii_by_value(residuals, np.arange(6000), predicted)
    inside = np.abs(residuals) <= found.at(predicted)
    np.testing.assert_allclose(by_third(inside, predicted), 0.9, atol=0.002)
    one = group_radius(residuals, np.arange(6000)).value
    assert by_third(np.abs(residuals) <= one, predicted)[2] < 0.75
    few = radii_by_value(residuals[:80], np.arange(80), predicted[:80])
    assert (few.edges, few.each) == ((), (group_radius(residuals[:80], np.arange(80)),))


def test_the_corrected_gap_does_not_go_with_the_known_value():
    rng = np.random.default_rng(9)
    known = rng.normal(50, 10, 4000)
    predicted = 50 + 0.4 * (known - 50) + rng.normal(0, 5, 4000)
    line = regress_on_known(predicted, known)
    reference = stats.linregress(known, predicted)
    assert (line.slope, line.intercept) == pytest.approx((reference.slope, reference.intercept))
    gaps = np.array([line.gap(*pair) for pair in zip(predicted, known, strict=True)])
    assert abs(np.corrcoef(gaps[:, 0], known)[0, 1]) < 1e-9 < 0.7 < abs(np.corrcoef(predicted - known, known)[0, 1])
    assert np.mean(np.abs(gaps[:, 0]) < 1.645 * gaps[:, 1]) == pytest.approx(0.9, abs=0.02)
    assert regress_on_known([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]) is None


def test_a_reference_follows_motion_and_a_constant_has_no_slope():
    rng = np.random.default_rng(10)
    about = np.column_stack([rng.standard_normal(300), np.zeros(300)])
    mean, sd, slopes = normal_at(5 + 2 * about[:, 0] + rng.normal(0, 0.5, 300), about)
    assert (mean, sd, slopes[0]) == pytest.approx((5, 0.5, 2), rel=0.08)
    assert slopes[1] == 0
    values = about[:10, 0]
    few = normal_at(values, about[:10])
    assert few[:2] == pytest.approx((values.mean(), values.std(ddof=1)))
    assert not few[2].any()


def test_the_offset_is_the_posterior_mean_of_the_one_way_layout():
    rng = np.random.default_rng(3)
    residuals, sites = shifted_sites(rng, 400, within=2.0, between=3.0)
    local = np.full(5, 4.0)
    assert shrunken_offset(local, Layout.of(residuals, sites)) == pytest.approx(4 * 45 / (45 + 4), rel=0.03)
    same = rng.normal(0, 1, 4000)
    assert abs(shrunken_offset(local, Layout.of(same, np.arange(4000) % 20))) < 0.5


def test_local_people_narrow_the_interval_and_keep_the_coverage():
    rng = np.random.default_rng(4)
    residuals, sites = shifted_sites(rng, 40, between=3.0)
    after, whose = recalibrated_residuals(residuals, sites, 10, seed=0)
    assert group_radius(after, whose).value < 0.7 * group_radius(residuals, sites).value
    assert 0.85 < np.mean(held_inside(after, whose, 0 * after)) < 0.95
    radii = local_radii(residuals, sites, (2, 10, 1000))
    assert sorted(radii) == [2, 10]
    assert radii[10].value < radii[2].value < site_radius(residuals, sites).value
    assert len(recalibrated_residuals(residuals, sites, 1000)[0]) == 0


@pytest.mark.parametrize(("residuals", "level"), [([], 0.9), ([1.0], 0.0), ([1.0], 1.0)])
def test_wrong_arguments_are_refused(residuals, level):
    with pytest.raises(ValueError, match="interval needs"):
        group_radius(residuals, residuals, level)
    with pytest.raises(ValueError, match="two groups"):
        shrunken_offset([1.0], Layout.of([1.0, 2.0], ["a", "a"]))
