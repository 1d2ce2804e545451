"""Intervals cover what they claim, and claim no more than the people allow."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.clinic.fit import conformal_radius, measure_coverage


@pytest.mark.parametrize("n", [2, 5, 8])
def test_few_people_claim_no_more_than_they_can(n):
    found = conformal_radius(np.arange(1.0, n + 1), np.arange(n), 0.9)
    assert found == (n, pytest.approx(n / (n + 1)))


def test_a_scan_of_a_further_person_is_covered_as_claimed():
    rng, covered = np.random.default_rng(1), []
    for _ in range(300):
        people = np.repeat(np.arange(31), rng.integers(1, 6, 31))
        residuals = rng.normal(size=31)[people] + rng.normal(size=len(people))
        seen = people < 30
        covered.append(np.mean(np.abs(residuals[~seen]) <= conformal_radius(residuals[seen], people[seen])[0]))
    assert 0.88 < np.mean(covered) < 0.95


def test_measured_coverage_leaves_the_own_fold_out():
    assert measure_coverage([1.0, 1.0, 1.0, 50.0], list("abcd"), ["x", "x", "y", "z"], 0.6) == pytest.approx(2 / 3)
    assert np.isnan(measure_coverage([1.0, 2.0], list("ab"), ["x", "x"]))


@pytest.mark.parametrize(("residuals", "level"), [([], 0.9), ([1.0], 0.0), ([1.0], 1.0)])
def test_wrong_arguments_are_refused(residuals, level):
    with pytest.raises(ValueError, match="interval needs"):
        conformal_radius(residuals, residuals, level)
