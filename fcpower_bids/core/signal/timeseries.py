"""Cleaning of parcel series: interpolate, filter, censor, regress, z-score (docs/cleaning.md)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.signal.censoring import OURS, Convention
from fcpower_bids.core.signal.filtering import Band, check_band, filter_degrees_of_freedom, filter_series
from fcpower_bids.errors import Unfit

RANK_TOLERANCE = 1e-9
"""Directions of the confounds smaller than this, relative to the largest, are rounding and not regressed."""


class CleanedSeries(NamedTuple):
    """Result of `clean_series`."""

    # (T_kept, P): mean 0 and standard deviation 1 (``ddof=1``) per parcel, so ``series.T @ series / (T_kept - 1)`` is
    # the Pearson correlation; NaN columns for uncovered and flat parcels
    series: NDArray[np.float64]
    kept: NDArray[np.intp]  # (T_kept,): volume of the input that each row comes from
    n_regressors: int  # rank of the regressed confounds
    degrees_of_freedom: int  # kept volumes less those of the filter, the rank of the confounds and the mean
    band: Band  # the pass-band in Hz that was applied
    # columns of the confounds without variance in the kept volumes and the pass-band; they were not regressed
    dropped_confounds: tuple[int, ...]
    # parcels with values but without variance, before or after cleaning; their columns are NaN
    flat_parcels: tuple[int, ...]


def clean_series(
    series: ArrayLike,
    confounds: ArrayLike | None,
    kept: ArrayLike,
    repetition_time: float,
    high_pass: float | None,
    low_pass: float | None,
    convention: Convention = OURS,
) -> CleanedSeries:
    """Fill, filter, regress and z-score a series (T, P); confounds (T, K) are filtered alike. Raises ValueError.

    Columns that are NaN in a volume of `kept` (T,) are uncovered and stay NaN; the other volumes are not read. Edges
    are in Hz, None for no limit, the repetition time in seconds (Lindquist et al. 2019; Power et al. 2014).
    """
    series, design, kept = _checked(series, confounds, kept)
    check_band(repetition_time, high_pass, low_pass)
    band = (high_pass, low_pass)
    covered = np.isfinite(series[kept]).all(axis=0)
    filtered = filter_series(series[:, covered], kept, repetition_time, band, convention)
    regressors = filter_series(design, kept, repetition_time, band, convention)
    dropped = _is_rounding(regressors, design[kept])
    residuals, rank = regress_confounds(filtered, regressors[:, ~dropped], convention.intercept)
    degrees = _remaining_degrees_of_freedom(int(kept.sum()), rank, repetition_time, band)

    flat = _is_rounding(residuals, series[kept][:, covered])
    cleaned = np.full((len(residuals), series.shape[1]), np.nan)
    cleaned[:, np.flatnonzero(covered)[~flat]] = z_score(residuals[:, ~flat])
    return CleanedSeries(
        series=cleaned,
        kept=np.flatnonzero(kept),
        n_regressors=rank,
        degrees_of_freedom=degrees,
        band=band,
        dropped_confounds=tuple(np.flatnonzero(dropped).tolist()),
        flat_parcels=tuple(np.flatnonzero(covered)[flat].tolist()),
    )


def regress_confounds(
    series: ArrayLike, confounds: ArrayLike, intercept: bool = True
) -> tuple[NDArray[np.float64], int]:
    """Residuals (T, P) of a series without its mean and the confounds (T, K), and the number of independent ones."""
    series, design = np.asarray(series, dtype=np.float64), np.asarray(confounds, dtype=np.float64)
    residuals = series - series.mean(axis=0) if intercept else series
    if not design.size:
        return residuals, 0
    design = design - design.mean(axis=0) if intercept else design
    scale = np.linalg.norm(design, axis=0)
    basis, singular, _ = np.linalg.svd(design / np.where(scale > 0, scale, 1.0), full_matrices=False)
    basis = basis[:, singular > RANK_TOLERANCE * singular[0]]
    return residuals - basis @ (basis.T @ residuals), basis.shape[1]


def z_score(series: ArrayLike) -> NDArray[np.float64]:
    """Centre each column of a series (T, P) and divide it by its standard deviation (``ddof=1``)."""
    series = np.asarray(series, dtype=np.float64)
    centred = series - series.mean(axis=0)
    return centred / centred.std(axis=0, ddof=1)


def _checked(
    series: ArrayLike, confounds: ArrayLike | None, kept: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the three arrays in agreement: (T, P), (T, K), (T,)."""
    series, kept = np.asarray(series, dtype=np.float64), np.asarray(kept, dtype=bool)
    design = np.empty((len(series), 0)) if confounds is None else np.asarray(confounds, dtype=np.float64)
    if series.ndim != 2 or design.ndim != 2 or kept.shape != (len(series),) or len(design) != len(series):
        raise ValueError(
            f"Series {series.shape}, confounds {design.shape} and kept volumes {kept.shape} do not belong together: "
            "all need one row per volume."
        )
    if not kept.any():
        raise Unfit("No volume is kept; use a higher censoring threshold or leave the recording out.")
    unknown = np.flatnonzero(~np.isfinite(design[kept]).all(axis=0))
    if unknown.size:
        raise Unfit(f"The confounds in columns {unknown.tolist()} have no value in some kept volumes.")
    return series, design, kept


def _remaining_degrees_of_freedom(n_kept: int, rank: int, repetition_time: float, band: Band) -> int:
    """Return what is left, or refuse to go on when nothing is."""
    lost = filter_degrees_of_freedom(n_kept, repetition_time, *band)
    remaining = n_kept - lost - rank - 1
    if remaining < 1:
        raise Unfit(
            f"Nothing is left to analyse: of {n_kept} kept volumes the filter takes {lost} degrees of freedom, the "
            f"confounds {rank} and the mean 1; use fewer confounds, a wider pass-band, a higher censoring threshold or "
            "a longer recording."
        )
    return remaining


def _is_rounding(after: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Say of each column whether what is left of it after cleaning is only rounding."""
    if not before.size:
        return np.zeros(before.shape[1], dtype=bool)
    floor = 1e-9 * before.std(axis=0) + 1e-13 * np.abs(before).max(axis=0)
    return after.std(axis=0) <= floor
