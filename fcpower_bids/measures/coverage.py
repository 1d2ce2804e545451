"""Coverage: how much of each parcel the scan has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.records import Atlas, Cleaning, Measure, Output, ParcelSeries
from fcpower_bids.schema import Column, join_columns
from fcpower_bids.settings import Method

COLUMNS = join_columns(
    Column.text("Node", "Parcel"),
    Column.number(
        "coverage", "Share of the parcel's voxels that are inside the brain mask and have signal", unit="share"
    ),
)


def tabulate_coverage(
    series: ParcelSeries, cleaning: Cleaning, atlas: Atlas, settings: Method
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return one row per parcel, and which parcels fall below ``--min-coverage``."""
    uncovered = [name for name, seen in zip(atlas.names, series.coverage, strict=True) if seen < settings.min_coverage]
    table = pd.DataFrame({"Node": atlas.names, "coverage": series.coverage})
    metadata = {
        "CoverageThreshold": settings.min_coverage,
        "UncoveredNodes": uncovered,
        "MeanCoverage": float(np.mean(series.coverage)),
    }
    return table, metadata


COVERAGE = Measure(Output("bold", (("stat", "coverage"),)), COLUMNS, tabulate_coverage, of_excluded=True)
