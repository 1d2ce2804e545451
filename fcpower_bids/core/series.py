"""Series of parcels: scaled, censored, filtered and cleaned in one regression, and how well that went."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, cast

import numpy as np
import scipy  # its `signal` takes half a second and is loaded by the first use: a rehearsal needs none
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.errors import Unfit

Padding = Literal["even", "constant", "odd"]
"""How a series goes on beyond its ends: all of it mirrored, its end value, or scipy's short point reflection."""
LONGEST_SPLINE = 7
"""Gaps of more volumes get a straight line: of 20 it costs kept ones 1.7 % of their variance, a spline 45 %."""


ORDER = 2
"""Order of the Butterworth filter, before its two passes."""
PADDING = "even"
SAME_TIME = 1e-3
"""Largest difference, as a share, of two repetition times that are one: headers are stored in single precision."""
MIN_SPLINE_VOLUMES = 4
"""A cubic through fewer points than this is not determined."""


def censor_mask(framewise_displacement: ArrayLike, threshold: float | None, dummy_scans: int = 0) -> NDArray[np.bool_]:
    """Which volumes are kept (T,): no dummy, displacement in mm up to threshold (None, 0: any). Raises ValueError."""
    displacement = np.asarray(framewise_displacement, dtype=np.float64)
    if dummy_scans < 0 or (threshold is not None and not threshold >= 0):
        raise ValueError(
            f"The censoring threshold ({threshold} mm) and the dummy scans ({dummy_scans}) must not be negative."
        )
    kept = np.ones(displacement.shape, dtype=bool)
    if threshold:
        first = max(1, dummy_scans)  # what is dropped need not be judged
        unknown = np.flatnonzero(np.isnan(displacement[first:])) + first
        if unknown.size:
            raise Unfit(
                f"The framewise displacement of {unknown.size} volumes is unknown (the first is volume {unknown[0]}, "
                "counted from 0), so they cannot be judged; turn censoring off (threshold 0) or give the displacement."
            )
        kept = ~(displacement > threshold)
    kept[:dummy_scans] = False
    return kept


def interpolate_censored(series: ArrayLike, kept: ArrayLike) -> NDArray[np.float64]:
    """Replace censored volumes of a series (T, P), unread, by a spline through the kept (T,), a line in long gaps."""
    series, kept = np.asarray(series, dtype=np.float64), np.asarray(kept, dtype=bool)
    if kept.all():
        return series
    if not (kept[0] and kept[-1]):
        raise ValueError("The first and the last volume are censored or unknown; cut them off before interpolating.")
    if kept.sum() < MIN_SPLINE_VOLUMES:
        raise Unfit(
            f"Only {kept.sum()} volumes are kept, but a cubic spline needs {MIN_SPLINE_VOLUMES}; "
            "use a higher threshold or leave the recording out."
        )
    from scipy.interpolate import CubicSpline  # takes a quarter of a second, and the group level needs none

    known, gaps = np.flatnonzero(kept), np.flatnonzero(~kept)
    filled = series.copy()
    filled[gaps] = CubicSpline(known, series[known])(gaps)
    after = np.searchsorted(known, gaps)
    before, after = known[after - 1], known[after]
    far = after - before > LONGEST_SPLINE + 1
    weight = ((gaps - before) / (after - before))[far, None]
    filled[gaps[far]] = (1 - weight) * series[before[far]] + weight * series[after[far]]
    return filled


Band = tuple[float | None, float | None]
"""Lower and upper edge of the pass-band in Hz; None on a side without a limit."""


def filter_series(
    series: ArrayLike,
    kept: ArrayLike,
    repetition_time: float,
    band: Band,
    order: int = ORDER,
    padding: str = PADDING,
) -> NDArray[np.float64]:
    """Fill censored volumes of a series (T, P), de-trend, filter by Butterworth both ways: kept volumes (T_kept, P).

    `band` in Hz, None or 0 for no limit. Raises ValueError.
    """
    series, kept = np.asarray(series, dtype=np.float64), np.asarray(kept, dtype=bool)
    check_band(repetition_time, *band)
    high_pass, low_pass = band
    if not series.shape[1] or not (high_pass or low_pass):
        alone = series[kept]
        return alone - alone.mean(axis=0)
    first, last = np.flatnonzero(kept)[[0, -1]]
    inside = kept[first : last + 1]
    whole = interpolate_censored(series[first : last + 1], inside)
    whole = scipy.signal.detrend(whole, axis=0, type="linear" if high_pass else "constant")
    sections = _design(repetition_time, high_pass, low_pass, order).copy()
    shortest = 3 * (2 * len(sections) + 1) + 1
    if len(whole) < shortest:
        raise Unfit(
            f"{len(whole)} volumes are too few to filter: the filter needs at least {shortest}; "
            "leave the recording out or turn the filter off."
        )
    length = None if padding == "odd" else len(whole) - 1
    filtered = scipy.signal.sosfiltfilt(sections, whole, axis=0, padtype=cast(Padding, padding), padlen=length)
    return np.asarray(filtered[inside])


