"""A recording at a glance: its carpet before cleaning, small enough for a table of thousands."""

from __future__ import annotations

import numpy as np

from fcpower_bids.reports.kit.figures import shrink
from fcpower_bids.reports.kit.images import encode_png, step_of

ROWS, COLUMNS = 12, 48
"""Largest size in pixels: 0.4 kB."""
LIMIT = 1.0
"""Standard deviations that are white; neighbours that are averaged vary less than each alone."""
GREYS = 15
NO_VALUE = (148, 97, 77)
"""Colour of what has no value."""


def draw_thumbnail(carpet: np.ndarray) -> bytes:
    """Return a carpet in standard deviations, shape (rows, columns), as PNG; NaN has a colour of its own."""
    greys = np.repeat(np.linspace(0, 255, GREYS).round()[:, None], 3, axis=1)
    palette = np.concatenate([greys, [NO_VALUE]]).astype(np.uint8)
    return encode_png(step_of(shrink(carpet, ROWS, COLUMNS), -LIMIT, LIMIT, GREYS), palette)
