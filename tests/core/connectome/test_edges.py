"""Edges against numpy's own indexing, and the identities the kernels rely on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.core.connectome.edges import edge_count, parcel_means, rebuild_matrix, vectorise_edges


def symmetric(n_parcels, *leading, seed=0):
    half = np.random.default_rng(seed).standard_normal((*leading, n_parcels, n_parcels))
    return half + np.swapaxes(half, -1, -2)


def test_agrees_with_the_reference_vectors(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        np.testing.assert_array_equal(vectorise_edges(golden["corr"], weighted=False), golden["X_triu"])
        np.testing.assert_allclose(vectorise_edges(golden["corr"]) / np.sqrt(2), golden["X_triu"], rtol=1e-15)


@given(st.integers(1, 12), st.integers(0, 3), st.booleans(), st.integers(0, 99))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rebuild_inverts_vectorise(n_parcels, n_leading, weighted, seed):
    matrices = symmetric(n_parcels, *([2] * n_leading), seed=seed)
    edges = vectorise_edges(matrices, weighted)
    assert edges.shape == (*matrices.shape[:-2], edge_count(n_parcels))
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    np.testing.assert_allclose(rebuild_matrix(edges, diagonal, weighted), matrices, rtol=1e-15)


def test_input_is_left_alone_and_single_precision_is_kept():
    matrix = symmetric(5).astype(np.float32)
    before = matrix.copy()
    assert vectorise_edges(matrix).dtype == np.float32
    assert rebuild_matrix(vectorise_edges(matrix)).dtype == np.float32
    np.testing.assert_array_equal(matrix, before)


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="square"):
        vectorise_edges(np.ones((3, 4)))
    with pytest.raises(ValueError, match="5 is not the number of edges"):
        rebuild_matrix(np.ones(5))


def test_the_mean_of_a_parcel_is_that_of_its_row_without_the_diagonal():
    matrix = np.random.default_rng(0).standard_normal((6, 6))
    matrix = matrix + matrix.T
    np.fill_diagonal(matrix, np.nan)
    matrix[0, 1] = matrix[1, 0] = matrix[3] = matrix[:, 3] = np.nan
    means = parcel_means(matrix[np.triu_indices(6, 1)], 6)
    assert np.isnan(means[3])
    kept = [0, 1, 2, 4, 5]
    np.testing.assert_allclose(means[kept], np.nanmean(matrix[kept], axis=1))
