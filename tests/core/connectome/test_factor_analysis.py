"""Factor analysis against scikit-learn's exact iteration, and on data whose factors are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.decomposition import FactorAnalysis as Referee

from fcpower_bids.transforms.subspace import FactorAnalysis


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


def test_the_factors_are_recovered_also_of_people_who_were_not_fitted():
    factors, features = draw(n=120)
    fitted = FactorAnalysis(3, 50).fit(features[:80])
    assert fitted.converged_
    assert subspace_angles(fitted.transform(features[80:]), factors[80:]).max() < 0.35
    assert subspace_angles(fitted.transform(features[:80]), factors[:80] - factors[:80].mean(axis=0)).max() < 0.15
