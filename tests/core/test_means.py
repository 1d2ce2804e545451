"""Means of connectomes and factor analysis against pyriemann's numbers, scikit-learn, and what defines them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import FactorAnalysis as Referee

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.spd import matrix_log
from fcpower_bids.transforms.fitted import MEANS, riemannian_mean, whiten, whitening
from fcpower_bids.transforms.subspace import FactorAnalysis


def draw_connectomes(n=5, n_parcels=4, n_volumes=50, seed=0):
    generator = np.random.default_rng(seed)
    series = generator.standard_normal((n, n_volumes, n_parcels)) + generator.standard_normal((n, n_volumes, 1))
    return np.stack([pearson_connectivity(one) for one in series])


# pyriemann stops its affine-invariant iteration at a gradient of 1e-8; ours goes on, hence the wider tolerance.
def test_riemannian_mean_is_where_the_tangent_vectors_cancel(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        whitener, _ = whitening(riemannian_mean(golden["corr"]))
        gradient = np.mean([matrix_log(whiten(matrix, whitener)) for matrix in golden["corr"]], axis=0)
    assert np.linalg.norm(gradient) < 1e-9


@pytest.mark.parametrize("name", MEANS)
def test_mean_of_commuting_matrices_is_the_mean_of_numbers(name):
    diagonals = np.array([[1.0, 2.0, 8.0], [4.0, 2.0, 0.5]])
    expected = {
        "harmonic": 2 / (1 / diagonals).sum(axis=0),
        "arithmetic": diagonals.mean(axis=0),
        "logeuclidean": np.sqrt(diagonals.prod(axis=0)),
        "riemannian": np.sqrt(diagonals.prod(axis=0)),
    }[name]
    np.testing.assert_allclose(MEANS[name]([np.diag(row) for row in diagonals]), np.diag(expected), atol=1e-9)


@pytest.mark.parametrize("name", ["harmonic", "logeuclidean", "riemannian"])
def test_singular_matrices_are_refused_and_do_not_become_noise(name):
    with pytest.raises(ValueError, match="rank-deficient"):
        MEANS[name](draw_connectomes(n=1, n_parcels=10, n_volumes=5))


def draw(n=40, width=300, n_factors=3, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    factors, loadings = rng.standard_normal((n, n_factors)), rng.standard_normal((n_factors, width))
    return factors, factors @ loadings + noise * rng.uniform(0.5, 2, width) * rng.standard_normal((n, width)) + 5


@pytest.mark.parametrize("iterations", [1, 4, 10])
@pytest.mark.filterwarnings("ignore:FactorAnalysis did not converge")
def test_every_step_is_that_of_scikit_learn(iterations):
    _, features = draw()
    ours = FactorAnalysis(5, iterations).fit(features)
    theirs = Referee(5, max_iter=iterations, svd_method="lapack").fit(features)
    np.testing.assert_allclose(ours.noise_, theirs.noise_variance_, rtol=1e-4)
    scores, expected = ours.transform(features), theirs.transform(features)
    scores *= np.sign((scores * expected).sum(axis=0))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-3)
    assert iterations == 10 or not ours.converged_
