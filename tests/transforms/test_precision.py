"""Precision and partial correlation against nilearn, scikit-learn and the regression that defines them."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import ParcelError
from fcpower_bids.transforms.stateless import Precision, shrunk_covariance


def test_agrees_with_nilearn_and_scikit_learn(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        series = golden["timeseries"]
        precision = Precision().transform(series)
        np.testing.assert_allclose(precision, golden["nilearn_precision_lw_z"], rtol=0, atol=1e-11)
        for one, covariance, shrinkage in zip(
            series, golden["sklearn_ledoit_wolf_cov"], golden["sklearn_ledoit_wolf_shrinkage"], strict=True
        ):
            ours = shrunk_covariance(one)
            np.testing.assert_allclose(ours[0], covariance, rtol=0, atol=1e-12)
            assert ours[1] == pytest.approx(shrinkage, abs=1e-12)
            assert Precision().metadata(one)["ShrinkageIntensity"] == pytest.approx(shrinkage, abs=1e-12)


def test_short_scan_has_an_inverse_through_shrinkage():
    series = np.random.default_rng(0).standard_normal((10, 25))
    precision = Precision().transform([series])[0]
    np.testing.assert_allclose(precision @ shrunk_covariance(series)[0], np.eye(25), atol=1e-11)


def test_units_do_not_matter():
    series = np.random.default_rng(0).standard_normal((30, 5))
    scaled = 7 + series * [1, 10, 100, 0.1, 3]
    np.testing.assert_allclose(Precision().transform([scaled]), Precision().transform([series]), atol=1e-11)


def test_constant_parcel_is_named():
    series = np.random.default_rng(0).standard_normal((30, 5))
    series[:, 3] = 2.5
    series[:, 1] = np.nan
    with pytest.raises(ParcelError, match="constant") as caught:
        Precision().transform([series])
    assert caught.value.parcels == (3,)
