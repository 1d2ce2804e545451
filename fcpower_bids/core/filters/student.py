"""The closed-form student: ridge from edges of windows to principal coordinates of the teacher; not in the paper."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import power_from_series
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.errors import Unfit

RIDGE = 0.1
"""Penalty, in units of the mean diagonal of the kernel of the training windows."""
SMALLEST = 1e-10
"""Share of the largest eigenvalue of the teacher below which a coordinate is rounding."""


def connectivity_edges(windows: ArrayLike) -> FloatArray:
    """Edges of FC of windows (n, T, P), centred and of unit norm: (n, E)."""
    return _unit_edges(pearson_connectivity(np.asarray(one, np.float64)) for one in np.asarray(windows))


def power_edges(windows: ArrayLike, alpha: float) -> FloatArray:
    """Edges of FC^alpha of windows (n, T, P), centred and of unit norm: (n, E), the teacher of the window."""
    return _unit_edges(power_from_series(np.asarray(one, np.float64), alpha) for one in np.asarray(windows))


def _unit_edges(matrices: Iterable[FloatArray]) -> FloatArray:
    return normalise_rows(np.stack([vectorise_edges(one) for one in matrices]))


def principal_coordinates(kernel: ArrayLike, d: int) -> FloatArray:
    """Points (n, at most d) whose inner products are those of a centred kernel (n, n), largest variance first."""
    K = np.asarray(kernel, dtype=np.float64)
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    d = min(d, len(K))
    values, vectors = linalg.eigh(centred, subset_by_index=(len(K) - d, len(K) - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > SMALLEST * max(values[0], 0.0)
    points: FloatArray = vectors[:, kept] * np.sqrt(values[kept])
    largest = np.abs(points).argmax(axis=0)
    return points * np.sign(points[largest, np.arange(points.shape[1])])


def fit_student(features: ArrayLike, coordinates: ArrayLike, ridge: float = RIDGE) -> tuple[FloatArray, FloatArray]:
    """Fit mean (E,) and weights (E, d): features (n, E) to (n, d), ``ridge`` per mean diagonal. Raises Unfit."""
    single = np.asarray(features).dtype == np.float32  # large features stay as they are
    X, Y = np.array(features, dtype=np.float32 if single else np.float64), np.asarray(coordinates, dtype=np.float64)
    mean = X.mean(axis=0, dtype=np.float64)
    X -= mean.astype(X.dtype)
    gram = (X @ X.T).astype(np.float64)
    scale = gram.trace() / len(gram)
    if not scale > 0:
        raise Unfit("All windows have the same connectome, so there is nothing to fit. Give recordings of people.")
    dual = linalg.solve(gram + ridge * scale * np.eye(len(gram)), Y - Y.mean(axis=0), assume_a="pos")
    return mean, np.asarray(X.T @ dual.astype(X.dtype), dtype=np.float64)