@lru_cache(maxsize=64)
def _design(repetition_time: float, high_pass: float | None, low_pass: float | None, order: int) -> NDArray[np.float64]:
    """Second-order sections of the filter, (S, 6); the same for all recordings of a protocol."""
    kind: Literal["bandpass", "highpass", "lowpass"]
    kind = "bandpass" if high_pass and low_pass else "highpass" if high_pass else "lowpass"
    edges = [edge for edge in (high_pass, low_pass) if edge]
    corners = edges if len(edges) > 1 else edges[0]
    sections = scipy.signal.butter(order, corners, btype=kind, fs=1 / repetition_time, output="sos")
    return np.asarray(sections)


def filter_degrees_of_freedom(
    n_volumes: int, repetition_time: float, high_pass: float | None, low_pass: float | None
) -> int:
    """Degrees of freedom that a band of width B takes of n volumes: n (1 - 2 B / f_s), less the mean."""
    nyquist = 0.5 / repetition_time
    share = ((low_pass or nyquist) - (high_pass or 0.0)) / nyquist
    return max(0, round(n_volumes * (1.0 - share)) - bool(high_pass))


def check_band(repetition_time: float, high_pass: float | None, low_pass: float | None) -> None:
    """Refuse a pass-band that a series with this repetition time cannot have. Raises ValueError."""
    if not (np.isfinite(repetition_time) and repetition_time > 0):
        raise Unfit(f"The repetition time must be a positive number of seconds, not {repetition_time}.")
    low, high, nyquist = high_pass or 0.0, low_pass or np.inf, 0.5 / repetition_time
    if not 0 <= low < min(high, nyquist):
        raise Unfit(
            f"The pass-band from {high_pass} to {low_pass} Hz is empty at a repetition time of {repetition_time} s; "
            f"the high-pass must be below the low-pass and below {nyquist:.4g} Hz (Nyquist)."
        )
    if low_pass and low_pass >= nyquist:
        raise Unfit(
            f"The low-pass of {low_pass} Hz is not below {nyquist:.4g} Hz, the Nyquist frequency at a repetition time "
            f"of {repetition_time} s; choose a lower one, or 0 for none."
        )


RANK_TOLERANCE = 1e-9
"""Directions of the confounds smaller than this, relative to the largest, are rounding and not regressed."""


class CleanedSeries(NamedTuple):
    """Result of `clean_series`."""

    # (T_kept, P): mean 0 and standard deviation 1 (``ddof=1``) per parcel, so ``series.T @ series / (T_kept - 1)`` is
    # the Pearson correlation; NaN columns for uncovered and flat parcels
    series: NDArray[np.float64]
    kept: NDArray[np.intp]  # (T_kept,): volume of the input that each row comes from
    n_regressors: int  # rank of the regressed confounds
    degrees_of_freedom: int  # kept volumes less those of the filter, the rank of the confounds and the mean
    # columns of the confounds without variance in the kept volumes and the pass-band; they were not regressed
    dropped_confounds: tuple[int, ...]
    # parcels with values but without variance, before or after cleaning; their columns are NaN
    flat_parcels: tuple[int, ...]


