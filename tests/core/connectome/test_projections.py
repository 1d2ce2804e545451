"""The co-skewness Gram matrix against the tensor itself, and FC of projected series against their correlation."""

import numpy as np

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.projections import coskewness_gram, leading_directions, project_connectivity


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return rng.gamma(2.0, size=(70, 7)) @ (np.eye(7) + 0.4 * rng.standard_normal((7, 7)))


def test_the_gram_matrix_is_that_of_the_unfolded_tensor():
    series = draw()
    standard = (series - series.mean(axis=0)) / series.std(axis=0)
    tensor = np.einsum("ti,tj,tk->ijk", standard, standard, standard) / 70
    unfolded = tensor.reshape(7, 49)
    got = coskewness_gram(series)
    np.testing.assert_allclose(got / np.trace(got), unfolded @ unfolded.T / np.sum(unfolded**2), atol=1e-12)
    np.testing.assert_allclose(np.diag(got), np.sum(unfolded**2, axis=1), rtol=0.05)


def test_no_other_directions_keep_more():
    gram = coskewness_gram(draw())
    kept = leading_directions(gram, 3)
    np.testing.assert_allclose(kept.T @ kept, np.eye(3), atol=1e-12)
    rng = np.random.default_rng(1)
    others = [np.linalg.qr(rng.standard_normal((7, 3)))[0] for _ in range(200)]
    assert max(np.trace(each.T @ gram @ each) for each in others) < np.trace(kept.T @ gram @ kept)


def test_fc_of_projected_series_follows_from_fc():
    series = draw()
    directions = np.linalg.qr(np.random.default_rng(2).standard_normal((7, 4)))[0]
    projected = (series - series.mean(axis=0)) / series.std(axis=0) @ directions
    got = project_connectivity(pearson_connectivity(series), directions)
    np.testing.assert_allclose(got, np.corrcoef(projected.T), atol=1e-12)
