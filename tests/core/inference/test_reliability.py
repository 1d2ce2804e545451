"""Reliability against Shrout & Fleiss's table, the paper's numbers and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.identification import (
    disattenuated_ceiling,
    spearman_brown,
    split_half_reliability,
)


def test_the_papers_ceiling():
    # Reliability 0.830 of FC^alpha* and r = 0.624 give the ceiling 0.655, and 0.624 is 95 % of it.
    ceiling = disattenuated_ceiling(0.624, 0.830)
    assert round(ceiling, 3) == 0.655
    assert round(0.624 / ceiling, 2) == 0.95
    assert np.isnan(disattenuated_ceiling(0.5, -0.1))
    assert np.isnan(disattenuated_ceiling(-0.1, 0.5)), "what is not predicted has no ceiling"
    assert disattenuated_ceiling(0.4, 1.0) == pytest.approx(0.4)


def test_spearman_brown_by_hand():
    assert spearman_brown(0.5) == pytest.approx(2 / 3)
    assert np.isnan(spearman_brown(-1.0))


def test_split_half_finds_the_reliability_that_was_put_in():
    rng = np.random.default_rng(4)
    truth = rng.standard_normal(4000)
    halves = truth + np.sqrt(2 / 3) * rng.standard_normal((2, 3, 4000))
    result = split_half_reliability(*halves)
    assert result.mean == pytest.approx(0.6, abs=0.02)
    assert result.full == pytest.approx(0.75, abs=0.02)
    assert result.correlations.shape == (3,)
    assert result.correlations[0] == pytest.approx(np.corrcoef(halves[0, 0], halves[1, 0])[0, 1])
    # Both halves together correlate with the truth as the reliability says.
    together = np.corrcoef(halves.mean(axis=0)[0], truth)[0, 1]
    assert together == pytest.approx(np.sqrt(result.full), abs=0.02)


def test_missing_subjects_are_left_out_and_constant_halves_are_nan():
    first = np.array([[1.0, 2, 3, 4, np.nan], [1, 1, 1, 1, 1]])
    second = np.array([[2.0, 1, 4, 3, 9], [1, 2, 3, 4, 5]])
    result = split_half_reliability(first, second)
    np.testing.assert_allclose(result.correlations, [0.6, np.nan])
    assert result.mean == pytest.approx(0.6)
    assert np.isnan(result.sd)
    with pytest.raises(ValueError, match="different shapes"):
        split_half_reliability(first, second[:, :4])
    assert np.isnan(split_half_reliability(first[1], second[1]).full)
