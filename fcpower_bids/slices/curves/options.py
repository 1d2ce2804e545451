"""Sizes and lengths of the learning curves."""

from __future__ import annotations

from dataclasses import dataclass

from fcpower_bids.options import Choices, refines


@dataclass(frozen=True)
class CurveChoices(Choices):
    """Points of the curves."""

    scan_minutes: tuple[float, ...] = refines(
        (), "learning_curves: lengths of scan [doubling from 1.2]", reader="learning_curves"
    )
    sample_sizes: tuple[int, ...] = refines(
        (), "learning_curves: numbers of people [25 50 100 150 ...]", reader="learning_curves"
    )
