import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from fcpower_bids.core.series import LONGEST_SPLINE, censor_mask, interpolate_censored


def test_volumes_above_the_threshold_and_dummy_scans_are_not_kept():
    displacement = [np.nan, 0.1, 0.6, 0.5, 0.0, 2.0]
    assert censor_mask(displacement, 0.5).tolist() == [True, True, False, True, True, False]
    assert censor_mask(displacement, 0.5, dummy_scans=2).tolist() == [False, False, False, True, True, False]
    assert censor_mask(displacement, None).all()
    assert censor_mask(displacement, 0, dummy_scans=1).tolist() == [False] + [True] * 5


def test_unknown_displacement_matters_only_with_a_threshold():
    displacement = [np.nan, 0.1, np.nan, 0.1]
    assert censor_mask(displacement, None).all()
    with pytest.raises(ValueError, match="of 1 volumes is unknown"):
        censor_mask(displacement, 0.5)


@pytest.mark.parametrize(("threshold", "dummy_scans"), [(-0.5, 0), (np.nan, 0), (0.5, -1)])
def test_impossible_limits_are_refused(threshold, dummy_scans):
    with pytest.raises(ValueError, match="must not be negative"):
        censor_mask([0.1, 0.2], threshold, dummy_scans)


def test_interpolation_is_the_spline_through_the_kept_volumes():
    rng = np.random.default_rng(0)
    series = rng.standard_normal((60, 3))
    kept = rng.random(60) > 0.3
    kept[[0, -1]] = True
    expected = series.copy()
    for parcel in range(3):
        spline = CubicSpline(np.flatnonzero(kept), series[kept, parcel])
        expected[~kept, parcel] = spline(np.flatnonzero(~kept))
    np.testing.assert_allclose(interpolate_censored(series, kept), expected, atol=1e-12)


def test_long_gaps_are_bridged_by_a_line_and_short_ones_still_by_the_spline():
    series = np.random.default_rng(0).standard_normal((100, 3))
    kept = np.ones(100, dtype=bool)
    kept[10 : 10 + LONGEST_SPLINE] = False
    kept[40 : 41 + LONGEST_SPLINE] = False
    filled = interpolate_censored(series, kept)
    rows = np.flatnonzero(kept)
    short, long = np.arange(10, 10 + LONGEST_SPLINE), np.arange(40, 41 + LONGEST_SPLINE)
    np.testing.assert_allclose(filled[short], CubicSpline(rows, series[rows])(short), atol=1e-12)
    for parcel in range(3):
        np.testing.assert_allclose(filled[long, parcel], np.interp(long, rows, series[rows, parcel]), atol=1e-12)


def test_what_cannot_be_interpolated_is_refused():
    series = np.zeros((10, 2))
    kept = np.ones(10, dtype=bool)
    np.testing.assert_array_equal(interpolate_censored(series, kept), series)
    kept[0] = False
    with pytest.raises(ValueError, match="first and the last"):
        interpolate_censored(series, kept)
    with pytest.raises(ValueError, match="Only 3 volumes"):
        interpolate_censored(series, np.isin(np.arange(10), [0, 4, 9]))
