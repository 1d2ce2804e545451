"""Band-pass filtering of evenly sampled series with censored volumes, without phase shift."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
import scipy  # its `signal` takes half a second and is loaded by the first use: a rehearsal needs none
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.signal.censoring import OURS, Convention, Padding, interpolate_censored
from fcpower_bids.errors import Unfit

Band = tuple[float | None, float | None]
"""Lower and upper edge of the pass-band in Hz; None on a side without a limit."""


def filter_series(
    series: ArrayLike, kept: ArrayLike, repetition_time: float, band: Band, convention: Convention = OURS
) -> NDArray[np.float64]:
    """Fill censored volumes of a series (T, P), de-trend, band-pass (Hz), and return the kept volumes (T_kept, P)."""
    series, kept = np.asarray(series, dtype=np.float64), np.asarray(kept, dtype=bool)
    high_pass, low_pass = band
    line = bool(high_pass) or convention.always_detrend
    filtered = bool(high_pass or low_pass)
    if not series.shape[1] or not (filtered or convention.hold_ends):
        alone = series[kept]
        return scipy.signal.detrend(alone, axis=0) if series.shape[1] and line else alone - alone.mean(axis=0)
    first, last = (0, len(kept) - 1) if convention.hold_ends else np.flatnonzero(kept)[[0, -1]]
    inside = kept[first : last + 1]
    whole = _bridge(series[first : last + 1], inside, convention)
    whole = scipy.signal.detrend(whole, axis=0, type="linear" if line else "constant")
    if filtered:
        whole = butterworth(whole, repetition_time, high_pass, low_pass, convention.order, convention.padding)
    return whole[inside]


def _bridge(series: NDArray[np.float64], kept: NDArray[np.bool_], convention: Convention) -> NDArray[np.float64]:
    """Fill in what is censored; at the ends, where there is no other side, with the nearest kept volume."""
    rows = np.flatnonzero(kept)
    first, last = rows[0], rows[-1]
    bridged = interpolate_censored(series[first : last + 1], kept[first : last + 1], convention.longest_spline)
    if len(bridged) == len(series):
        return bridged
    return np.pad(bridged, ((first, len(series) - 1 - last), (0, 0)), mode="edge")


def butterworth(
    series: ArrayLike,
    repetition_time: float,
    high_pass: float | None,
    low_pass: float | None,
    order: int = OURS.order,
    padding: Padding = OURS.padding,
) -> NDArray[np.float64]:
    """Butterworth filter of a series (T, P) forwards and backwards, edges in Hz (None, 0: none). Raises ValueError."""
    series = np.asarray(series, dtype=np.float64)
    check_band(repetition_time, high_pass, low_pass)
    if not (high_pass or low_pass):
        return series
    sections = _design(repetition_time, high_pass, low_pass, order).copy()
    shortest = 3 * (2 * len(sections) + 1) + 1
    if len(series) < shortest:
        raise Unfit(
            f"{len(series)} volumes are too few to filter: the filter needs at least {shortest}; "
            "leave the recording out or turn the filter off."
        )
    length = None if padding == "odd" else len(series) - 1
    return scipy.signal.sosfiltfilt(sections, series, axis=0, padtype=padding, padlen=length)


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
