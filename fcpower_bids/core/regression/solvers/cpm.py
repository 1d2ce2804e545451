"""Connectome-based predictive modelling: edges that go with the target, summed, and a line through the sums."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from scipy import special

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.kernels import PANEL, FeatureSource
from fcpower_bids.core.regression.ridge import Sides, Split

THRESHOLD = 0.01
"""Two-sided p of an edge's correlation with the target below which it is selected (Shen et al. 2017)."""
TOGETHER = 4096
"""Targets of all folds up to which they are taken in one pass; with more, each fold has enough for products."""
BLOCK = 2**22
"""Correlations in memory at a time."""


class EdgeSums:
    """The CPM protocol as a regression for `nested.nested_cv`; it has no penalty to choose.

    In the training people every edge is correlated with the target. Those with p below the threshold are summed, the
    positive and the negative ones each, and the target is regressed on both sums and an intercept. Source: Shen et al.
    2017 (doi:10.1038/nprot.2016.178), with both sums in one model. `features` (n, E): one person per row. `threshold`:
    two-sided p below which an edge is selected.
    """

    penalties: FloatArray = np.array([np.nan])
    notes: tuple[str, ...] = ()

    def __init__(self, features: FeatureSource, threshold: float = THRESHOLD) -> None:
        self.features, self.threshold = features, threshold
        self._sums: dict[bytes, tuple[FloatArray, FloatArray]] = {}

    def prepare(self, targets: FloatArray) -> Sides:
        """Nothing here depends on the targets alone."""
        return Sides(targets)

    def look_ahead(self, trains: Sequence[Rows], targets: Sequence[FloatArray]) -> None:
        """Sum the edges of all folds in one pass over the features, where there are few targets.

        Shapes and units: of each fold the training rows and the targets (n, m).
        """
        if sum(each.shape[1] for each in targets) <= TOGETHER:
            sums = sum_selected(self.features, trains, targets, self.threshold)
            self._sums = {
                _key(*each): found for each, found in zip(zip(trains, targets, strict=True), sums, strict=True)
            }

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows, shape (1, n_test, m); no inner fold has anything to select."""
        sums = self._sums.get(_key(split.train, outer.values))
        positive, negative = sums or sum_selected(self.features, [split.train], [outer.values], self.threshold)[0]
        predicted = np.empty((1, split.test.size, outer.values.shape[1]))
        for target, values in enumerate(outer.values.T):
            design = np.column_stack([np.ones(len(values)), positive[:, target], negative[:, target]])
            weights = np.linalg.lstsq(design[split.train], values[split.train], rcond=None)[0]
            predicted[0, :, target] = design[split.test] @ weights
        return predicted, []


def _key(train: Rows, targets: FloatArray) -> bytes:
    return hashlib.sha256(train.tobytes() + np.ascontiguousarray(targets).tobytes()).digest()


def sum_selected(
    features: FeatureSource,
    trains: Sequence[Rows],
    targets: Sequence[FloatArray],
    threshold: float = THRESHOLD,
) -> list[tuple[FloatArray, FloatArray]]:
    """Sums over the edges that go with each target in the training people of each fold.

    Correlations of all folds are one product with the standardised targets, which are 0 outside the training people.
    `features` (n, E). `targets` (n, m): of each fold, known for its training people. `threshold`: two-sided p of the
    Pearson correlation. Returns (n, m): of each fold the positive and the negative sums of everyone, each edge about
    its mean over all people, which an intercept takes up.
    """
    n, n_edges = features.shape
    folds = np.repeat(np.arange(len(trains)), [each.shape[1] for each in targets])
    standard = np.hstack([_standardise(train, each) for train, each in zip(trains, targets, strict=True)])
    known = np.zeros((len(trains), n))
    for row, train in zip(known, trains, strict=True):
        row[train] = 1.0
    sizes = known.sum(axis=1)
    limit = np.array([critical_correlation(train.size, threshold) for train in trains])[folds]
    positive, negative = np.zeros((n, len(folds))), np.zeros((n, len(folds)))
    width = max(64, min(PANEL, BLOCK // max(1, len(folds))))
    for at in range(0, n_edges, width):
        block = np.asarray(features[:, at : at + width], dtype=float)
        block = block - block.mean(axis=0)
        spread = np.sqrt(np.maximum(known @ block**2 - (known @ block) ** 2 / sizes[:, None], 0.0)).T
        spread[spread <= 1e-12 * np.abs(block).max(initial=0.0)] = (
            np.inf
        )  # an edge that does not vary goes with nothing
        r = block.T @ standard
        r /= spread[:, folds]
        positive += block @ (r > limit)
        negative += block @ (r < -limit)
    ends = np.cumsum([each.shape[1] for each in targets])[:-1]
    return list(zip(np.split(positive, ends, axis=1), np.split(negative, ends, axis=1), strict=True))


def _standardise(train: Rows, targets: FloatArray) -> FloatArray:
    """Targets (n, m) of mean 0 and norm 1 over the training people, and 0 elsewhere."""
    standard = np.zeros(targets.shape)
    centred = targets[train] - targets[train].mean(axis=0)
    norm = np.sqrt((centred**2).sum(axis=0))
    standard[train] = np.divide(centred, norm, out=np.zeros_like(centred), where=norm > 0)
    return standard


def critical_correlation(n: int, p: float) -> float:
    """Absolute Pearson correlation of n people above which its two-sided p is below ``p``; above 1 for n < 3."""
    if n < 3:
        return np.inf
    t = float(-special.stdtrit(n - 2, p / 2))
    return t / float(np.sqrt(n - 2 + t**2))
