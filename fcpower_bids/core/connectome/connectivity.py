"""Pearson correlations of parcel series; a parcel without coverage is NaN there and in every connectome, never zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit

MINIMUM_VOLUMES = 3


class ParcelError(Unfit):
    """Some parcels cannot be used; `parcels` holds their positions, counted from 0, for callers that know the names."""

    def __init__(self, message: str, parcels: Iterable[int]) -> None:
        self.reason = message
        self.parcels = tuple(int(parcel) for parcel in parcels)
        listed = ", ".join(str(parcel) for parcel in self.parcels[:10])
        more = f" and {len(self.parcels) - 10} more" if len(self.parcels) > 10 else ""
        super().__init__(f"{message} (parcels counted from 0: {listed}{more}).")


def covered_series(series: ArrayLike) -> NDArray[np.bool_]:
    """Which parcels of a series (T, P) carry data: (P,). One that is NaN throughout does not. Raises ParcelError."""
    series = np.asarray(series)
    if series.ndim != 2 or len(series) < MINIMUM_VOLUMES:
        raise ValueError(f"A series must be volumes by parcels with at least 3 volumes, not of shape {series.shape}.")
    covered = ~np.isnan(series).all(axis=0)
    broken = covered & ~np.isfinite(series).all(axis=0)
    if broken.any():
        raise ParcelError("A parcel is missing or infinite in some volumes only", np.flatnonzero(broken))
    return covered


def standardise(series: ArrayLike) -> FloatArray:
    """Centre each parcel of a series (T, P) and divide by its SD (T - 1); NaN columns stay. Raises ParcelError."""
    series = np.asarray(series)
    covered_series(series)
    precision = np.finfo(series.dtype if series.dtype.kind == "f" else np.float64).eps
    series = series.astype(np.float64, copy=False)
    low, high, mean = series.min(axis=0), series.max(axis=0), series.mean(axis=0)
    constant = high - low <= 8 * precision * np.maximum(np.abs(low), np.abs(high))
    if constant.any():
        raise ParcelError("A parcel is constant, so its correlations are undefined", np.flatnonzero(constant))
    centred = series - mean
    # Dividing by the largest value first keeps the sum of squares of very small or very large units in range.
    centred /= np.maximum(high - mean, mean - low)
    centred /= centred.std(axis=0, ddof=1)
    return centred


def pearson_connectivity(series: ArrayLike) -> FloatArray:
    """Plain Pearson correlation (P, P) of a series (T, P), NaN for uncovered parcels. Raises ParcelError."""
    standardised = standardise(series)
    uncovered = np.isnan(standardised[0])
    if uncovered.all():
        raise Unfit("No parcel is covered, so there is no connectivity to compute.")
    correlations = standardised.T @ standardised / (len(standardised) - 1)
    correlations = np.clip((correlations + correlations.T) / 2, -1.0, 1.0)
    np.fill_diagonal(correlations, np.where(uncovered, np.nan, 1.0))
    return correlations


def covered_parcels(matrix: ArrayLike) -> NDArray[np.bool_]:
    """Which parcels of a connectome (P, P) carry data: (P,). One whose row is NaN does not. Raises ParcelError."""
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"A connectome must be a square matrix, not an array of shape {matrix.shape}.")
    if matrix.size and np.isfinite(matrix).all():
        return np.ones(len(matrix), dtype=bool)
    missing = np.isnan(matrix)
    covered = ~(missing.all(axis=0) & missing.all(axis=1))
    if not covered.any():
        raise Unfit("No parcel is covered, so there is no connectivity to transform.")
    broken = ~np.isfinite(matrix[np.ix_(covered, covered)]).all(axis=0)
    if broken.any():
        raise ParcelError("A parcel has missing or infinite connectivity with others", np.flatnonzero(covered)[broken])
    return covered


def spread(block: ArrayLike, covered: NDArray[np.bool_]) -> FloatArray:
    """Put the matrix of the covered parcels, shape (C, C), into shape (P, P); every other entry is NaN."""
    if covered.all():
        return np.array(block, dtype=np.float64)
    matrix = np.full((len(covered), len(covered)), np.nan)
    matrix[np.ix_(covered, covered)] = block
    return matrix


@contextmanager
def counted_among_all(covered: NDArray[np.bool_]) -> Iterator[None]:
    """Make a `ParcelError` from work on the covered parcels alone count its parcels among all P."""
    try:
        yield
    except ParcelError as error:
        raise ParcelError(error.reason, np.flatnonzero(covered)[list(error.parcels)]) from error


def fisher_z(matrix: ArrayLike) -> FloatArray:
    """Fisher z of correlations (P, P), arctanh r, with a diagonal of 0; NaN stays NaN. Raises ParcelError."""
    correlations = np.array(matrix, dtype=np.float64)
    diagonal = np.diag(correlations).copy()
    np.fill_diagonal(correlations, 0.0)
    extreme = (np.abs(correlations) >= 1).any(axis=0)
    if extreme.any():
        raise ParcelError("Fisher z is infinite: parcels correlate perfectly with another", np.flatnonzero(extreme))
    transformed = np.arctanh(correlations)
    np.fill_diagonal(transformed, np.where(np.isnan(diagonal), np.nan, 0.0))
    return transformed


def average_connectivity(matrices: ArrayLike, weights: ArrayLike | None = None) -> FloatArray:
    """Mean Fisher z of connectomes (n, P, P), weights (n,), as correlations; may be indefinite. Raises ParcelError."""
    if not len(np.asarray(matrices)):
        raise ValueError("There is no connectome to average.")
    scores = np.stack([fisher_z(matrix) for matrix in np.asarray(matrices)])
    if weights is not None and not (np.asarray(weights) > 0).all():
        raise ValueError("The weights of the recordings to average must all be positive.")
    averaged = np.tanh(np.average(scores, axis=0, weights=None if weights is None else np.asarray(weights)))
    np.fill_diagonal(averaged, np.where(np.isnan(np.diag(averaged)), np.nan, 1.0))
    return averaged
