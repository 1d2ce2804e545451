"""Weights of the eigenvalues: closed forms, limits, and the clip rule."""

import numpy as np
import pytest
from hypothesis import strategies as st

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome.spectrum import (
    clip_tolerance,
    in_range,
    n_clipped,
    power_weights,
    rank,
    regularise,
    spectrum_summary,
)

SPECTRUM = np.array([12.0, 3.0, 1.0, 0.2, 1e-3])
DEFICIENT = np.array([5.0, 1.0, 3e-15, 0.0, -2e-15])

spectra = st.lists(st.floats(1e-4, 100), min_size=1, max_size=8).map(np.array)


def test_rounding_zeros_get_weight_zero_whatever_their_sign():
    for alpha in (0.1, ALPHA_STAR, 0, -1):
        np.testing.assert_array_equal(power_weights(DEFICIENT, alpha), [5.0**alpha, 1, 0, 0, 0])
    assert (rank(DEFICIENT), n_clipped(DEFICIENT)) == (2, 3)


def test_negative_eigenvalues_are_clipped_not_reflected():
    np.testing.assert_array_equal(power_weights([2.0, -1.5], 1), [2, 0])
    assert n_clipped([2.0, -1.5]) == 1
    assert not in_range([-1.0, -2.0]).any()


def test_tolerance_is_relative_to_the_largest():
    assert rank([1e6, 2e-4]) == 2
    assert rank([1e6, 0.5e-4]) == 1
    assert rank([1.0, 1e-6], clip_tolerance(np.float32)) == 1
    assert clip_tolerance(np.float64) < clip_tolerance(np.float32)


def test_floor_and_shrinkage_make_it_full_rank():
    np.testing.assert_array_equal(regularise(DEFICIENT, floor=0.01), [5, 1, 0.01, 0.01, 0.01])
    np.testing.assert_allclose(regularise(DEFICIENT, shrinkage=0.5), 0.5 * DEFICIENT + 0.5 * 1.2)
    np.testing.assert_array_equal(regularise(SPECTRUM), SPECTRUM)
    np.testing.assert_array_equal(DEFICIENT[1:4], [1.0, 3e-15, 0.0])


@pytest.mark.parametrize("choice", [{"floor": 0.0}, {"floor": -1.0}, {"shrinkage": -0.1}, {"shrinkage": 1.1}])
def test_senseless_floor_and_shrinkage_are_refused(choice):
    with pytest.raises(ValueError, match="must"):
        regularise(SPECTRUM, **choice)
    with pytest.raises(ValueError, match="rank-deficient"):
        regularise(DEFICIENT, shrinkage=0.0)


def test_summary_by_hand():
    eigenvalues = np.geomspace(100, 1, 21)
    summary = spectrum_summary(eigenvalues[::-1], alpha=0.5)
    assert summary["rank"] == 21
    assert summary["n_clipped"] == 0
    assert summary["participation_ratio"] == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues @ eigenvalues))
    assert summary["participation_ratio_power"] == pytest.approx(np.sqrt(eigenvalues).sum() ** 2 / eigenvalues.sum())
    assert summary["first_to_twentieth"] == pytest.approx(100 / eigenvalues[19])
    assert summary["first_to_last"] == pytest.approx(100)
    assert summary["first_to_last_power"] == pytest.approx(10)
    assert summary["heat_trace"] == pytest.approx((eigenvalues / 100) ** 0.5 @ np.ones(21))
    assert summary["arclength"] == pytest.approx(0.5 * np.sqrt((np.log(eigenvalues) ** 2).sum()))


def test_summary_says_nothing_about_what_is_not_there():
    summary = spectrum_summary(DEFICIENT)
    for name in ("first_to_twentieth", "first_to_last", "first_to_last_power", "arclength"):
        assert np.isnan(summary[name]), name
    assert summary["participation_ratio"] == pytest.approx(36 / 26)
    assert (summary["rank"], summary["n_clipped"]) == (2, 3)
