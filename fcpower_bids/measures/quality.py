"""Tables of every recording: coverage and spectrum of its parcels, and its quality."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.connectome.spectrum import power_weights, spectrum_summary
from fcpower_bids.core.signal.quality import band_leakage
from fcpower_bids.records import Atlas, Cleaning, Measure, Output, ParcelSeries
from fcpower_bids.schema import Column, join_columns
from fcpower_bids.settings import Method

COLUMNS = join_columns(
    Column.text("atlas", "Parcellation"),
    Column.text("state", "done, or excluded when the recording does not pass the quality limits"),
    Column.number("volumes", "Volumes of the file", unit="volumes"),
    Column.number("dummy_volumes", "Volumes dropped at the start", unit="volumes"),
    Column.number("censored_volumes", "Later volumes left out because of motion", unit="volumes"),
    Column.number("empty_volumes", "Volumes left out because they hold one value everywhere", unit="volumes"),
    Column.number("copied_volumes", "Volumes left out because they are copies of earlier ones", unit="volumes"),
    Column.number(
        "stray_volumes", "Volumes left out because a voxel, a parcel or the brain is far off", unit="volumes"
    ),
    Column.number("kept_volumes", "Volumes of the cleaned series", unit="volumes"),
    Column.number("seconds_kept", "Seconds of the cleaned series", unit="s"),
    Column.number("mean_fd", "Mean framewise displacement in mm over the volumes that are not dummies", unit="mm"),
    Column.number("max_fd", "Largest framewise displacement in mm over the volumes that are not dummies", unit="mm"),
    Column.number("n_regressors", "Rank of the nuisance regression"),
    Column.number("degrees_of_freedom", "Effective degrees of freedom left after censoring, filter and regression"),
    Column.number(
        "band_leakage", "Share of power outside the pass-band after cleaning, mean over parcels", unit="share"
    ),
    Column.number("parcels", "Parcels of the atlas"),
    Column.number("uncovered_parcels", "Parcels below the coverage threshold, n/a in every output"),
    Column.number("stray_parcels", "Covered parcels, constant for long or without their level, n/a in every output"),
    Column.number("gain_step", "Largest lasting step of the level of the whole brain", unit="share"),
    Column.number("table_global_signal", "Correlation of the changes of the global signal with those of the table"),
    Column.number("table_dvars", "Correlation of DVARS with that of the table"),
    Column.number("table_lag", "Volumes by which the table must be shifted to fit", unit="volumes"),
    Column.number("table_level", "Level of the series over that of the global signal of the table"),
    Column.number("odd_parts", "Parts of the brain that do not fit the table, though the rest does"),
    Column.number("value_step", "Smallest difference between two values of the brain over its DVARS"),
    Column.number("at_maximum", "Share of the values of the brain that are the largest one", unit="share"),
    Column.number("mean_coverage", "Mean share of voxels with signal per parcel", unit="share"),
    Column.number(
        "mask_dice", "Dice coefficient of the brain mask and the brain of the MNI152 template; n/a in other spaces"
    ),
    Column.number("rank", "Numerical rank of FC"),
    Column.number("clipped", "Eigenvalues of FC below the clipping tolerance"),
    Column.number("participation_ratio", "(sum of eigenvalues)^2 / sum of squares, of FC", unit="modes"),
    Column.number("participation_ratio_power", "The same of FC^alpha", unit="modes"),
)


def tabulate_quality(
    series: ParcelSeries, cleaning: Cleaning, atlas: Atlas, settings: Method
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return one row with the figures of ``COLUMNS``; those of the cleaned series are missing when excluded."""
    after_dummies = np.arange(len(cleaning.kept)) >= cleaning.n_dummy
    fd = cleaning.framewise_displacement[after_dummies]
    stray = np.zeros_like(cleaning.kept) if cleaning.stray is None else cleaning.stray
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
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


QUALITY = Measure(Output("qc", (("desc", "fcpower"),)), COLUMNS, tabulate_quality, of_recording=True, of_excluded=True)


COVERAGE_COLUMNS = join_columns(
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


COVERAGE = Measure(Output("bold", (("stat", "coverage"),)), COVERAGE_COLUMNS, tabulate_coverage, of_excluded=True)


SPECTRUM_COLUMNS = join_columns(
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


SPECTRUM = Measure(Output("eigenvalues", (("desc", "spectrum"),)), SPECTRUM_COLUMNS, tabulate_spectrum)
