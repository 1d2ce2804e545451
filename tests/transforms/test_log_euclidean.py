"""The matrix logarithm as a transform, and its refusal of rank-deficient FC."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.transforms.stateless import LogEuclidean


def test_agrees_with_pyriemann(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        logarithms = LogEuclidean().transform(golden["corr"])
        np.testing.assert_allclose(logarithms, golden["pyriemann_logm"], rtol=0, atol=1e-12)
        tangent = golden["pyriemann_tangent_logeuclid_ref_I"]
    rows, columns = np.triu_indices(24)
    np.testing.assert_allclose(
        logarithms[:, rows, columns] * np.where(rows == columns, 1, np.sqrt(2)), tangent, rtol=0, atol=1e-12
    )


def test_short_scan_is_refused_without_a_choice_and_the_choice_is_recorded():
    connectivity = pearson_connectivity(np.random.default_rng(0).standard_normal((10, 25)))
    with pytest.raises(ValueError, match=r"rank-deficient \(16 of 25.*Give a shrinkage or a floor"):
        LogEuclidean().transform([connectivity])
    for choice, key in (
        ({"eigenvalue_floor": 1e-3}, "EigenvalueFloor"),
        ({"shrink_to_identity": 0.1}, "ShrinkageIntensity"),
    ):
        transform = LogEuclidean(**choice)
        assert np.isfinite(transform.transform([connectivity])).all()
        metadata = transform.metadata(connectivity)
        assert metadata[key] == next(iter(choice.values()))
        assert (metadata["Rank"], metadata["NumberClipped"]) == (9, 16)
