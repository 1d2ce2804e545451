"""A figure of matplotlib as SVG text: the pages of a cohort are few, and their drawings many kinds."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fcpower_bids.reports.kit.svg import DOTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # Verdana is as wide where DejaVu is not installed
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fcpower_bids",
    "image.interpolation": "nearest",
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """Yield a figure of so many inches, and a list that afterwards holds its SVG; equal drawings give equal text."""
    import matplotlib  # slow to load, and most pages have none
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    svg: list[str] = []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        yield figure, svg
        buffer = io.StringIO()
        figure.dpi = DOTS
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # savefig draws twice
        svg.append(buffer.getvalue())
