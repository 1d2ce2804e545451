"""Which edges a prediction rests on: the Haufe transform, per edge and per pair of networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import rebuild_matrix


def haufe_transform(features: ArrayLike, predictions: ArrayLike, masks: ArrayLike) -> FloatArray:
    """Covariance of the training features with the in-sample predictions, averaged over the folds.

    Weights of a linear model mix signal with the cancellation of noise; this covariance shows the signal alone (Haufe
    et al. 2014, NeuroImage 87:96). Per fold, cov(X, yhat) = X'w with w = (yhat - mean(yhat)) / (s - 1), so the average
    over folds needs one product with the averaged w. `features` (n, E): the same in every fold. `predictions` (F, n) or
    (F, n, q): predictions for the training subjects of each fold by the model fitted on them; others are ignored.
    `masks` (F, n): training subjects. A NaN target is excluded here, because the model was not fitted on it. Returns
    (E,) or (E, q): in units of features times predictions; positive where a stronger edge goes with a higher
    prediction. Raises ValueError: shapes do not fit, a fold has fewer than two training subjects, or one of their
    predictions is missing.
    """
    masks = np.atleast_2d(np.asarray(masks, dtype=bool))
    predictions = np.asarray(predictions, dtype=np.float64)
    features = np.asarray(features, dtype=np.float64)
    if predictions.shape[:2] != masks.shape or len(features) != masks.shape[1]:
        raise ValueError(
            f"Predictions of shape {predictions.shape} and masks of shape {masks.shape} (folds, subjects) "
            f"do not fit {len(features)} subjects."
        )
    weights = np.zeros(predictions.shape[1:])
    for mask, fold in zip(masks, predictions, strict=True):
        if mask.sum() < 2 or not np.isfinite(fold[mask]).all():
            raise ValueError("Every fold needs an in-sample prediction for each of at least two training subjects.")
        weights[mask] += (fold[mask] - fold[mask].mean(axis=0)) / ((mask.sum() - 1) * len(masks))
    return features.T @ weights


def network_importance(edges: ArrayLike, networks: Sequence[str]) -> tuple[list[str], FloatArray]:
    """Average a value per edge over all edges between two networks, or within one.

    `edges` (E,): in the order of `edges.vectorise_edges`, without its weight. Pass absolute values for the size of the
    effects. `networks` (of length P): network of each parcel. Returns `names` of length N: networks in the order of
    their first parcel; `means` (N, N): symmetric; NaN within a network of a single parcel. NaN edges (uncovered
    parcels) are left out of the mean. Raises ValueError: the number of edges is not that of the parcels.
    """
    names = list(dict.fromkeys(networks))
    matrix = rebuild_matrix(np.asarray(edges, dtype=np.float64), diagonal=np.nan, weighted=False)
    if len(matrix) != len(networks):
        raise ValueError(f"The edges belong to {len(matrix)} parcels, but {len(networks)} networks are named.")
    belongs = np.array([[network == name for network in networks] for name in names], dtype=np.float64)
    known = np.isfinite(matrix)
    sums, counts = (belongs @ values @ belongs.T for values in (np.where(known, matrix, 0), known.astype(np.float64)))
    return names, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
