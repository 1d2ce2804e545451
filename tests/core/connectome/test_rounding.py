"""Rounded connectomes: the step is read off the values, its eigenvalues are cleared, and real ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.connectome.edges import rounding_step, without_rounding

P, T = 60, 30


@pytest.fixture
def connectome():
    series = np.random.default_rng(0).normal(size=(T, P)) @ np.random.default_rng(1).normal(size=(P, P))
    return np.corrcoef(series.T)


def power(matrix, alpha=0.35, tolerance=1e-10):
    values, vectors = np.linalg.eigh(matrix)
    inside = values > tolerance * values[-1]
    return (vectors[:, inside] * values[inside] ** alpha) @ vectors[:, inside].T


@pytest.mark.parametrize("digits", [2, 3, 6, 9])
def test_the_decimals_are_counted(connectome, digits):
    assert rounding_step(connectome.round(digits)) == pytest.approx(10.0**-digits)


def test_single_precision_and_all_bits_are_told_apart(connectome):
    assert rounding_step(connectome.astype(np.float32)) == 2.0**-24
    assert rounding_step(connectome) == 0.0
    assert rounding_step(np.eye(5)) == 0.0


@pytest.mark.parametrize("digits", [3, 4, 6])
def test_clearing_gives_back_the_rank_and_brings_the_power_nearer(connectome, digits):
    rounded = connectome.round(digits)
    clear, rounding = without_rounding(rounded, rounding_step(rounded))
    values = np.linalg.eigvalsh(clear)
    assert (values > 1e-10 * values[-1]).sum() <= T - 1
    assert rounding.cleared >= P - T + 1
    assert -rounding.lowest < rounding.noise
    assert not rounding.indefinite
    np.testing.assert_allclose(clear, rounded, atol=2 * 10.0**-digits)
    assert (np.diag(clear) == 1).all()
    truth = power(connectome)
    assert np.linalg.norm(power(clear) - truth) < 0.6 * np.linalg.norm(power(rounded) - truth)


def test_a_matrix_of_full_rank_is_left_to_the_bit():
    series = np.random.default_rng(2).normal(size=(500, 20))
    rounded = np.corrcoef(series.T).round(6)
    clear, rounding = without_rounding(rounded, rounding_step(rounded))
    assert (clear == rounded).all()
    assert rounding.cleared == 0


def test_what_rounding_does_not_explain_is_told(connectome):
    values, vectors = np.linalg.eigh(connectome)
    values[0] = -0.2
    indefinite = (vectors * values) @ vectors.T
    assert without_rounding(indefinite.round(6), 1e-6)[1].indefinite
    assert not without_rounding(connectome, 0.0)[1].indefinite


def test_missing_parcels_stay_missing(connectome):
    rounded = connectome.round(4)
    rounded[3] = rounded[:, 3] = np.nan
    clear, _ = without_rounding(rounded, 1e-4)
    assert np.isnan(clear[3]).all()
    assert np.isfinite(np.delete(np.delete(clear, 3, 0), 3, 1)).all()
