"""FC^alpha against scipy, pyriemann's numbers, and its algebra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from fcpower_bids.core.connectome.connectivity import ParcelError, pearson_connectivity
from fcpower_bids.core.connectome.spd import (
    decompose_range,
    decompose_series,
    eigendecompose,
    matrix_log,
    power_from_series,
    spectral_map,
    spectral_power,
)
from fcpower_bids.core.connectome.spectrum import n_clipped, power_weights, rank

EXPONENTS = st.floats(0.05, 1.5)
quick = settings(deadline=None, derandomize=True, max_examples=30)


def draw_connectome(n_parcels=6, n_volumes=40, seed=0):
    return pearson_connectivity(draw_series(n_parcels, n_volumes, seed))


def draw_series(n_parcels=6, n_volumes=40, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n_volumes, n_parcels)) + generator.standard_normal((n_volumes, 1))


@pytest.mark.parametrize(("alpha", "name"), [(0.5, "sqrtm"), (-0.5, "invsqrtm")])
def test_roots_agree_with_pyriemann(shared, alpha, name):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        for matrix, expected in zip(golden["corr"], golden[f"pyriemann_{name}"], strict=True):
            np.testing.assert_allclose(spectral_power(matrix, alpha), expected, rtol=0, atol=1e-13)


def test_logarithm_agrees_with_pyriemann_and_scipy(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        for matrix, expected in zip(golden["corr"], golden["pyriemann_logm"], strict=True):
            np.testing.assert_allclose(matrix_log(matrix), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(matrix_log(golden["corr"][0]), golden["scipy_logm_s0"], rtol=0, atol=1e-12)
        power = golden["scipy_fractional_power_0.35_s0"]
        np.testing.assert_allclose(spectral_power(golden["corr"][0]), power, rtol=0, atol=1e-12)


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


def test_short_scan_keeps_its_rank_and_no_nan():
    series = draw_series(n_parcels=30, n_volumes=12)
    matrix = pearson_connectivity(series)
    eigenvalues, _ = eigendecompose(matrix)
    assert eigenvalues.min() < 0 < eigenvalues.max()
    assert (rank(eigenvalues), n_clipped(eigenvalues)) == (11, 19)
    powered = spectral_power(matrix)
    assert np.isfinite(powered).all()
    np.testing.assert_allclose(powered, power_from_series(series), atol=1e-12)
    assert np.linalg.matrix_rank(powered) == 11
    assert decompose_series(series)[0].shape == (12,)
    assert rank(decompose_series(series)[0]) == 11


def test_band_passed_scan_keeps_the_rank_of_its_band():
    """128 volumes with content in 10 Fourier frequencies have rank 20, whatever the number of parcels."""
    spectrum = np.zeros((65, 40), complex)
    spectrum[3:13] = np.random.default_rng(0).standard_normal((10, 40, 2)) @ [1, 1j]
    eigenvalues, _ = eigendecompose(pearson_connectivity(np.fft.irfft(spectrum, axis=0)))
    assert rank(eigenvalues) == 20


def test_single_precision_matrices_are_clipped_at_their_own_rounding():
    matrix = draw_connectome(30, 12).astype(np.float32)
    exact = spectral_power(matrix.astype(np.float64), tolerance=1e-5)
    np.testing.assert_array_equal(spectral_power(matrix), exact)
    assert np.linalg.matrix_rank(spectral_power(matrix), tol=1e-3) == 11


def test_missing_parcels_are_named():
    matrix = draw_connectome()
    matrix[3] = matrix[:, 3] = np.nan
    with pytest.raises(ParcelError) as caught:
        spectral_power(matrix)
    assert caught.value.parcels == (3,)
    matrix = draw_connectome()
    matrix[1, 4] = matrix[4, 1] = np.inf
    with pytest.raises(ParcelError) as caught:
        eigendecompose(matrix)
    assert caught.value.parcels == (1, 4)
    series = draw_series()
    series[:, 2] = np.nan
    with pytest.raises(ParcelError) as caught:
        power_from_series(series)
    assert caught.value.parcels == (2,)


def test_what_is_no_connectome_is_refused():
    with pytest.raises(ValueError, match="square"):
        eigendecompose(np.ones((2, 3)))
    with pytest.raises(ValueError, match="symmetric"):
        eigendecompose(np.triu(np.ones((3, 3))))
    with pytest.raises(ValueError, match="same decomposition"):
        spectral_map(np.ones(3), np.eye(4), np.ones(4))


@pytest.mark.parametrize("n_volumes", [4, 9, 15, 30])
def test_the_range_gives_the_powers_of_all_eigenvectors(n_volumes):
    """Of low rank by a pivoted Cholesky factor, else by all eigenvectors; parcels in any order."""
    fc = draw_connectome(20, n_volumes, seed=n_volumes)
    values, vectors = decompose_range(fc)
    assert len(values) == (n_volumes - 1 if n_volumes <= 13 else 20)
    assert (np.diff(values) <= 0).all()
    for alpha in (0.05, 0.35, 1.0):
        ours = spectral_map(values, vectors, power_weights(values, alpha))
        np.testing.assert_allclose(ours, spectral_power(fc, alpha), rtol=0, atol=1e-12)


def test_what_is_not_semidefinite_has_all_its_eigenvalues():
    rng = np.random.default_rng(0)
    half = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    matrix = (half * np.r_[5.0, 3.0, -0.5, np.zeros(9)]) @ half.T
    matrix = (matrix + matrix.T) / 2
    np.testing.assert_array_equal(decompose_range(matrix)[0], eigendecompose(matrix)[0])
