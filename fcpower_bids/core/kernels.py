"""Features of a cohort and the kernels between people, n x n."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import CLIP_TOLERANCE, power_weights
from fcpower_bids.core.edges import edge_count, vectorise_edges
from fcpower_bids.errors import Unfit

PANEL = 4096
"""Edges that are read and multiplied at a time."""


class FeatureSource(Protocol):
    """Anything with rows (people) and columns (edges) that can be sliced: ndarray, memmap, HDF5 dataset."""

    shape: tuple[int, ...]

    def __getitem__(self, key: Any) -> Any:
        """Return a block as an array."""


def correlation_kernel(features: FeatureSource, dtype: type[np.floating] = np.float64) -> FloatArray:
    """Pearson correlation (n, n) between the features (n, E) of all pairs (the kernel K_alpha of the paper).

    `dtype`: precision of the products of a panel of columns, whose sums are double; single is off by about 1e-7 and
    costs half the time. The diagonal is exactly 1. Raises ValueError, Unfit: a feature is missing, or those of a person
    are constant.
    """
    gram, total, pivot = _accumulate(features, dtype, centred=True)
    width = features.shape[1]
    for row, value in enumerate(total):  # row by row: there is no room for a second matrix
        gram[row] -= value * total / width
    norm = np.sqrt(np.maximum(np.diag(gram), 0.0))
    _refuse(_is_constant(norm, norm + np.sqrt(width) * np.abs(pivot + total / width)))
    for row, value in enumerate(norm):
        gram[row] /= value * norm
    np.fill_diagonal(gram, 1.0)
    return gram


def linear_kernel(features: FeatureSource, dtype: type[np.floating] = np.float64) -> FloatArray:
    """Inner products between the feature vectors of all pairs of people; parameters as in `correlation_kernel`."""
    return _accumulate(features, dtype, centred=False)[0]


def normalise_rows(features: ArrayLike, keep_constant: bool = False) -> FloatArray:
    """Centre every row (n, E) and give it unit norm: the features whose inner products are correlations.

    `keep_constant`: turn constant rows into zeros, which correlate with nothing. Raises ValueError, Unfit: a feature is
    missing, or a row constant.
    """
    rows = np.array(features, dtype=float)
    refuse_missing(rows, 0)
    scale = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows -= rows.mean(axis=1, keepdims=True)
    norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    constant = _is_constant(norm, scale)
    if not keep_constant:
        _refuse(constant)
    rows[constant], norm[constant] = 0.0, 1.0
    rows /= norm[:, None]
    return rows


def power_features(
    eigenvalues: ArrayLike,
    eigenvectors: Sequence[FloatArray] | FloatArray,
    alpha: float,
    tolerance: float = CLIP_TOLERANCE,
    out: NDArray[np.floating] | None = None,
) -> NDArray[np.floating]:
    """Edges (n, E) of FC^alpha times sqrt(2), from eigenvalues (n, P) in descending order and eigenvectors (P, P).

    With g the weights of the eigenvalues, ``W = V sqrt(g)`` and ``FC^alpha = W W'``; modes up to `tolerance` times the
    largest have weight 0 and are left out, which makes rank-deficient scans cheaper. `out`: where to write, row by row.
    """
    values = np.asarray(eigenvalues)
    n, n_parcels = values.shape
    features = np.empty((n, edge_count(n_parcels))) if out is None else out
    for i in range(n):
        weights = power_weights(values[i], alpha, tolerance)
        kept = weights > 0
        half = eigenvectors[i] if kept.all() else eigenvectors[i][:, kept]
        half = half * np.sqrt(weights[kept])
        features[i] = vectorise_edges(half @ half.T)
    return features


def _accumulate(
    features: FeatureSource, dtype: type[np.floating], centred: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gram matrix, row sums and pivot of the features less a pivot per row.

    The pivot is the row's mean over the first panel if `centred`, else 0: the later, exact centring is free of
    cancellation then.
    """
    n, n_columns = features.shape
    gram, product = np.zeros((n, n)), np.empty((n, n), dtype)
    total, pivot = np.zeros(n), np.zeros(n)
    if not n_columns:
        raise ValueError("There are no edges to compute a kernel from.")
    for start in range(0, n_columns, PANEL):
        block = np.asarray(features[:, start : start + PANEL])
        refuse_missing(block, start)
        if centred:
            pivot = pivot if start else block.mean(axis=1, dtype=float)
            block = block - pivot[:, None]
            total += block.sum(axis=1)
        block = np.ascontiguousarray(block, dtype)
        gram += np.matmul(block, block.T, out=product)
    return gram, total, pivot


def refuse_missing(block: NDArray[np.floating], start: int) -> None:
    """Refuse a panel of features, from a column on, that has a missing one. Raises ValueError."""
    if not np.isfinite(block).all():
        row, column = np.argwhere(~np.isfinite(block))[0]
        raise ValueError(
            f"The features of row {row} are missing or infinite (first in column {start + column} or later); "
            "drop the parcel for the cohort or exclude that person."
        )


def _is_constant(norm: FloatArray, scale: FloatArray) -> NDArray[np.bool_]:
    """Whether what is left after centring (norm) is rounding error of what was there before (scale)."""
    return norm <= 1e-12 * np.maximum(scale, np.finfo(float).tiny)


def _refuse(constant: NDArray[np.bool_]) -> None:
    if constant.any():
        raise Unfit(f"The features of row {np.argmax(constant)} are constant and correlate with nothing.")
