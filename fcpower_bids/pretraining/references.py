"""What a student is compared with: connectivity of the very windows that it sees, and its principal components."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import power_from_series
from fcpower_bids.core.regression.kernels import normalise_rows

Features = Callable[[NDArray[np.floating]], FloatArray]
"""Windows (n, T, P) to features (n, E)."""


def connectivity_edges(windows: ArrayLike) -> FloatArray:
    """Edges of FC of every window, centred and of unit norm.

    Parameters
    ----------
    windows : array_like, shape (n, T, P)

    Returns
    -------
    ndarray of float64, shape (n, P (P - 1) / 2)
    """
    return _unit_edges(pearson_connectivity(np.asarray(one, np.float64)) for one in np.asarray(windows))


def power_edges(windows: ArrayLike, alpha: float) -> FloatArray:
    """Edges of FC^alpha of every window, centred and of unit norm: what the teacher is, of the window."""
    return _unit_edges(power_from_series(np.asarray(one, np.float64), alpha) for one in np.asarray(windows))


def _unit_edges(matrices: Iterable[FloatArray]) -> FloatArray:
    return normalise_rows(np.stack([vectorise_edges(one) for one in matrices]))


@dataclass(frozen=True, eq=False)
class WhitenedComponents:
    """Principal components of features, each of unit variance among those they were fitted to.

    Attributes
    ----------
    mean : ndarray, shape (E,)
    loadings : ndarray, shape (E, d)
    """

    mean: FloatArray
    loadings: FloatArray

    def __call__(self, features: ArrayLike) -> FloatArray:
        """Project features (n, E): array (n, d)."""
        projected: FloatArray = (np.asarray(features, np.float64) - self.mean) @ self.loadings
        return projected


def fit_components(features: ArrayLike, d: int) -> WhitenedComponents:
    """Fit the first `d` principal components, or as many as n people allow.

    Parameters
    ----------
    features : array_like, shape (n, E)
    d : int
    """
    features = np.asarray(features, np.float64)
    mean = features.mean(axis=0)
    centred = features - mean
    values, vectors = np.linalg.eigh(centred @ centred.T)
    d = min(d, len(features) - 1)
    values, vectors = values[::-1][:d], vectors[:, ::-1][:, :d]
    return WhitenedComponents(mean, centred.T @ vectors * (np.sqrt(len(features) - 1) / values))
