"""The linear model of every edge: target, covariates and sites, effects, permutations, networks of edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.folds import family_numbers
from fcpower_bids.core.regression.kernels import PANEL, FeatureSource
from fcpower_bids.errors import Unfit

LEVEL = 0.95


def partial_correlation(t: ArrayLike, df: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Partial correlation of edge and target given the covariates, with its 95 % interval by Fisher's z.

    Shapes and units: t (E,); returns r (E,), low (E,), high (E,).
    """
    values = np.asarray(t, dtype=np.float64)
    r = values / np.sqrt(values**2 + df)
    if df < 2:
        return r, np.full(r.shape, np.nan), np.full(r.shape, np.nan)
    z, half = np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15)), stats.norm.ppf((1 + LEVEL) / 2) / np.sqrt(df - 1)
    return r, np.tanh(z - half), np.tanh(z + half)


def cohens_d(t: ArrayLike, df: int, length: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Difference of two classes given the covariates, in residual standard deviations, with its exact 95 % interval.

    Shapes and units: t (E,); returns d (E,), low (E,), high (E,).

    Notes
    -----
    t has a noncentral t distribution with noncentrality d * length (Hedges and Olkin 1985); the limits are the two d
    under which it is at its 97.5 and 2.5 per cent points.
    """
    values = np.asarray(t, dtype=np.float64)
    low, high = (special.nctdtrinc(df, (1 + sign * LEVEL) / 2, values) / length for sign in (1, -1))
    return values / length, low, high


def number_pairs(networks: Sequence[str]) -> tuple[list[tuple[str, str]], Rows]:
    """Name the pairs of networks that have edges, and say of which pair each edge is.

    Returns pair (E,).
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

    Shapes and units: features (n, E), pair (E,).
    """
    sums = np.zeros((features.shape[0], int(pair.max()) + 1))
    for start in range(0, features.shape[1], PANEL):
        columns = slice(start, start + PANEL)
        block = np.asarray(features[:, columns], dtype=float)
        order = np.argsort(pair[columns], kind="stable")
        there, at = np.unique(pair[columns][order], return_index=True)
        sums[:, there] += np.add.reduceat(block[:, order], at, axis=1)
    return np.asarray(sums / np.bincount(pair))


ROUNDING = 1e-10
"""Share of its length below which what is left of a column is nothing but rounding."""
FEWEST_DF = 3
LEAST_REST = 1e-14
"""Least share of the variance of an edge that is taken as unexplained: a perfect fit has a large t, not none."""


@dataclass(frozen=True, eq=False)
class EdgeModel:
    """Edge = sites (or one mean) + covariates + target, for n people.

    Attributes
    ----------
    tested : ndarray, shape (n,)
        The target without what sites and covariates explain, of length 1.
    length : float
        Its length before: an edge that grows by b per unit of the target has b * length along ``tested``.
    covariates : ndarray, shape (n, c)
        Orthonormal basis of the covariates, without what sites explain.
    sites : ndarray of int, shape (n,)
        Number of the site of each person; 0 for everyone without sites.
    df : int
        Residual degrees of freedom.
    """

    tested: FloatArray
    length: float
    covariates: FloatArray
    sites: Rows
    df: int

    def residuals(self, edges: ArrayLike) -> FloatArray:
        """Edges (n, E) without sites and covariates, each of length 1; of length 0 where nothing is left of one."""
        values = np.asarray(edges, dtype=np.float64)
        left = _without_sites(values, self.sites)
        left -= self.covariates @ (self.covariates.T @ left)
        size = np.linalg.norm(left, axis=0)
        varies = size > ROUNDING * np.abs(values).max(axis=0, initial=0.0) * len(values) ** 0.5
        return np.asarray(left * np.where(varies, 1 / np.where(varies, size, 1.0), 0.0))

    def t(self, residuals: FloatArray) -> FloatArray:
        """Statistic of the target for residuals (n, E) of length 1, shape (E,); NaN for an edge that does not vary."""
        t = self.permuted_t(residuals, np.arange(len(residuals))[None])[0]
        return np.where(residuals.any(axis=0), t, np.nan)

    def permuted_t(self, residuals: FloatArray, orders: Rows) -> FloatArray:
        """Statistic of the target when the residuals of the reduced model change places, shape (B, E).

        Freedman and Lane permute the residuals, add what the reduced model had fitted, and fit the full model again.
        The addition drops out of the t; the rest are products of the residuals with the target and the covariates
        in permuted order. Sites and the mean drop out too, because people change places within their sites.

        Shapes and units: residuals (n, E), orders (B, n).
        """
        r = self.tested[orders] @ residuals
        rest = 1 - r * r
        for column in self.covariates.T:
            explained = column[orders] @ residuals
            explained *= explained
            rest -= explained
        np.maximum(rest, LEAST_REST, out=rest)
        rest /= self.df
        np.sqrt(rest, out=rest)
        r /= rest
        return np.asarray(r)

    def slopes(self, edges: ArrayLike) -> FloatArray:
        """Change of edges (n, E) per unit of the target, given sites and covariates, shape (E,)."""
        return np.asarray(self.tested @ np.asarray(edges, dtype=np.float64) / self.length)

    def keeps_design(self, orders: Rows) -> NDArray[np.bool_]:
        """Which permutations leave the model as it is, or turn the target around: they can only repeat the |t|."""
        same = np.abs(self.tested[orders] @ self.tested) > 1 - 1e-9
        within = (np.einsum("nc,bnk->bck", self.covariates, self.covariates[orders]) ** 2).sum(axis=(1, 2))
        return np.asarray(same & (within > self.covariates.shape[1] - 1e-9))


def build_model(target: ArrayLike, covariates: ArrayLike, sites: ArrayLike | None = None) -> EdgeModel:
    """Prepare the linear model of the edges.

    Shapes and units: target (n,), covariates (n, c), sites (n,). Raises Unfit.
    """
    values = np.asarray(target, dtype=np.float64)
    number = np.zeros(len(values), dtype=np.intp) if sites is None else family_numbers(sites, len(values))
    if not len(values) or np.ptp(values) == 0:
        raise Unfit("The target is the same for everyone, so no edge can go with it.")
    basis = _basis(np.asarray(covariates, dtype=np.float64).reshape(len(values), -1), number)
    df = len(values) - int(number.max()) - 1 - basis.shape[1] - 1
    if df < FEWEST_DF:
        remedy = "Name fewer --covariates, add people" if basis.shape[1] else "Add people"
        raise Unfit(
            f"{len(values)} people are too few: with {basis.shape[1]} columns of covariates and "
            f"{int(number.max()) + 1} {'means of sites' if number.any() else 'mean'} they leave {df} degrees of "
            f"freedom, and {FEWEST_DF} are needed. {remedy}, or leave edges out of --analyses."
        )
    left = _without_sites(values[:, None], number)[:, 0]
    left -= basis @ (basis.T @ left)
    length = float(np.linalg.norm(left))
    if length <= 1e-8 * np.linalg.norm(values - values.mean()):
        raise Unfit("Covariates and sites explain the target completely, so nothing is left for the edges.")
    return EdgeModel(left / length, length, basis, number, df)


def _basis(covariates: FloatArray, sites: Rows) -> FloatArray:
    """Orthonormal basis (n, c') of the covariates without the means of the sites."""
    left = _without_sites(covariates, sites)
    size, whole = np.linalg.norm(left, axis=0), np.linalg.norm(covariates, axis=0)
    left = left[:, size > ROUNDING * whole] / size[size > ROUNDING * whole]
    vectors, sizes, _ = np.linalg.svd(left, full_matrices=False)
    return np.asarray(vectors[:, sizes > 1e-8])


def _without_sites(values: FloatArray, sites: Rows) -> FloatArray:
    """Subtract from columns (n, k) the mean of each site."""
    if not sites.any():
        return np.asarray(values - values.mean(axis=0))
    members = np.zeros((int(sites.max()) + 1, len(sites)))
    members[sites, np.arange(len(sites))] = 1 / np.bincount(sites)[sites]
    return np.asarray(values - (members @ values)[sites])


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

    Shapes and units: graph (m,), first (m,), second (m,), excess (m,).
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


ORDERS = 256
"""Permutations that go through a block of edges together: with 2,048 edges their t fill 4 MB, which stays near."""
BLOCK, SMALLEST_BLOCK = 2048, 64
TIES = 1 - 1e-9
"""A permutation that only reorders a sum repeats |t| up to rounding and counts as extreme."""


@dataclass(frozen=True, eq=False)
class EdgeTests:
    """Results of the model for every edge, and of its permutations.

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

    Shapes and units: features (all people, E), people (n,), orders (B, n), memory (bytes).

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
