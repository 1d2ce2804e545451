"""Tests of every edge by permutation, in blocks of edges: the largest |t|, exceedances, and the largest networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.edgewise.components import Components, find_components, largest_components
from fcpower_bids.core.edgewise.model import EdgeModel
from fcpower_bids.core.regression.kernels import FeatureSource

ORDERS = 256
"""Permutations that go through a block of edges together: with 2,048 edges their t fill 4 MB, which stays near."""
BLOCK, SMALLEST_BLOCK = 2048, 64
TIES = 1 - 1e-9
"""A permutation that only reorders a sum repeats |t| up to rounding and counts as extreme."""


@dataclass(frozen=True, eq=False)
class EdgeTests:
    """What the model says of every edge, and what permutations make of it.

    Attributes
    ----------
    t : ndarray, shape (E,)
        NaN for edges that do not vary.
    slope : ndarray, shape (E,)
        Change of the edge per unit of the target.
    p : ndarray, shape (E,)
        Two-sided, by Student's t.
    p_permutation, p_family_wise : ndarray, shape (E,)
        Two-sided, of the edge by itself and against the largest |t| of all edges; NaN without permutations.
    largest : ndarray, shape (B,)
        Largest |t| of each permutation.
    above : ndarray of int, shape (m,)
        Edges with |t| above the threshold.
    components : Components
        The networks that these form, stronger (graph 1) and weaker ones (graph 0) apart.
    extents, intensities : ndarray, shape (B,)
        Of the largest network of each permutation, of either sign.
    """

    t: FloatArray
    slope: FloatArray
    p: FloatArray
    p_permutation: FloatArray
    p_family_wise: FloatArray
    largest: FloatArray
    above: Rows
    components: Components
    extents: FloatArray
    intensities: FloatArray

    def p_components(self) -> tuple[FloatArray, FloatArray]:
        """P of the extent and of the intensity of each network against the largest of each permutation."""
        return p_of_largest(self.components.extent, self.extents), p_of_largest(
            self.components.intensity, self.intensities
        )


@dataclass
class _Above:
    """Edges above the threshold, collected block by block."""

    graph: list[Rows] = field(default_factory=list)
    edge: list[Rows] = field(default_factory=list)
    excess: list[FloatArray] = field(default_factory=list)

    def add(self, t: FloatArray, threshold: float, first_graph: int, first_edge: int) -> None:
        """Take those of t (B, e); graphs come in pairs, of weaker and stronger edges."""
        row, column = np.nonzero(np.abs(t) > threshold)
        values = t[row, column]
        self.graph.append(2 * (row + first_graph) + (values > 0))
        self.edge.append(column + first_edge)
        self.excess.append(np.abs(values) - threshold)

    def join(self, n_parcels: int) -> tuple[Rows, Components]:
        graph, edge = (np.concatenate(each).astype(np.intp) for each in (self.graph, self.edge))
        first, second = np.triu_indices(n_parcels, 1)
        return edge, find_components(graph, first[edge], second[edge], np.concatenate(self.excess), n_parcels)


def permute_edges(
    features: FeatureSource, people: Rows, model: EdgeModel, orders: Rows, threshold: float, memory: float = np.inf
) -> EdgeTests:
    """Fit the model to every edge, and again after every permutation; each edge is read once.

    Parameters
    ----------
    features : FeatureSource, shape (all people, E)
        In the order of ``numpy.triu_indices(P, 1)``.
    people : ndarray of int, shape (n,)
        Rows that the model is of.
    model : EdgeModel
    orders : ndarray of int, shape (B, n)
        Permutations of these people.
    threshold : float
        |t| above which an edge counts to a network.
    memory : float
        Bytes that a block of edges may take with its residuals and permuted t.

    Notes
    -----
    Largest statistic: Westfall and Young 1993; permutation within the linear model: Winkler et al. 2014
    (doi:10.1016/j.neuroimage.2014.01.060).
    """
    n_edges, n_orders = features.shape[1], len(orders)
    (t, slope, exceeding), largest = np.zeros((3, n_edges)), np.zeros(n_orders)
    observed, permuted = _Above(), _Above()
    for columns in _blocks(n_edges, len(people), memory):
        values = np.asarray(features[:, columns], dtype=float)[people]
        residuals = model.residuals(values)
        t[columns], slope[columns] = model.t(residuals), model.slopes(values)
        observed.add(np.nan_to_num(t[None, columns]), threshold, 0, columns.start)
        for start in range(0, n_orders, ORDERS):
            block = model.permuted_t(residuals, orders[start : start + ORDERS])
            permuted.add(block, threshold, start, columns.start)
            np.abs(block, out=block)
            exceeding[columns] += (block >= TIES * np.abs(t[columns])).sum(axis=0)
            rows = slice(start, start + ORDERS)
            np.maximum(largest[rows], block.max(axis=1, initial=0.0), out=largest[rows])
    return _judge(model.df, (t, slope, exceeding), largest, observed, permuted)


def _judge(
    df: int,
    of_edges: tuple[FloatArray, FloatArray, FloatArray],
    largest: FloatArray,
    observed: _Above,
    permuted: _Above,
) -> EdgeTests:
    t, slope, exceeding = of_edges
    n_orders, n_parcels = len(largest), round((1 + np.sqrt(1 + 8 * len(t))) / 2)
    known = np.isfinite(t)
    above, components = observed.join(n_parcels)
    null = permuted.join(n_parcels)[1] if n_orders else components
    extents, intensities = (each.reshape(-1, 2).max(axis=1) for each in largest_components(null, 2 * (n_orders or 1)))
    alone = (1 + exceeding) / (1 + n_orders) if n_orders else np.full(t.shape, np.nan)
    return EdgeTests(
        t=t,
        slope=np.where(known, slope, np.nan),
        p=np.asarray(2 * stats.t.sf(np.abs(t), df)),
        p_permutation=np.where(known, alone, np.nan),
        p_family_wise=np.where(known, p_of_largest(np.abs(t), largest), np.nan),
        largest=largest,
        above=above,
        components=components,
        extents=extents[:n_orders],
        intensities=intensities[:n_orders],
    )


def p_of_largest(values: NDArray[np.generic], largest: FloatArray) -> FloatArray:
    """(1 + permutations whose largest is as large) / (1 + permutations), for each value; NaN without permutations."""
    if not len(largest):
        return np.full(values.shape, np.nan)
    as_large = len(largest) - np.searchsorted(np.sort(largest), TIES * np.asarray(values, dtype=float))
    return np.asarray((1 + as_large) / (1 + len(largest)))


def _blocks(n_edges: int, n_people: int, memory: float) -> Iterator[slice]:
    """Columns of edges that fit: their values, two copies on the way to residuals, and the t of some permutations."""
    per_edge = 8 * (4 * n_people + 4 * ORDERS)
    width = int(np.clip(memory / per_edge, SMALLEST_BLOCK, BLOCK))
    for start in range(0, n_edges, width):
        yield slice(start, min(start + width, n_edges))
