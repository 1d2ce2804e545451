"""Every edge in every permutation: p of edges, false discovery rates, and networks of edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fcpower_bids.analyses.edge_model import EdgeModel, Statistic
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.differences import PooledNull, false_discovery_rates
from fcpower_bids.core.regression.kernels import FeatureSource


@dataclass(frozen=True, eq=False)
class Components:
    """The connected networks that the edges above a threshold form, in one connectome or in many."""

    label: Rows  # (m,): network of each edge above the threshold
    graph: Rows  # (k,): connectome that each network is of
    extent: Rows  # (k,): its edges
    intensity: FloatArray  # (k,): sum over its edges of what they have above the threshold


def find_components(graph: Rows, first: Rows, second: Rows, excess: FloatArray, n_parcels: int) -> Components:
    """Join edges (m,) that share a parcel into networks, by connectome (Zalesky et al. 2010)."""
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


ORDERS = 256
"""Permutations that go through a block of edges together: with 2,048 edges their t fill 4 MB, which stays near."""
BLOCK, SMALLEST_BLOCK = 2048, 64
SAMPLE, RUN = 1024, 32
"""Edges by which the variances of groups are compared, and how many of them lie side by side."""
LARGEST = 64.0
"""|t| above which all are in one step of the pooled null."""
TIES = 1 - 1e-9
"""A permutation that only reorders a sum repeats |t| up to rounding and counts as extreme."""


@dataclass(frozen=True, eq=False)
class EdgeTests:
    """Results of the model for every edge, and of its permutations."""

    found: Statistic  # NaN for edges that do not vary
    # (E,): t at the degrees of freedom of the whole model, by which edges are compared with each other
    size: FloatArray
    slope: FloatArray  # (E,): change of the edge per unit of the target
    p: FloatArray  # (E,): two-sided, by Student's t
    # (E,): false discovery rate, against the t of all edges in all permutations; of ``p`` without permutations
    q: FloatArray
    # p_permutation, p_family_wise: (E,): two-sided, of the edge by itself and against the largest |t| of all edges; NaN
    # without permutations
    p_permutation: FloatArray
    p_family_wise: FloatArray
    # (E,): spread of the t of the permutations over the one that Student's t has: above 1 where relatives are alike
    inflation: FloatArray
    largest: FloatArray  # (B,): largest |t| of each permutation
    above: Rows  # (m,): edges with |t| above the threshold
    components: Components  # the networks that these form, stronger (graph 1) and weaker ones (graph 0) apart
    # extents, intensities: (B,): of the largest network of each permutation, of either sign
    extents: FloatArray
    intensities: FloatArray

    @property
    def t(self) -> FloatArray:
        """Statistic of every edge, shape (E,)."""
        return self.found.t

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
    """Fit the model to every edge (n, E), and again after each permutation (B, n); each edge is read once."""
    n_edges, n_orders = features.shape[1], len(orders)
    of_edges, largest, pooled = np.zeros((7, n_edges)), np.zeros(n_orders), PooledNull(LARGEST)
    observed, permuted = _Above(), _Above()
    t, df, spread, size, slope, exceeding, squares = of_edges
    sample = model.residuals(_sample(features)[people])
    parts = [slice(start, start + ORDERS) for start in range(0, n_orders, ORDERS)]
    own = model.shrinkage(sample)
    sample = model.made_alike(sample, own)
    shrunk = [model.shrinkage(sample, orders[rows]) for rows in parts]
    for columns in _blocks(n_edges, len(people), len(model.freedom), memory):
        values = np.asarray(features[:, columns], dtype=float)[people]
        residuals = model.residuals(values)
        found = model.statistic(residuals, own)
        t[columns], df[columns], spread[columns] = found.t, found.df, found.spread
        size[columns] = model.common_t(found)
        slope[columns] = model.slopes(values)
        observed.add(np.nan_to_num(size[None, columns]), threshold, 0, columns.start)
        residuals = model.made_alike(residuals, own)
        for rows, each in zip(parts, shrunk, strict=True):
            block = model.permuted_t(residuals, orders[rows], each)
            permuted.add(block, threshold, rows.start, columns.start)
            np.abs(block, out=block)
            squares[columns] += np.einsum("be,be->e", block, block)
            exceeding[columns] += (block >= TIES * np.abs(size[columns])).sum(axis=0)
            np.maximum(largest[rows], block.max(axis=1, initial=0.0), out=largest[rows])
            pooled.add(block[:, residuals.any(axis=0)])
    return _judge(of_edges, model.df, largest, pooled, observed, permuted)


def _sample(features: FeatureSource) -> FloatArray:
    """Edges, a run from each part of the connectome, that stand for all where variances of groups are compared."""
    n_edges = features.shape[1]
    if n_edges <= SAMPLE:
        return np.asarray(features[:, :], dtype=float)
    starts = np.linspace(0, n_edges - RUN, SAMPLE // RUN).astype(int)
    return np.hstack([np.asarray(features[:, start : start + RUN], dtype=float) for start in starts.tolist()])


def _judge(
    of_edges: FloatArray, of_model: int, largest: FloatArray, pooled: PooledNull, observed: _Above, permuted: _Above
) -> EdgeTests:
    t, df, spread, size, slope, exceeding, squares = of_edges
    n_orders, n_parcels = len(largest), round((1 + np.sqrt(1 + 8 * len(t))) / 2)
    known = np.isfinite(t)
    p = np.asarray(2 * special.stdtr(df, -np.abs(t)))
    above, components = observed.join(n_parcels)
    null = permuted.join(n_parcels)[1] if n_orders else components
    extents, intensities = (each.reshape(-1, 2).max(axis=1) for each in largest_components(null, 2 * (n_orders or 1)))
    alone = (1 + exceeding) / (1 + n_orders) if n_orders else np.full(t.shape, np.nan)
    return EdgeTests(
        found=Statistic(t, df, spread),
        size=size,
        slope=np.where(known, slope, np.nan),
        p=p,
        q=false_discovery_rates(pooled.p(size) if n_orders else p),
        p_permutation=np.where(known, alone, np.nan),
        p_family_wise=np.where(known, p_of_largest(np.abs(size), largest), np.nan),
        inflation=np.sqrt(squares / max(n_orders, 1) * (of_model - 2) / of_model) if n_orders else squares * np.nan,
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


def _blocks(n_edges: int, n_people: int, n_groups: int, memory: float) -> Iterator[slice]:
    """Columns of edges that fit: their values, two copies on the way to residuals, and the t of some permutations."""
    per_edge = 8 * (4 * n_people + (4 + 2 * n_groups) * ORDERS)
    width = int(np.clip(memory / per_edge, SMALLEST_BLOCK, BLOCK))
    for start in range(0, n_edges, width):
        yield slice(start, min(start + width, n_edges))
