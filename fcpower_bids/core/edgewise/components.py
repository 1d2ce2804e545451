"""Network-based statistic: networks of edges above a threshold, and how large permutations make them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fcpower_bids.core.arrays import FloatArray, Rows


@dataclass(frozen=True, eq=False)
class Components:
    """The connected networks that the edges above a threshold form, in one connectome or in many.

    Attributes
    ----------
    label : ndarray of int, shape (m,)
        Network of each edge above the threshold.
    graph : ndarray of int, shape (k,)
        Connectome that each network is of.
    extent : ndarray of int, shape (k,)
        Its edges.
    intensity : ndarray, shape (k,)
        Sum over its edges of what they have above the threshold.
    """

    label: Rows
    graph: Rows
    extent: Rows
    intensity: FloatArray


def find_components(graph: Rows, first: Rows, second: Rows, excess: FloatArray, n_parcels: int) -> Components:
    """Join edges that share a parcel into networks, separately in each connectome.

    Source: Zalesky et al. 2010 (doi:10.1016/j.neuroimage.2010.06.041).

    Parameters
    ----------
    graph : ndarray of int, shape (m,)
        Connectome of each edge above the threshold, from 0.
    first, second : ndarray of int, shape (m,)
        Its parcels.
    excess : ndarray, shape (m,)
        What it has above the threshold.
    n_parcels : int
    """
    if not len(graph):
        none = np.zeros(0, dtype=np.intp)
        return Components(none, none, none, np.zeros(0))
    size = (int(graph.max()) + 1) * n_parcels
    ends = graph * n_parcels + first, graph * n_parcels + second
    joined = coo_array((np.ones(len(graph), dtype=bool), ends), shape=(size, size))
    _, node = connected_components(joined, directed=False)
    _, where, label = np.unique(node[ends[0]], return_index=True, return_inverse=True)
    label = label.astype(np.intp)
    extent = np.bincount(label).astype(np.intp)
    intensity = np.bincount(label, weights=excess).astype(np.float64)
    return Components(label, graph[where], extent, intensity)


def largest_components(found: Components, n_graphs: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest extent and the largest intensity in each connectome, shapes (n_graphs,); 0 without any."""
    extent, intensity = np.zeros(n_graphs), np.zeros(n_graphs)
    np.maximum.at(extent, found.graph, found.extent)
    np.maximum.at(intensity, found.graph, found.intensity)
    return extent, intensity
