import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.signal import butter, detrend, sosfiltfilt

from fcpower_bids.core.series import OURS, clean_series, regress_confounds

BAND = (0.01, 0.08)
VOLUMES, PARCELS, CONFOUNDS = 240, 8, 5
EVERYTHING = np.ones(VOLUMES, dtype=bool)


def simulate(seed=0, volumes=VOLUMES):
    """Series that hold the confounds, a drift and a large mean, like BOLD."""
    rng = np.random.default_rng(seed)
    confounds = rng.standard_normal((volumes, CONFOUNDS)).cumsum(axis=0)
    series = rng.standard_normal((volumes, PARCELS)) * 3 + confounds @ rng.standard_normal((CONFOUNDS, PARCELS))
    return 1e4 + series + np.linspace(0, 20, volumes)[:, None], confounds


def scattered(seed=0, share=0.15, volumes=VOLUMES):
    """Kept volumes with losses inside, at both ends, and in mirrored pairs."""
    kept = np.random.default_rng(seed).random(volumes) > share
    kept[[0, 1, 30, volumes - 31, 31, volumes - 32, volumes - 1]] = False
    return kept


def explicit(series, confounds, kept, repetition_time=2.0):
    """Spell the steps out in numpy and scipy: spline, de-trend, filter, censor, least squares, z-score."""
    rows = np.flatnonzero(kept)
    grid = np.arange(rows[0], rows[-1] + 1)
    sections = butter(2, BAND, btype="bandpass", fs=1 / repetition_time, output="sos")

    def prepare(columns):
        whole = detrend(CubicSpline(rows, columns[rows])(grid), axis=0)
        return sosfiltfilt(sections, whole, axis=0, padtype="even", padlen=len(grid) - 1)[kept[grid]]

    data, design = prepare(series), np.column_stack([prepare(confounds), np.ones(len(rows))])
    residuals = data - design @ np.linalg.lstsq(design, data, rcond=None)[0]
    return (residuals - residuals.mean(axis=0)) / residuals.std(axis=0, ddof=1)


@pytest.mark.parametrize("padding", ["odd", "even", "constant"])
@pytest.mark.parametrize(("high_pass", "low_pass"), [(0.01, 0.08), (0.01, None), (None, 0.08)])
@pytest.mark.parametrize("with_confounds", [True, False])
def test_equals_nilearn_where_nothing_is_censored(padding, high_pass, low_pass, with_confounds):
    signal = pytest.importorskip("nilearn.signal")
    series, confounds = simulate()
    confounds = confounds if with_confounds else None
    pad = {} if padding == "odd" else {"butterworth__padtype": padding, "butterworth__padlen": VOLUMES - 1}
    expected = signal.clean(
        series.copy(), confounds=confounds, detrend=high_pass is not None, standardize="zscore_sample", t_r=2.0,
        high_pass=high_pass, low_pass=low_pass, butterworth__order=2, **pad,
    )  # fmt: skip
    ours = clean_series(
        series, confounds, EVERYTHING, 2.0, high_pass, low_pass, convention=OURS._replace(padding=padding)
    )
    np.testing.assert_allclose(ours.series, expected, atol=1e-6)


def test_without_a_filter_equals_nilearn():
    signal = pytest.importorskip("nilearn.signal")
    series, confounds = simulate()
    expected = signal.clean(
        series.copy(), confounds=confounds, detrend=False, standardize="zscore_sample", filter=False
    )
    ours = clean_series(series, confounds, EVERYTHING, 2.0, None, None)
    np.testing.assert_allclose(ours.series, expected, atol=1e-6)
    assert ours.degrees_of_freedom == VOLUMES - CONFOUNDS - 1


@pytest.mark.parametrize("seed", range(3))
def test_censored_series_equals_the_explicit_reference(seed):
    series, confounds = simulate(seed)
    kept = scattered(seed)
    ours = clean_series(series, confounds, kept, 2.0, *BAND)
    np.testing.assert_allclose(ours.series, explicit(series, confounds, kept), atol=1e-8)
    np.testing.assert_array_equal(ours.kept, np.flatnonzero(kept))


@pytest.mark.parametrize("size", [100.0, 1e8, np.nan, np.inf])
def test_spikes_in_censored_volumes_change_nothing(size):
    series, confounds = simulate()
    kept = scattered()
    assert (~kept & ~kept[::-1]).sum() > 4, "some censored volumes have a censored mirror image"
    expected = clean_series(series, confounds, kept, 2.0, *BAND)
    series[~kept] += size * series.std(axis=0)
    confounds[~kept] -= size * confounds.std(axis=0)
    spiked = clean_series(series, confounds, kept, 2.0, *BAND)
    assert np.abs(spiked.series - expected.series).max() < 1e-10


def test_degrees_of_freedom_are_counted():
    series, confounds = simulate(volumes=300)
    kept = np.ones(300, dtype=bool)
    cleaned = clean_series(series, confounds, kept, 2.0, 0.01, 0.1)
    assert (cleaned.n_regressors, cleaned.degrees_of_freedom) == (5, 300 - 191 - 5 - 1)
    assert cleaned.band == (0.01, 0.1)
    kept[100:150] = False
    assert clean_series(series, None, kept, 2.0, 0.01, 0.1).degrees_of_freedom == 250 * 0.36


