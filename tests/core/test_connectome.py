"""FC, its edges, spectrum and powers against numpy, scipy, pyriemann's numbers and algebra; rounded connectomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome import (
    ParcelError,
    covered_parcels,
    covered_series,
    decompose_range,
    eigendecompose,
    matrix_log,
    n_clipped,
    pearson_connectivity,
    power_from_series,
    power_weights,
    rank,
    spectral_map,
    spectral_power,
    spectrum_summary,
)
from fcpower_bids.core.edges import (
    edge_count,
    rebuild_matrix,
    rounding_step,
    vectorise_edges,
    without_rounding,
)


def draw_series(n_parcels=6, n_volumes=40, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n_volumes, n_parcels)) + generator.standard_normal((n_volumes, 1))


def draw_connectome(n_parcels=6, n_volumes=40, seed=0):
    return pearson_connectivity(draw_series(n_parcels, n_volumes, seed))


def test_connectivity_is_that_of_numpy_and_uncovered_parcels_are_missing_and_touch_nobody():
    series = draw_series()
    holed = series.copy()
    holed[:, [1, 4]] = np.nan
    connectivity = pearson_connectivity(holed)
    kept = [0, 2, 3, 5]
    np.testing.assert_allclose(connectivity[np.ix_(kept, kept)], np.corrcoef(series[:, kept].T), rtol=0, atol=1e-14)
    assert np.isnan(connectivity[[1, 4]]).all()
    assert np.isnan(connectivity[:, [1, 4]]).all()
    assert covered_parcels(connectivity).tolist() == covered_series(holed).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("value", "volumes", "parcels", "words"),
    [
        *((value, [3], (2,), r"some volumes only.*counted from 0: 2") for value in (np.nan, np.inf, -np.inf)),
        *((value, range(40), (1, 5), "constant") for value in (0.0, 0.1, 12345.678)),
    ],
)
def test_partly_missing_and_constant_parcels_are_named(value, volumes, parcels, words, dtype):
    series = draw_series().astype(dtype)
    series[np.ix_(volumes, parcels)] = value
    with pytest.raises(ParcelError, match=words) as caught:
        pearson_connectivity(series)
    assert caught.value.parcels == parcels


@given(st.integers(1, 12), st.integers(0, 3), st.booleans(), st.integers(0, 99))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rebuild_inverts_vectorise(n_parcels, n_leading, weighted, seed):
    half = np.random.default_rng(seed).standard_normal((*[2] * n_leading, n_parcels, n_parcels))
    matrices = half + np.swapaxes(half, -1, -2)
    edges = vectorise_edges(matrices, weighted)
    assert edges.shape == (*matrices.shape[:-2], edge_count(n_parcels))
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    np.testing.assert_allclose(rebuild_matrix(edges, diagonal, weighted), matrices, rtol=1e-15)


@pytest.mark.parametrize("digits", [3, 4, 6])
def test_clearing_gives_back_the_rank_and_brings_the_power_nearer(digits):
    parcels, volumes = 60, 30
    mixing = np.random.default_rng(1).normal(size=(parcels, parcels))
    connectome = np.corrcoef(mixing @ np.random.default_rng(0).normal(size=(parcels, volumes)))
    rounded = connectome.round(digits)
    clear, _, facts = without_rounding(rounded, rounding_step(rounded))
    values = np.linalg.eigvalsh(clear)
    assert (values > 1e-10 * values[-1]).sum() <= volumes - 1
    assert facts["ClearedEigenvalues"] >= parcels - volumes + 1
    assert -np.linalg.eigvalsh(rounded)[0] < facts["RoundingNoise"]
    assert "LowestEigenvalue" not in facts
    np.testing.assert_allclose(clear, rounded, atol=2 * 10.0**-digits)
    assert (np.diag(clear) == 1).all()
    truth, nearer, farther = (spectral_power(each, 0.35) for each in (connectome, clear, rounded))
    assert np.linalg.norm(nearer - truth) < 0.6 * np.linalg.norm(farther - truth)


def test_a_matrix_of_full_rank_is_left_to_the_bit():
    series = np.random.default_rng(2).normal(size=(500, 20))
    rounded = np.corrcoef(series.T).round(6)
    clear, _, facts = without_rounding(rounded, rounding_step(rounded))
    assert (clear == rounded).all()
    assert facts["ClearedEigenvalues"] == 0


EXPONENTS = st.floats(0.05, 1.5)
quick = settings(deadline=None, derandomize=True, max_examples=30)


@given(EXPONENTS, st.integers(2, 8), st.integers(0, 99))
@quick
def test_power_agrees_with_scipy(alpha, n_parcels, seed):
    matrix = draw_connectome(n_parcels, seed=seed)
    expected = linalg.fractional_matrix_power(matrix, alpha)
    np.testing.assert_allclose(spectral_power(matrix, alpha), expected, atol=1e-10)
    np.testing.assert_allclose(matrix_log(matrix), linalg.logm(matrix), atol=1e-10)


@given(st.integers(4, 30), st.integers(2, 20), EXPONENTS, st.integers(0, 99))
@quick
def test_series_route_equals_matrix_route(n_volumes, n_parcels, alpha, seed):
    series = draw_series(n_parcels, n_volumes, seed)
    expected = spectral_power(pearson_connectivity(series), alpha)
    # Raising a rounding error of 1e-15 in an eigenvalue near the clip to a small power is the limit of both routes.
    np.testing.assert_allclose(power_from_series(3 * series + 1, alpha), expected, atol=1e-9)


@pytest.mark.parametrize("n_volumes", [4, 9, 15, 30])
def test_the_range_gives_the_powers_of_all_eigenvectors(n_volumes):
    """Of low rank by a pivoted Cholesky factor, else by all eigenvectors; parcels in any order."""
    fc = draw_connectome(20, n_volumes, seed=n_volumes)
    values, vectors = decompose_range(fc)
    assert len(values) == (n_volumes - 1 if n_volumes <= 13 else 20)
    assert (np.diff(values) <= 0).all()
    for alpha in (0.05, 0.35, 1.0):
        ours = spectral_map(vectors, power_weights(values, alpha))
        np.testing.assert_allclose(ours, spectral_power(fc, alpha), rtol=0, atol=1e-12)


def test_what_is_not_semidefinite_has_all_its_eigenvalues():
    rng = np.random.default_rng(0)
    half = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    matrix = (half * np.r_[5.0, 3.0, -0.5, np.zeros(9)]) @ half.T
    matrix = (matrix + matrix.T) / 2
    np.testing.assert_array_equal(decompose_range(matrix)[0], eigendecompose(matrix)[0])


def test_rounding_zeros_get_weight_zero_whatever_their_sign():
    deficient = np.array([5.0, 1.0, 3e-15, 0.0, -2e-15])
    for alpha in (0.1, ALPHA_STAR, 0, -1):
        np.testing.assert_array_equal(power_weights(deficient, alpha), [5.0**alpha, 1, 0, 0, 0])
    assert (rank(deficient), n_clipped(deficient)) == (2, 3)


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
