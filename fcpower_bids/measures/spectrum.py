"""The eigenvalues of the connectome before and after flattening."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.connectome.spectrum import power_weights, spectrum_summary
from fcpower_bids.records import Atlas, Cleaning, Measure, Output, ParcelSeries
from fcpower_bids.schema import Column, join_columns
from fcpower_bids.settings import Method

COLUMNS = join_columns(
    Column.number("rank", "Place of the eigenvalue, the largest first"),
    Column.number("eigenvalue", "Eigenvalue of FC over the covered parcels"),
    Column.number("eigenvalue_power", "The eigenvalue raised to Alpha; 0 where it is below the clipping tolerance"),
)
NAMES = {
    "rank": "Rank",
    "n_clipped": "NumberClipped",
    "participation_ratio": "ParticipationRatio",
    "participation_ratio_power": "ParticipationRatioPower",
    "first_to_twentieth": "FirstToTwentieth",
    "first_to_twentieth_power": "FirstToTwentiethPower",
    "first_to_last": "FirstToLast",
    "first_to_last_power": "FirstToLastPower",
    "heat_trace": "HeatTrace",
    "arclength": "Arclength",
}
"""Figures of the spectrum as the sidecar calls them; Power marks those of FC^alpha."""


def tabulate_spectrum(
    series: ParcelSeries, cleaning: Cleaning, atlas: Atlas, settings: Method
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return one row per eigenvalue, with rank, clipped eigenvalues and participation ratios as metadata."""
    covered = covered_parcels(series.connectivity)
    eigenvalues, _ = eigendecompose(series.connectivity[np.ix_(covered, covered)])
    weights = power_weights(eigenvalues, settings.alpha)
    table = pd.DataFrame(
        {"rank": np.arange(1, len(eigenvalues) + 1), "eigenvalue": eigenvalues, "eigenvalue_power": weights}
    )
    facts = {NAMES[key]: value for key, value in spectrum_summary(eigenvalues, settings.alpha).items()}
    return table, {"Alpha": settings.alpha, **facts}


SPECTRUM = Measure(Output("eigenvalues", (("desc", "spectrum"),)), COLUMNS, tabulate_spectrum, follows=True)
