"""Groups and sources of scans that a kernel separates: classification, spread and common change, by permutation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.inference.permutation import permutation_p_value

FOLDS = 5
FEWEST_OF_A_GROUP = FOLDS
"""Smaller groups are left out: each fold should have one of every group."""
PENALTY = 0.1
"""In units of the mean diagonal of the centred kernel; the answer hardly depends on it."""
PERMUTATIONS = 399


@dataclass(frozen=True)
class Recognition:
    """How many members of a group are recognised as such."""

    # share of the members of a group who are assigned to it, mean over groups; NaN where there are not two groups
    share: float
    p: float  # (1 + permutations at least as good) / (1 + permutations); NaN likewise
    # n, n_groups: people and groups
    n: int
    n_groups: int


def recognise_groups(
    kernel: ArrayLike, groups: ArrayLike, n_permutations: int = PERMUTATIONS, seed: int = 0
) -> Recognition:
    """Assign people to groups (n,) of five or more by ridge on a kernel (n, n) of the others; permuted labels."""
    _, numbers, sizes = np.unique(np.asarray(groups).astype(str), return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes[numbers] >= FEWEST_OF_A_GROUP)
    _, labels = np.unique(numbers[kept], return_inverse=True)
    n_groups = int(labels.max(initial=-1)) + 1
    if n_groups < 2:
        return Recognition(float("nan"), float("nan"), len(kept), n_groups)
    rng = np.random.default_rng(seed)
    smoother = _smoother(np.asarray(kernel, dtype=np.float64)[np.ix_(kept, kept)], rng)
    share = _recognised(smoother, labels)
    null = [_recognised(smoother, rng.permutation(labels)) for _ in range(n_permutations)]
    return Recognition(share, permutation_p_value(share, null), len(kept), n_groups)


def compare_spread(kernel: ArrayLike, groups: ArrayLike, n_permutations: int = 999, seed: int = 0) -> Recognition:
    """Compare distances from the mean of the others between two groups (Anderson 2006); kernel (n, n), groups (n,)."""
    values = np.asarray(kernel, dtype=np.float64)
    labels = np.unique(np.asarray(groups).astype(str), return_inverse=True)[1]
    sizes = np.bincount(labels)
    if len(sizes) != 2 or sizes.min() < FEWEST_OF_A_GROUP:
        return Recognition(float("nan"), float("nan"), len(labels), len(sizes))
    distances = np.zeros(len(labels))
    for group, size in enumerate(sizes.tolist()):
        rows = np.flatnonzero(labels == group)
        own = values[np.ix_(rows, rows)]
        others = own.sum(axis=1) - np.diag(own)
        within = (own.sum() - 2 * others - np.diag(own)) / (size - 1) ** 2
        squares = np.diag(own) - 2 * others / (size - 1) + within
        distances[rows] = np.sqrt(np.maximum(squares, 0) * (size - 1) / size)
    rng, first = np.random.default_rng(seed), labels == 0
    null = [abs(_log_ratio(distances, rng.permutation(first))) for _ in range(n_permutations)]
    p = permutation_p_value(abs(_log_ratio(distances, first)), null)
    return Recognition(float(np.exp(_log_ratio(distances, first))), p, len(labels), 2)


def compare_sources(
    kernel: ArrayLike, first: ArrayLike, second: ArrayLike, n_flips: int = 999, seed: int = 0
) -> Recognition:
    """Whether the same people change in one direction between two sources, by sign flips; kernel (n, n), rows (m,)."""
    values, one, other = np.asarray(kernel, dtype=np.float64), np.asarray(first), np.asarray(second)
    changes = values[np.ix_(one, one)] - values[np.ix_(one, other)]
    changes += values[np.ix_(other, other)] - values[np.ix_(other, one)]
    own, m = float(np.trace(changes)), len(changes)
    if m < 2 or own <= 0:
        return Recognition(float("nan"), float("nan"), m, 2)
    flips = np.random.default_rng(seed).choice([-1.0, 1.0], (n_flips, m))
    null = np.einsum("fm,fm->f", flips @ changes, flips)
    p = permutation_p_value(float(changes.sum()), null)
    return Recognition((float(changes.sum()) - own) / ((m - 1) * own), p, m, 2)


def _log_ratio(distances: FloatArray, first: NDArray[np.bool_]) -> float:
    return float(np.log(distances[~first].mean() / distances[first].mean()))


def _smoother(kernel: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Linear map (n, n) from centred labels to out-of-fold predictions."""
    centred = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    penalty = PENALTY * np.trace(centred) / len(centred)
    folds = rng.permutation(np.arange(len(centred)) % FOLDS)
    smoother = np.zeros_like(centred)
    for fold in range(FOLDS):
        test, train = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        block = centred[np.ix_(train, train)] + penalty * np.eye(len(train))
        smoother[np.ix_(test, train)] = linalg.solve(block, centred[np.ix_(train, test)], assume_a="pos").T
    return smoother


def _recognised(smoother: FloatArray, labels: NDArray[np.intp]) -> float:
    """Share of the members of a group who score highest for it, mean over groups; small groups weigh as large ones."""
    members = np.eye(labels.max() + 1)[labels]
    sizes = members.sum(axis=0)
    scores = smoother @ ((members - sizes / len(labels)) / np.sqrt(sizes))
    return float(np.mean(np.bincount(labels, scores.argmax(axis=1) == labels) / sizes))
