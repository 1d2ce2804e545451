"""Edges between two networks as one number: their mean in every person."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.kernels import PANEL, FeatureSource


def number_pairs(networks: Sequence[str]) -> tuple[list[tuple[str, str]], Rows]:
    """Name the pairs of networks that have edges, and say of which pair each edge is.

    Parameters
    ----------
    networks : sequence of str, length P
        Network of each parcel.

    Returns
    -------
    names : list of (str, str)
        K pairs, networks in the order of their first parcel.
    pair : ndarray of int, shape (E,)
        Of the edges in the order of ``numpy.triu_indices(P, 1)``.
    """
    labels = list(dict.fromkeys(networks))
    place = np.array([labels.index(name) for name in networks])
    first, second = np.triu_indices(len(networks), 1)
    ends = np.sort(np.column_stack([place[first], place[second]]), axis=1)
    there, pair = np.unique(ends @ [len(labels), 1], return_inverse=True)
    names = [(labels[key // len(labels)], labels[key % len(labels)]) for key in there.tolist()]
    return names, pair.astype(np.intp)


def average_pairs(features: FeatureSource, pair: Rows) -> FloatArray:
    """Mean of the edges of each pair of networks, shape (n, K).

    Parameters
    ----------
    features : FeatureSource, shape (n, E)
    pair : ndarray of int, shape (E,)
        Of `number_pairs`.
    """
    sums = np.zeros((features.shape[0], int(pair.max()) + 1))
    for start in range(0, features.shape[1], PANEL):
        columns = slice(start, start + PANEL)
        block = np.asarray(features[:, columns], dtype=float)
        order = np.argsort(pair[columns], kind="stable")
        there, at = np.unique(pair[columns][order], return_index=True)
        sums[:, there] += np.add.reduceat(block[:, order], at, axis=1)
    return np.asarray(sums / np.bincount(pair))
