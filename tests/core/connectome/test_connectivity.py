"""FC against numpy's correlation, and parcels without data."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import (
    ParcelError,
    covered_parcels,
    covered_series,
    pearson_connectivity,
)


def draw_series(n_volumes=40, n_parcels=6, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n_volumes, n_parcels)) @ generator.standard_normal((n_parcels, n_parcels))


def test_agrees_with_numpy_and_with_the_reference(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        for series, expected in zip(golden["timeseries"], golden["corr"], strict=True):
            np.testing.assert_allclose(pearson_connectivity(series), expected, atol=1e-14)
            np.testing.assert_allclose(pearson_connectivity(series), np.corrcoef(series.T), atol=1e-14)


def test_uncovered_parcels_are_missing_and_touch_nobody():
    series = draw_series()
    holed = series.copy()
    holed[:, [1, 4]] = np.nan
    connectivity = pearson_connectivity(holed)
    kept = [0, 2, 3, 5]
    np.testing.assert_allclose(connectivity[np.ix_(kept, kept)], pearson_connectivity(series[:, kept]), atol=1e-15)
    assert np.isnan(connectivity[[1, 4]]).all()
    assert np.isnan(connectivity[:, [1, 4]]).all()
    assert covered_parcels(connectivity).tolist() == covered_series(holed).tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_partly_missing_parcel_is_named(value):
    series = draw_series()
    series[3, 2] = value
    with pytest.raises(ParcelError, match=r"some volumes only.*counted from 0: 2") as caught:
        pearson_connectivity(series)
    assert caught.value.parcels == (2,)


@pytest.mark.parametrize("value", [0.0, 0.1, 12345.678])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_parcels_are_named(value, dtype):
    series = draw_series().astype(dtype)
    series[:, [1, 5]] = value
    with pytest.raises(ParcelError, match="constant") as caught:
        pearson_connectivity(series)
    assert caught.value.parcels == (1, 5)


def test_parcel_that_varies_by_rounding_only_is_constant():
    series = draw_series()
    series[:, 3] = 0.1
    series[::2, 3] = np.nextafter(0.1, 1)
    with pytest.raises(ParcelError, match="constant"):
        pearson_connectivity(series)


def test_long_lists_of_parcels_are_cut_in_words_but_not_in_the_error():
    with pytest.raises(ParcelError, match="and 20 more") as caught:
        pearson_connectivity(np.ones((10, 30)))
    assert len(caught.value.parcels) == 30


def test_hopeless_series_are_refused():
    with pytest.raises(ValueError, match="at least 3 volumes"):
        pearson_connectivity(np.ones((2, 4)))
    with pytest.raises(ValueError, match="volumes by parcels"):
        pearson_connectivity(np.ones(7))
    with pytest.raises(ValueError, match="No parcel is covered"):
        pearson_connectivity(np.full((5, 3), np.nan))


def test_connectomes_with_holes_are_refused():
    matrix = np.eye(4)
    matrix[1, 2] = matrix[2, 1] = np.nan
    with pytest.raises(ParcelError) as caught:
        covered_parcels(matrix)
    assert caught.value.parcels == (1, 2)
    with pytest.raises(ValueError, match="square"):
        covered_parcels(np.eye(4)[:3])
    with pytest.raises(ValueError, match="No parcel"):
        covered_parcels(np.full((2, 2), np.nan))
