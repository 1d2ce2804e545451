"""Degree normalisation by hand and by its invariances."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import ParcelError
from fcpower_bids.transforms.stateless import Degree


def test_by_hand():
    matrix = np.array([[1, 0.5, -0.3], [0.5, 1, 0.1], [-0.3, 0.1, 1]])
    normalised = Degree().transform([matrix])[0]
    assert normalised[0, 1] == pytest.approx(0.5 / np.sqrt(0.8 * 0.6))
    assert normalised[0, 2] == pytest.approx(-0.3 / np.sqrt(0.8 * 0.4))
    np.testing.assert_array_equal(np.diag(normalised), 0)


def test_isolated_parcel_is_named():
    matrix = np.eye(4)
    matrix[:2, :2] = [[1, 0.4], [0.4, 1]]
    with pytest.raises(ParcelError, match="degree is zero") as caught:
        Degree().transform([matrix])
    assert caught.value.parcels == (2, 3)