def clean_series(
    series: ArrayLike,
    confounds: ArrayLike | None,
    kept: ArrayLike,
    repetition_time: float,
    high_pass: float | None,
    low_pass: float | None,
    order: int = ORDER,
    padding: str = PADDING,
) -> CleanedSeries:
    """Fill, filter, regress and z-score a series (T, P); confounds (T, K) are filtered alike. Raises ValueError.

    Columns that are NaN in a volume of `kept` (T,) are uncovered and stay NaN; the other volumes are not read. Edges
    are in Hz, None for no limit, the repetition time in seconds (Lindquist et al. 2019; Power et al. 2014).
    """
    series, design, kept = _checked(series, confounds, kept)
    band = (high_pass, low_pass)
    covered = np.isfinite(series[kept]).all(axis=0)
    filtered = filter_series(series[:, covered], kept, repetition_time, band, order, padding)
    regressors = filter_series(design, kept, repetition_time, band, order, padding)
    dropped = _is_rounding(regressors, design[kept])
    residuals, rank = regress_confounds(filtered, regressors[:, ~dropped])
    n_kept, lost = int(kept.sum()), filter_degrees_of_freedom(int(kept.sum()), repetition_time, *band)
    if (degrees := n_kept - lost - rank - 1) < 1:
        raise Unfit(
            f"Nothing is left to analyse: of {n_kept} kept volumes the filter takes {lost} degrees of freedom, the "
            f"confounds {rank} and the mean 1; use fewer confounds, a wider pass-band, a higher censoring threshold or "
            "a longer recording."
        )

    flat = _is_rounding(residuals, series[kept][:, covered])
    cleaned = np.full((len(residuals), series.shape[1]), np.nan)
    cleaned[:, np.flatnonzero(covered)[~flat]] = z_score(residuals[:, ~flat])
    return CleanedSeries(
        series=cleaned,
        kept=np.flatnonzero(kept),
        n_regressors=rank,
        degrees_of_freedom=degrees,
        dropped_confounds=tuple(np.flatnonzero(dropped).tolist()),
        flat_parcels=tuple(np.flatnonzero(covered)[flat].tolist()),
    )


def regress_confounds(series: ArrayLike, confounds: ArrayLike) -> tuple[NDArray[np.float64], int]:
    """Residuals (T, P) of a series without its mean and the confounds (T, K), and the number of independent ones."""
    series, design = np.asarray(series, dtype=np.float64), np.asarray(confounds, dtype=np.float64)
    residuals = series - series.mean(axis=0)
    if not design.size:
        return residuals, 0
    design = design - design.mean(axis=0)
    scale = np.linalg.norm(design, axis=0)
    basis, singular, _ = np.linalg.svd(design / np.where(scale > 0, scale, 1.0), full_matrices=False)
    basis = basis[:, singular > RANK_TOLERANCE * singular[0]]
    return residuals - basis @ (basis.T @ residuals), basis.shape[1]


def z_score(series: ArrayLike) -> NDArray[np.float64]:
    """Centre each column of a series (T, P) and divide it by its standard deviation (``ddof=1``)."""
    series = np.asarray(series, dtype=np.float64)
    centred = series - series.mean(axis=0)
    return centred / centred.std(axis=0, ddof=1)


