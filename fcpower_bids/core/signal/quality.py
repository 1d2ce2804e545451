"""Measures of how clean a series is: its spectrum, power outside the pass-band, DVARS."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.signal.censoring import interpolate_censored
from fcpower_bids.errors import Unfit


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
    series: ArrayLike,
    repetition_time: float,
    high_pass: float | None,
    low_pass: float | None,
    kept: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Share of each parcel's power (P,) outside the pass-band, from one periodogram, gaps filled. Raises ValueError."""
    series = np.asarray(series, dtype=np.float64)
    rows = np.arange(len(series)) if kept is None else np.asarray(kept)
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows
    if len(rows) != len(series):
        raise ValueError(f"The series has {len(series)} rows, but {len(rows)} volumes are marked as kept.")
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


def sphere_radius(volume: float) -> float:
    """Return the radius of a sphere in mm from its volume in cubic mm."""
    return float((3 * volume / (4 * np.pi)) ** (1 / 3))


def _check(frequency: float, width: float, repetition_time: float) -> None:
    """Refuse a filter that the sampling leaves no room for."""
    nyquist = 0.5 / repetition_time
    if not 1e-9 < frequency < nyquist * (1 - 1e-9) or width < 1e-9:
        raise Unfit(
            f"At a repetition time of {repetition_time} s the scan shows up to {nyquist * PER_MINUTE:.3g} breaths per "
            f"minute, and the motion filter would be at {frequency * PER_MINUTE:.3g} with a width of "
            f"{width * PER_MINUTE:.3g}: choose other --band-stop-min and --band-stop-max, or no --motion-filter-type."
        )
