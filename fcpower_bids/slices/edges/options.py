"""Options of the analysis of edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fcpower_bids.options import Choices, refines


@dataclass(frozen=True)
class EdgeChoices(Choices):
    """Networks of edges."""

    nbs_threshold: float | None = refines(
        None, "edges: |t| above which edges form networks [that of p = 0.001]", reader="edges"
    )


def check_threshold(settings: EdgeChoices) -> Iterator[str]:
    """Yield a sentence for a threshold that no t can be compared with."""
    threshold = settings.nbs_threshold
    if threshold is not None and threshold <= 0:
        yield f"--nbs-threshold {threshold} is a size of t and must be above 0."
