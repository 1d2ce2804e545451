"""Connectome-based predictive modelling: edges that go with the target, summed, and a line through the sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.kernels import PANEL, FeatureSource
from fcpower_bids.core.regression.ridge import Sides, Split

THRESHOLD = 0.01
"""Two-sided p of an edge's correlation with the target below which it is selected (Shen et al. 2017)."""


class EdgeSums:
    """The CPM protocol as a regression for `nested.nested_cv`; it has no penalty to choose.

    In the training people every edge is correlated with the target. Those with p below the threshold are summed, the
    positive and the negative ones each, and the target is regressed on both sums and an intercept.

    Source: Shen et al. 2017 (doi:10.1038/nprot.2016.178), with both sums in one model.

    Parameters
    ----------
    features : FeatureSource, shape (n, E)
        One person per row.
    threshold : float
        Two-sided p below which an edge is selected.
    """

    penalties: FloatArray = np.array([np.nan])
    notes: tuple[str, ...] = ()

    def __init__(self, features: FeatureSource, threshold: float = THRESHOLD) -> None:
        self.features, self.threshold = features, threshold

    def prepare(self, targets: FloatArray) -> Sides:
        """Nothing here depends on the targets alone."""
        return Sides(targets)

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows, shape (1, n_test, m); no inner fold has anything to select."""
        positive, negative = sum_selected(self.features, split.train, outer.values, self.threshold)
        predicted = np.empty((1, split.test.size, outer.values.shape[1]))
        for target, values in enumerate(outer.values.T):
            design = np.column_stack([np.ones(len(values)), positive[:, target], negative[:, target]])
            weights = np.linalg.lstsq(design[split.train], values[split.train], rcond=None)[0]
            predicted[0, :, target] = design[split.test] @ weights
        return predicted, []


def sum_selected(
    features: FeatureSource, train: Rows, targets: FloatArray, threshold: float = THRESHOLD
) -> tuple[FloatArray, FloatArray]:
    """Sums over the edges that go with each target in the training people.

    Parameters
    ----------
    features : FeatureSource, shape (n, E)
    train : ndarray of int
    targets : ndarray, shape (n, m)
        Known for the training people.
    threshold : float
        Two-sided p of the Pearson correlation.

    Returns
    -------
    positive, negative : ndarray, shape (n, m)
        Of everyone, each edge about its mean over all people, which an intercept takes up.
    """
    n, n_edges = features.shape
    known = np.zeros(n)
    known[train] = 1.0
    standard = np.zeros(targets.shape)
    centred = targets[train] - targets[train].mean(axis=0)
    norm = np.sqrt((centred**2).sum(axis=0))
    standard[train] = np.divide(centred, norm, out=np.zeros_like(centred), where=norm > 0)
    limit = critical_correlation(train.size, threshold)
    positive, negative = np.zeros(targets.shape), np.zeros(targets.shape)
    for at in range(0, n_edges, PANEL):
        block = np.asarray(features[:, at : at + PANEL], dtype=float)
        block = block - block.mean(axis=0)
        squares = known @ block**2 - (known @ block) ** 2 / train.size
        spread = np.sqrt(np.maximum(squares, 0.0))
        varies = spread > 1e-12 * np.abs(block).max(initial=0.0)
        product = block.T @ standard
        r = np.divide(product, spread[:, None], out=np.zeros_like(product), where=varies[:, None])
        positive += block @ (r > limit)
        negative += block @ (r < -limit)
    return positive, negative


def critical_correlation(n: int, p: float) -> float:
    """Absolute Pearson correlation of n people above which its two-sided p is below ``p``; above 1 for n < 3."""
    if n < 3:
        return np.inf
    t = float(stats.t.isf(p / 2, n - 2))
    return t / float(np.sqrt(n - 2 + t**2))
