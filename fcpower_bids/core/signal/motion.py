"""Head motion: framewise displacement, and the filter that takes breathing out of the motion parameters."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy  # its parts load when they are first used: signal takes half a second
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.errors import Unfit

MotionFilter = Literal["notch", "lp"]
HEAD_RADIUS = 50.0
"""Millimetres; that of Power et al. (2012), and of fMRIPrep."""
PER_MINUTE = 60.0


def framewise_displacement(parameters: ArrayLike, radius: float = HEAD_RADIUS) -> NDArray[np.float64]:
    """Return how far the head moved from each volume to the next, as arcs on a sphere and translations.

    `parameters` (T, 6): three translations in mm, then three rotations in radians. `radius`: of the sphere, in mm.
    Returns (T,): in mm; NaN for the first volume. Power et al. (2012), doi:10.1016/j.neuroimage.2011.10.018.
    """
    steps = np.abs(np.diff(np.asarray(parameters, dtype=np.float64), axis=0))
    return np.concatenate([[np.nan], steps[:, :3].sum(axis=1) + radius * steps[:, 3:].sum(axis=1)])


def filter_motion(
    parameters: ArrayLike, repetition_time: float, kind: MotionFilter, stop: tuple[float, float | None], order: int = 4
) -> NDArray[np.float64]:
    """Take breathing out of motion parameters, as XCP-D does.

    `parameters` (T, 6): without NaN. `repetition_time`: seconds between volumes. `kind`: one of "notch", "lp"; a
    band-stop around the middle of ``stop`` as wide as it, or a low-pass at its lower edge. `stop`: lower and upper edge
    in breaths per minute; the upper one is not used by "lp". What is above the Nyquist frequency is put where it
    appears in the data (`aliased`). `order`: of the whole filter: the low-pass of half that order runs forwards and
    backwards; the notch, of second order, runs forwards and backwards ``order // 4`` times. Returns (T, 6). Raises
    Unfit: if the repetition time leaves no such filter. Fair et al. (2020), doi:10.1016/j.neuroimage.2019.116400
    (notch); Gratton et al. (2020), doi:10.1016/j.neuroimage.2020.116866 (low-pass); XCP-D, ``utils/confounds.py``
    (coefficients and padding).
    """
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
    """Return the frequency in Hz at which one appears when it is sampled once per repetition time.

    Examples
    --------
    >>> round(aliased(0.3, 2.0), 3)  # 18 breaths per minute at 2 s look like 12
    0.2
    """
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
