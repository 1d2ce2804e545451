"""The teacher is the correlation kernel of FC^alpha, in double precision, also for rank-deficient recordings."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import ParcelError, pearson_connectivity
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.pretrain.corpus import teacher_kernel, teacher_vector, teacher_vector_and_rank


def series(length: int, parcels: int = 20, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((length, parcels)) @ rng.standard_normal((parcels, parcels))


@pytest.mark.parametrize("length", [12, 200])
def test_gram_of_teacher_vectors_is_the_correlation_kernel(length):
    recordings = [series(length, seed=seed) for seed in range(6)]
    upper = np.triu_indices(20, 1)
    edges = [spectral_power(pearson_connectivity(x), 0.35)[upper] for x in recordings]
    Z = np.array([teacher_vector(x, 0.35) for x in recordings])
    np.testing.assert_allclose(Z @ Z.T, np.corrcoef(edges), rtol=0, atol=1e-12)


def test_rank_is_that_of_the_recording():
    assert teacher_vector_and_rank(series(12), 0.35)[1] == 11
    assert teacher_vector_and_rank(series(200), 0.35)[1] == 20


def test_bad_parcels_are_named_by_position():
    x = series(40)
    x[:, 3] = 1.0
    with pytest.raises(ParcelError, match="3"):
        teacher_vector(x, 0.35)
    x[:, 3] = np.nan
    with pytest.raises(ParcelError, match="3"):
        teacher_vector(x, 0.35)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_blocks_do_not_matter_and_storage_rounding_is_undone(size):
    Z = np.array([teacher_vector(series(60, seed=seed), 0.35) for seed in range(11)])
    stored = Z.astype(np.float32)
    K = teacher_kernel(lambda a, b: stored[a:b], 11, size)
    assert K.dtype == np.float32
    np.testing.assert_allclose(K, Z @ Z.T, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), 1)


def test_kernel_of_real_recordings(shared):
    """Both ways of decomposing agree on band-passed scans (rank about 130 of 400)."""
    stored = np.load(shared / "data" / "stages" / "timeseries.npz")
    x = stored["sub-001_ses-1"][:, :400].astype(np.float64)
    vector, rank = teacher_vector_and_rank(x, 0.35)
    assert 125 <= rank <= 140
    assert abs(vector.mean()) < 1e-15
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-12)
    matrix = spectral_power(pearson_connectivity(x), 0.35)
    edges = matrix[np.triu_indices(400, 1)]
    assert np.corrcoef(vector, edges)[0, 1] == pytest.approx(1, abs=1e-9)
