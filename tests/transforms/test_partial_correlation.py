"""Partial correlation against nilearn and against the correlation of residuals."""

import numpy as np
import pytest

from fcpower_bids.transforms.stateless import PartialCorrelation


@pytest.mark.parametrize("standardised", ["z", "raw"])
def test_agrees_with_nilearn(shared, standardised):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        partial = PartialCorrelation().transform(golden["timeseries"])
        expected = golden[f"nilearn_partial_correlation_lw_{standardised}"]
        np.testing.assert_allclose(partial, expected, rtol=0, atol=1e-12)


def test_is_a_statistic_of_its_own():
    assert PartialCorrelation().entities == (("stat", "partialcorrelation"),)
    partial = PartialCorrelation().transform([np.random.default_rng(0).standard_normal((10, 25))])[0]
    np.testing.assert_array_equal(np.diag(partial), 1.0)
    assert np.abs(partial).max() <= 1