def test_collinear_and_constant_confounds_are_not_counted():
    series, confounds = simulate()
    expected = clean_series(series, confounds, EVERYTHING, 2.0, *BAND)
    ramp = np.linspace(0, 1, VOLUMES)
    more = np.column_stack([np.full(VOLUMES, 1e3), confounds, 3 * confounds[:, 0] - confounds[:, 1], ramp])
    cleaned = clean_series(series, more, EVERYTHING, 2.0, *BAND)
    assert cleaned.dropped_confounds == (0, CONFOUNDS + 2)
    assert cleaned.n_regressors == CONFOUNDS
    np.testing.assert_allclose(cleaned.series, expected.series, atol=1e-8)


def test_a_confound_that_varies_only_in_censored_volumes_is_dropped():
    series, confounds = simulate()
    kept = scattered()
    outliers = np.column_stack([confounds, (~kept).astype(float)])
    cleaned = clean_series(series, outliers, kept, 2.0, *BAND)
    assert cleaned.dropped_confounds == (CONFOUNDS,)


def test_uncovered_parcels_stay_nan_and_flat_ones_are_named():
    series, confounds = simulate()
    kept = scattered()
    expected = clean_series(series, confounds, kept, 2.0, *BAND).series
    series[:, 2] = np.nan
    series[np.flatnonzero(kept)[7], 4] = np.nan
    series[:, 5] = 812.5
    series[:, 6] = 2 * confounds[:, 0] - 1
    cleaned = clean_series(series, confounds, kept, 2.0, *BAND)
    assert cleaned.flat_parcels == (5, 6)
    assert np.isnan(cleaned.series[:, [2, 4, 5, 6]]).all()
    np.testing.assert_allclose(cleaned.series[:, [0, 1, 3, 7]], expected[:, [0, 1, 3, 7]], atol=1e-10)


def test_a_brain_without_any_covered_parcel_is_nan():
    cleaned = clean_series(np.full((60, 3), np.nan), None, np.arange(60) % 9 != 4, 2.0, *BAND)
    assert np.isnan(cleaned.series).all()


@settings(deadline=None, derandomize=True, max_examples=20)
@given(
    seed=st.integers(0, 1000),
    scale=st.floats(1e-3, 1e3),
    shift=st.floats(-1e5, 1e5),
    parcel=st.integers(0, PARCELS - 1),
)
def test_scale_and_shift_of_a_parcel_or_a_confound_do_not_matter(seed, scale, shift, parcel):
    series, confounds = simulate(seed)
    kept = scattered(seed)
    expected = clean_series(series, confounds, kept, 2.0, *BAND).series
    series[:, parcel] = scale * series[:, parcel] + shift
    confounds[:, parcel % CONFOUNDS] = -scale * confounds[:, parcel % CONFOUNDS] + shift
    np.testing.assert_allclose(clean_series(series, confounds, kept, 2.0, *BAND).series, expected, atol=1e-6)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(seed=st.integers(0, 1000), volumes=st.integers(8, 40), rank=st.integers(1, 6), copies=st.integers(0, 4))
def test_regression_equals_least_squares_with_an_intercept(seed, volumes, rank, copies):
    rng = np.random.default_rng(seed)
    independent = rng.standard_normal((volumes, rank))
    confounds = np.hstack([independent, independent @ rng.standard_normal((rank, copies))])
    series = rng.standard_normal((volumes, 3)) + 5
    design = np.column_stack([independent, np.ones(volumes)])
    expected = series - design @ np.linalg.lstsq(design, series, rcond=None)[0]
    residuals, found = regress_confounds(series, confounds)
    assert found == rank
    np.testing.assert_allclose(residuals, expected, atol=1e-9)


def test_impossible_inputs_are_refused():
    series, confounds = simulate()
    with pytest.raises(ValueError, match="do not belong together"):
        clean_series(series, confounds[:-1], EVERYTHING, 2.0, *BAND)
    with pytest.raises(ValueError, match="do not belong together"):
        clean_series(series, confounds, EVERYTHING[:-1], 2.0, *BAND)
    with pytest.raises(ValueError, match="No volume is kept"):
        clean_series(series, confounds, ~EVERYTHING, 2.0, *BAND)
    with pytest.raises(ValueError, match="Nyquist"):
        clean_series(series, confounds, EVERYTHING, 8.0, *BAND)
    with pytest.raises(ValueError, match="repetition time must be"):
        clean_series(series, confounds, EVERYTHING, 0.0, None, None)
    confounds[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"columns \[1\]"):
        clean_series(series, confounds, EVERYTHING, 2.0, *BAND)


def test_too_little_data_is_refused():
    series, _ = simulate()
    many = np.random.default_rng(0).standard_normal((VOLUMES, 70))
    with pytest.raises(ValueError, match="Nothing is left to analyse"):
        clean_series(series, many, EVERYTHING, 2.0, *BAND)
    with pytest.raises(ValueError, match="too few to filter"):
        clean_series(series, None, np.arange(VOLUMES) < 12, 2.0, *BAND)
    with pytest.raises(ValueError, match="cubic spline"):
        clean_series(series, None, np.isin(np.arange(VOLUMES), [0, 50, 100]), 2.0, *BAND)
    with pytest.raises(ValueError, match="Nothing is left to analyse"):
        clean_series(series, None, np.arange(VOLUMES) == 3, 2.0, None, None)
