"""Cholesky factors against scipy."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.transforms.stateless import Cholesky, LogCholesky


def test_agrees_with_scipy(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        mirrored = Cholesky().transform(golden["corr"][:1])[0]
        np.testing.assert_allclose(np.tril(mirrored), golden["scipy_cholesky_s0"], rtol=0, atol=1e-13)
        np.testing.assert_allclose(np.tril(mirrored) @ np.tril(mirrored).T, golden["corr"][0], atol=1e-13)


def test_log_euclidean_distance_of_log_cholesky_agrees_with_pyriemann(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        for transform, name in ((Cholesky(), "chol"), (LogCholesky(), "logchol")):
            factors = np.tril(transform.transform(golden["corr"]))
            distances = np.linalg.norm(factors[:, None] - factors[None], axis=(2, 3))
            np.testing.assert_allclose(distances, golden[f"pyriemann_pairdist_{name}"], rtol=0, atol=1e-7)


@pytest.mark.parametrize("transform", [Cholesky, LogCholesky])
def test_short_scan_needs_a_choice(transform):
    connectivity = pearson_connectivity(np.random.default_rng(0).standard_normal((10, 25)))
    with pytest.raises(ValueError, match="rank-deficient"):
        transform().transform([connectivity])
    assert np.isfinite(transform(shrink_to_identity=0.1).transform([connectivity])).all()
