"""Filters of the spectrum by their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.analyses.features import AveragedEdges, PowerFamily
from fcpower_bids.analyses.spectrum.controls import (
    ambiguous_cuts,
    clipped,
    filtered_features,
    knot_weights,
    modes,
    profile,
    random_heights,
)
from tests.analyses.cohorts import choose
from tests.analyses.spectral_cohorts import weak_mode_cohort

TOLERANCE = 1e-10


@pytest.fixture(scope="module", params=[True, False], ids=["kept", "computed again"])
def family(request):
    cohort = weak_mode_cohort(n_people=10)
    connectivity = AveragedEdges(cohort.edges, [[i] for i in range(10)])
    return PowerFamily(connectivity, choose(), keep=request.param)


def test_all_modes_are_fc_power_and_single_modes_add_up_to_it(family):
    whole = family.features(0.35)
    np.testing.assert_allclose(filtered_features(family, modes(0, 16, 0.35)), whole, atol=1e-12)
    np.testing.assert_allclose(
        sum(filtered_features(family, modes(i - 1, i, 0.35)) for i in range(1, 17)), whole, atol=1e-12
    )
    five = sum(filtered_features(family, modes(i - 1, i, 0.35)) for i in range(1, 6))
    np.testing.assert_allclose(filtered_features(family, modes(0, 5, 0.35)), five, atol=1e-12)


def test_profile_has_the_numbers_of_the_paper():
    weights = profile(np.linspace(30, 0.1, 400), TOLERANCE)
    assert weights[0] == 10
    assert weights[19] == 1
    assert (weights[20:380] == 0.01).all()
    assert weights[380] == 0.5
    assert weights[399] == 0.05
    deficient = profile(np.append(np.linspace(30, 0.1, 100), np.zeros(300)), TOLERANCE)
    assert (deficient[100:] == 0).all()
    assert deficient[99] == 0.05
    assert profile(np.array([2.0, 1.0, 0.5]), TOLERANCE)[0] == 10


def test_clipping():
    np.testing.assert_array_equal(clipped(np.array([9.0, 5.0, 2.0, 1e-16]), TOLERANCE), [5, 5, 2, 0])


def test_cuts_inside_a_cluster_are_counted():
    values = np.array([[5.0, 2, 2, 1, 1e-17, 0], [5, 2, 2 - 1e-6, 1, 1e-17, 0], [5, 2, 2 - 1e-9, 1, 1e-17, 0]])
    assert ambiguous_cuts(values, (2,), TOLERANCE) == 2
    assert ambiguous_cuts(values, (1, 2), TOLERANCE) == 2
    assert ambiguous_cuts(values, (1,), TOLERANCE) == 0
    assert ambiguous_cuts(values, (0, 5, 6), TOLERANCE) == 0


def test_random_filters_are_seeded_and_every_second_one_is_monotone(family):
    basis = knot_weights(family.eigenvalues, TOLERANCE)[0]
    drawn, again, other = (list(random_heights(20, seed)) for seed in (1, 1, 2))
    assert [monotone for monotone, _ in drawn] == [True, False] * 10
    for (monotone, heights), (_, same), (_, different) in zip(drawn, again, other, strict=True):
        np.testing.assert_array_equal(heights, same)
        weights = heights @ basis
        assert (weights != different @ basis).any()
        assert ((np.diff(weights) <= 1e-12).all()) == monotone
        assert weights.min() >= 1e-2 * (1 - 1e-12)
        assert weights.max() <= 1e2 * (1 + 1e-12)


def test_knots_divide_the_range_of_log_lambda_and_leave_out_the_rest():
    values = np.array([[np.e**7, np.e**2.25, 1.0, 1e-15], [np.e**3, np.e, 1.0, 1.0]])
    basis = knot_weights(values, TOLERANCE)
    np.testing.assert_allclose(basis.sum(axis=1), [[1, 1, 1, 0], [1, 1, 1, 1]], atol=1e-12)
    np.testing.assert_allclose(basis[0, :, 1], [0, 0, 0.75, 0.25, 0, 0, 0, 0], atol=1e-12)
    assert basis[0, 7, 0] == 1
    assert basis[1, 3, 0] == pytest.approx(1)
