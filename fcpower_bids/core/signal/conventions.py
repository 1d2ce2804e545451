"""Differences between programs in the same steps of cleaning, so that each can be followed to rounding."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

Padding = Literal["even", "constant", "odd"]
"""How a series goes on beyond its ends while it is filtered."""

LONGEST_SPLINE = 7
"""Gaps of more volumes are bridged by a straight line: from here on it is nearer to the truth even without noise."""


class Convention(NamedTuple):
    """The choices within interpolation, filter and regression."""

    order: int = 2  # order of the Butterworth filter, before its two passes
    padding: Padding = "even"  # one of "even", "constant", "odd": see `fcpower_bids.core.signal.filtering.butterworth`
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
