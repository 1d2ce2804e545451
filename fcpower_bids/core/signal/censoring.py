"""Which volumes are used, and what stands in for the others while the series is filtered."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.errors import Unfit

Padding = Literal["even", "constant", "odd"]
"""How a series goes on beyond its ends: all of it mirrored, its end value, or scipy's short point reflection."""

LONGEST_SPLINE = 7
"""Gaps of more volumes get a straight line: of 20 it costs kept ones 1.7 % of their variance, a spline 45 %."""


class Convention(NamedTuple):
    """The choices within interpolation, filter and regression."""

    order: int = 2  # order of the Butterworth filter, before its two passes
    padding: Padding = "even"  # beyond the ends of a series
    longest_spline: int | None = LONGEST_SPLINE  # longest gap in volumes that a cubic spline fills; None for all
    # whether censored volumes at the start and the end repeat the nearest kept one, and the whole series is filtered,
    # instead of being cut off
    hold_ends: bool = False
    always_detrend: bool = False  # whether the straight line is removed even where no high-pass follows
    intercept: bool = True  # whether the regression has an intercept
    # one of "repeat", "zero": first value of a confound whose table lacks it: its second value, or 0
    unknown_first: Literal["repeat", "zero"] = "repeat"


OURS = Convention()

CONVENTIONS = {
    "fcpower": OURS,
    "nilearn": Convention(order=5, padding="odd", longest_spline=None, always_detrend=True),
    "xcp_d": Convention(
        padding="constant",
        longest_spline=None,
        hold_ends=True,
        always_detrend=True,
        intercept=False,
        unknown_first="zero",
    ),
}
"""Ours; `nilearn.signal.clean` (0.14) with its defaults; XCP-D (26) after its removal of dummy volumes."""


def convention_of(name: str, order: int | None = None, padding: str | None = None) -> Convention:
    """Return a convention by name, with another order or padding where one is given."""
    chosen = CONVENTIONS[name]
    return chosen._replace(order=order or chosen.order, padding=cast(Padding, padding or chosen.padding))


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
        unknown = np.flatnonzero(np.isnan(displacement[1:])) + 1
        if unknown.size:
            raise Unfit(
                f"The framewise displacement of {unknown.size} volumes is unknown (the first is volume {unknown[0]}, "
                "counted from 0), so they cannot be judged; turn censoring off (threshold 0) or give the displacement."
            )
        kept = ~(displacement > threshold)
    kept[:dummy_scans] = False
    return kept


def interpolate_censored(
    series: ArrayLike, kept: ArrayLike, longest_spline: int | None = LONGEST_SPLINE
) -> NDArray[np.float64]:
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
    far = after - before > (len(series) if longest_spline is None else longest_spline + 1)
    weight = ((gaps - before) / (after - before))[far, None]
    filled[gaps[far]] = (1 - weight) * series[before[far]] + weight * series[after[far]]
    return filled
