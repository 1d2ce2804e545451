"""Filters of the spectrum by their definitions."""

import numpy as np
import pytest

from fcpower_bids.analyses.connectomes import AveragedEdges, PowerFamily
from fcpower_bids.analyses.spectral_filters import (
    FilteredFamily,
    ambiguous_cuts,
    clipped,
    leading_modes,
    profile,
    random_filters,
    single_mode,
)
from fcpower_bids.core.kernels import correlation_kernel
from tests.analyses.cohorts import choose
from tests.analyses.spectral_cohorts import weak_mode_cohort

TOLERANCE = 1e-10


@pytest.fixture(scope="module", params=[True, False], ids=["kept", "computed again"])
def filtered(request):
    cohort = weak_mode_cohort(n_people=10)
    connectivity = AveragedEdges(cohort.edges, [[i] for i in range(10)])
    return FilteredFamily(PowerFamily(connectivity, choose(), keep=request.param))


def test_all_modes_are_fc_power_and_single_modes_add_up_to_it(filtered):
    whole = filtered.family.features(0.35)
    np.testing.assert_allclose(filtered.features(leading_modes(16, 0.35)), whole, atol=1e-12)
    np.testing.assert_allclose(sum(filtered.features(single_mode(i, 0.35)) for i in range(1, 17)), whole, atol=1e-12)
    five = sum(filtered.features(single_mode(i, 0.35)) for i in range(1, 6))
    np.testing.assert_allclose(filtered.features(leading_modes(5, 0.35)), five, atol=1e-12)


def test_single_precision_hardly_changes_a_kernel(filtered):
    single = filtered.features(leading_modes(16, 0.35), np.float32)
    assert single.dtype == np.float32
    double = correlation_kernel(filtered.features(leading_modes(16, 0.35)))
    np.testing.assert_allclose(correlation_kernel(single, dtype=np.float32), double, rtol=0, atol=1e-6)


def test_raw_leading_modes_keep_most_of_fc(filtered):
    fc = filtered.family.connectivity[:] * np.sqrt(2)
    kept = filtered.features(leading_modes(5, 1.0))
    assert np.linalg.norm(kept - fc) < 0.2 * np.linalg.norm(fc)


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


def test_random_filters_are_seeded_and_every_second_one_is_monotone(filtered):
    values = filtered.eigenvalues()
    drawn = list(random_filters(values, TOLERANCE, 20, seed=1))
    again = list(random_filters(values, TOLERANCE, 20, seed=1))
    other = list(random_filters(values, TOLERANCE, 20, seed=2))
    assert [monotone for monotone, _ in drawn] == [True, False] * 10
    for (monotone, weigh), (_, same), (_, different) in zip(drawn, again, other, strict=True):
        weights = weigh(values[0], TOLERANCE)
        np.testing.assert_array_equal(weights, same(values[0], TOLERANCE))
        assert (weights != different(values[0], TOLERANCE)).any()
        assert ((np.diff(weights) <= 1e-12).all()) == monotone
        assert weights.min() >= 1e-2 * (1 - 1e-12)
        assert weights.max() <= 1e2 * (1 + 1e-12)


def test_filters_leave_out_what_is_outside_the_range():
    values = np.array([[3.0, 1.0, 0.5, 1e-15]])
    for _, weigh in random_filters(values, TOLERANCE, 4, seed=0):
        weights = weigh(values[0], TOLERANCE)
        assert weights[3] == 0
        assert (weights[:3] > 0).all()
