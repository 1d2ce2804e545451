"""Smoothness in time: how like the next volume is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.records import Atlas, Cleaning, Measure, Output, ParcelSeries
from fcpower_bids.schema import Column, join_columns
from fcpower_bids.settings import Method

COLUMNS = join_columns(
    Column.text("Node", "Parcel"),
    Column.number("lag1", "Correlation of the cleaned series with itself one volume later"),
)


def tabulate_smoothness(
    series: ParcelSeries, cleaning: Cleaning, atlas: Atlas, settings: Method
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return one row per parcel."""
    now, later = series.clean[:-1], series.clean[1:]
    lag1 = np.mean(now * later, axis=0) if len(now) else np.nan  # averaged runs have no series
    return pd.DataFrame({"Node": atlas.names, "lag1": lag1}), {}


SMOOTHNESS = Measure(Output("qc", (("desc", "smoothness"),)), COLUMNS, tabulate_smoothness, title="Smoothness")