def _checked(
    series: ArrayLike, confounds: ArrayLike | None, kept: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the three arrays in agreement: (T, P), (T, K), (T,)."""
    series, kept = np.asarray(series, dtype=np.float64), np.asarray(kept, dtype=bool)
    design = np.empty((len(series), 0)) if confounds is None else np.asarray(confounds, dtype=np.float64)
    if series.ndim != 2 or design.ndim != 2 or kept.shape != (len(series),) or len(design) != len(series):
        raise ValueError(
            f"Series {series.shape}, confounds {design.shape} and kept volumes {kept.shape} do not belong together: "
            "all need one row per volume."
        )
    if not kept.any():
        raise Unfit("No volume is kept; use a higher censoring threshold or leave the recording out.")
    unknown = np.flatnonzero(~np.isfinite(design[kept]).all(axis=0))
    if unknown.size:
        raise Unfit(f"The confounds in columns {unknown.tolist()} have no value in some kept volumes.")
    return series, design, kept


def _is_rounding(after: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Say of each column whether what is left of it after cleaning is only rounding."""
    if not before.size:
        return np.zeros(before.shape[1], dtype=bool)
    floor = 1e-9 * before.std(axis=0) + 1e-13 * np.abs(before).max(axis=0)
    return after.std(axis=0) <= floor


def power_spectrum(
    series: ArrayLike, repetition_time: float, segment: float | None = 200.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Welch's power spectral density (Hann, half overlap) of a series (T, P): frequencies (F,) in Hz, power (F, P)."""
    series = np.asarray(series, dtype=np.float64)
    volumes = len(series) if segment is None else min(len(series), max(2, round(segment / repetition_time)))
    covered = np.isfinite(series).all(axis=0)
    frequencies, power = scipy.signal.welch(series[:, covered], fs=1 / repetition_time, nperseg=volumes, axis=0)
    spectrum = np.full((len(frequencies), series.shape[1]), np.nan)
    spectrum[:, covered] = power
    return frequencies, spectrum


def band_leakage(
    series: ArrayLike, kept: ArrayLike, repetition_time: float, high_pass: float | None, low_pass: float | None
) -> NDArray[np.float64]:
    """Share of each parcel's power (P,) outside the pass-band, from one periodogram, gaps of `kept` (T,) filled."""
    series, rows = np.asarray(series, dtype=np.float64), np.flatnonzero(kept)
    covered = np.isfinite(series).all(axis=0)
    present = np.zeros(rows[-1] - rows[0] + 1, dtype=bool)
    present[rows - rows[0]] = True
    whole = np.zeros((len(present), int(covered.sum())))
    whole[present] = series[:, covered]
    frequencies, power = power_spectrum(interpolate_censored(whole, present), repetition_time, segment=None)
    outside = (frequencies < (high_pass or 0.0)) | (frequencies > (low_pass or np.inf))
    leakage = np.full(series.shape[1], np.nan)
    leakage[covered] = power[outside].sum(axis=0) / power.sum(axis=0)
    return leakage


MotionFilter = Literal["notch", "lp"]
HEAD_RADIUS = 50.0
"""Millimetres; that of Power et al. (2012), and of fMRIPrep."""
PER_MINUTE = 60.0


def framewise_displacement(parameters: ArrayLike, radius: float = HEAD_RADIUS) -> NDArray[np.float64]:
    """Displacement (T,) in mm of 3 shifts in mm, then 3 rotations in radians (T, 6); first NaN (Power et al. 2012)."""
    steps = np.abs(np.diff(np.asarray(parameters, dtype=np.float64), axis=0))
    return np.concatenate([[np.nan], steps[:, :3].sum(axis=1) + radius * steps[:, 3:].sum(axis=1)])


def filter_motion(
    parameters: ArrayLike, repetition_time: float, kind: MotionFilter, stop: tuple[float, float | None], order: int = 4
) -> NDArray[np.float64]:
    """Motion parameters (T, 6) without breathing, ``stop`` per minute, as in XCP-D (Fair et al. 2020). Raises Unfit."""
    values, rate = np.asarray(parameters, dtype=np.float64), 1 / repetition_time
    edges = [aliased(edge / PER_MINUTE, repetition_time) for edge in stop if edge is not None]
    if kind == "lp":
        _check(edges[0], edges[0], repetition_time)
        coefficients = scipy.signal.butter(order // 2, edges[0], btype="lowpass", fs=rate)
        passes = 1
    else:
        centre, width = float(np.mean(edges)), abs(edges[1] - edges[0])
        _check(centre, width, repetition_time)
        coefficients = scipy.signal.iirnotch(centre, centre / width, fs=rate)
        passes = order // 4
    for _ in range(passes):
        values = scipy.signal.filtfilt(*coefficients, values, axis=0, padtype="constant", padlen=len(values) - 1)
    return values


def aliased(frequency: float, repetition_time: float) -> float:
    """Frequency in Hz at which one appears when it is sampled once per repetition time: 0.3 Hz as 0.2 Hz at 2 s."""
    rate = 1 / repetition_time
    return float(abs(frequency - np.floor((frequency + rate / 2) / rate) * rate))


def _check(frequency: float, width: float, repetition_time: float) -> None:
    """Refuse a filter that the sampling leaves no room for."""
    nyquist = 0.5 / repetition_time
    if not 1e-9 < frequency < nyquist * (1 - 1e-9) or width < 1e-9:
        raise Unfit(
            f"At a repetition time of {repetition_time} s the scan shows up to {nyquist * PER_MINUTE:.3g} breaths per "
            f"minute, and the motion filter would be at {frequency * PER_MINUTE:.3g} with a width of "
            f"{width * PER_MINUTE:.3g}: choose other --band-stop-min and --band-stop-max, or no --motion-filter-type."
        )
