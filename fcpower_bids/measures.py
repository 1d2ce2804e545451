"""Tables of every recording: coverage and spectrum of its parcels, and its quality."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.connectome.spectrum import power_weights, spectrum_summary
from fcpower_bids.core.series import band_leakage
from fcpower_bids.records import Atlas, Cleaning, ParcelSeries
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Method

QUALITY = TABLES["SOURCE_desc-fcpower_qc"]
COVERAGE = TABLES["SOURCE_ATLAS_stat-coverage_bold"]
SPECTRUM = TABLES["SOURCE_ATLAS_desc-spectrum_eigenvalues"]
Measured = tuple[pd.DataFrame, dict[str, Any]]
"""A table, and what its sidecar says."""


def tabulate_quality(series: ParcelSeries, cleaning: Cleaning, atlas: Atlas, settings: Method) -> Measured:
    """Return one row with the figures of the table; those of the cleaned series are missing when excluded."""
    after_dummies = np.arange(len(cleaning.kept)) >= cleaning.n_dummy
    fd = cleaning.framewise_displacement[after_dummies]
    stray = np.zeros_like(cleaning.kept) if cleaning.stray is None else cleaning.stray
    row: dict[str, Any] = dict.fromkeys(QUALITY.columns)
    row |= {
        "atlas": atlas.name,
        "state": "excluded" if cleaning.excluded else "done",
        "volumes": len(cleaning.kept),
        "dummy_volumes": cleaning.n_dummy,
        "censored_volumes": int((after_dummies & ~cleaning.kept & ~stray).sum()),
        "kept_volumes": int(cleaning.kept.sum()),
        "seconds_kept": cleaning.seconds_kept,
        "mean_fd": float(np.nanmean(fd)) if np.isfinite(fd).any() else None,
        "max_fd": float(np.nanmax(fd)) if np.isfinite(fd).any() else None,
        "n_regressors": cleaning.n_regressors,
        "degrees_of_freedom": cleaning.degrees_of_freedom,
        "parcels": atlas.n_parcels,
        "uncovered_parcels": int((series.coverage < settings.min_coverage).sum()),
        "stray_parcels": len(series.stray),
        "mean_coverage": float(series.coverage.mean()),
        "mask_dice": None if series.slices is None else float(series.slices.dice),
        **cleaning.plausibility,
    }
    if not cleaning.excluded:
        row |= _of_clean(series, cleaning, settings)
    return pd.DataFrame([row]), {"Reason": cleaning.excluded} if cleaning.excluded else {}


def _of_clean(series: ParcelSeries, cleaning: Cleaning, settings: Method) -> dict[str, Any]:
    covered = covered_parcels(series.connectivity)
    eigenvalues, _ = eigendecompose(series.connectivity[np.ix_(covered, covered)])
    summary = spectrum_summary(eigenvalues, settings.alpha)
    leakage = band_leakage(series.clean, cleaning.repetition_time, *settings.band, kept=cleaning.kept)
    return {
        "rank": summary["rank"],
        "clipped": summary["n_clipped"],
        "participation_ratio": summary["participation_ratio"],
        "participation_ratio_power": summary["participation_ratio_power"],
        "band_leakage": float(np.nanmean(leakage)),
    }


def tabulate_coverage(series: ParcelSeries, atlas: Atlas, settings: Method) -> Measured:
    """Return one row per parcel, and which parcels fall below ``--min-coverage``."""
    uncovered = [name for name, seen in zip(atlas.names, series.coverage, strict=True) if seen < settings.min_coverage]
    table = pd.DataFrame({"Node": atlas.names, "coverage": series.coverage})
    metadata = {
        "CoverageThreshold": settings.min_coverage,
        "UncoveredNodes": uncovered,
        "MeanCoverage": float(np.mean(series.coverage)),
    }
    return table, metadata


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


def tabulate_spectrum(series: ParcelSeries, settings: Method) -> Measured:
    """Return one row per eigenvalue, with rank, clipped eigenvalues and participation ratios as metadata."""
    covered = covered_parcels(series.connectivity)
    eigenvalues, _ = eigendecompose(series.connectivity[np.ix_(covered, covered)])
    weights = power_weights(eigenvalues, settings.alpha)
    table = pd.DataFrame(
        {"rank": np.arange(1, len(eigenvalues) + 1), "eigenvalue": eigenvalues, "eigenvalue_power": weights}
    )
    facts = {NAMES[key]: value for key, value in spectrum_summary(eigenvalues, settings.alpha).items()}
    return table, {"Alpha": settings.alpha, **facts}
