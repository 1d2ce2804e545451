"""Fisher z of the edges."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import ParcelError
from fcpower_bids.transforms.stateless import FisherZ


def test_is_arctanh_with_a_zero_diagonal():
    matrix = np.array([[1, 0.5, -0.2], [0.5, 1, 0], [-0.2, 0, 1]])
    expected = 0.5 * np.log((1 + matrix - np.eye(3)) / (1 - matrix + np.eye(3)))
    np.testing.assert_allclose(FisherZ().transform([matrix])[0], expected, atol=1e-15)
    assert FisherZ().entities == (("stat", "pearsoncorrelation"), ("desc", "fisherz"))


@pytest.mark.parametrize("correlation", [1.0, -1.0])
def test_perfect_correlations_are_named_even_behind_a_missing_parcel(correlation):
    matrix = np.eye(4)
    matrix[2, 3] = matrix[3, 2] = correlation
    matrix[0] = matrix[:, 0] = np.nan
    with pytest.raises(ParcelError, match="perfectly") as caught:
        FisherZ().transform([matrix])
    assert caught.value.parcels == (2, 3)
