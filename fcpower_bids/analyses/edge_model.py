"""The linear model of every edge (target, covariates, sites, groups that are spread differently), and its permutations.

Every edge in every permutation: p of edges, false discovery rates, and networks of edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.differences import PooledNull, false_discovery_rates
from fcpower_bids.core.kernels import FeatureSource
from fcpower_bids.errors import Unfit

PERMUTATIONS = 1000
"""Of the analyses of edges, where no number is asked for."""
STEPS = 50
"""Of Newton's iteration for the inverse of the trigamma function, which needs fewer than ten."""
LEAST_EXCESS = 1e-6
"""Variance of log ratios between edges that is none: all edges have one ratio."""
ROUNDING = 1e-10
"""Share of its length below which what is left of a column is nothing but rounding."""
FEWEST_DF = 3
LEAST_REST = 1e-14
"""Least share of the variance of an edge that is taken as unexplained: a perfect fit has a large t, not none."""
ORDERS = 256
"""Permutations that go through a block of edges together: with 2,048 edges their t fill 4 MB, which stays near."""
BLOCK, SMALLEST_BLOCK = 2048, 64
SAMPLE, RUN = 1024, 32
"""Edges by which the variances of groups are compared, and how many of them lie side by side."""
LARGEST = 64.0
"""|t| above which all are in one step of the pooled null."""
TIES = 1 - 1e-9
"""A permutation that only reorders a sum repeats |t| up to rounding and counts as extreme."""
Shrinkage = tuple[FloatArray, FloatArray]
"""How far the variance of each of G groups goes by all edges, in each of B permutations, both (G, B): the share of an
edge's own variance in it (the rest is what the variance of everyone makes likely), and the variance of the group over
that of everyone, common to all edges."""


class EdgeModel:
    """Edge = sites (or one mean) + covariates + target, for n people; residuals are equally spread within groups.

    Target, sites and groups (n,), covariates (n, c). Raises Unfit.

    Attributes
    ----------
    tested : (n,), the target without what sites and covariates explain, of length 1
    length : its length before: an edge that grows by b per unit of the target has b * length along `tested`
    covariates : (n, c'), orthonormal basis of the covariates, without what sites explain
    sites, groups : (n,), numbers of the site and of the variance group of each person; 0 for everyone without any
    df : residual degrees of freedom
    freedom, freedom_permuted : (G,), those of the variance of each group, which add up to `df`; where people change
        places covariates are not fitted again, so each group keeps what they took
    """

    def __init__(
        self,
        target: ArrayLike,
        covariates: ArrayLike,
        sites: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        fewest_df: int = FEWEST_DF,
    ) -> None:
        values = np.asarray(target, dtype=np.float64)
        n = len(values)
        self.sites, spread = (
            np.zeros(n, dtype=np.intp) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
            for labels in (sites, groups)
        )
        if not n or np.ptp(values) == 0:
            raise Unfit("The target is the same for everyone, so no edge can go with it.")
        columns = np.asarray(covariates, dtype=np.float64).reshape(n, -1)
        left = self._without_sites(columns)
        size, whole = np.linalg.norm(left, axis=0), np.linalg.norm(columns, axis=0)
        left = left[:, size > ROUNDING * whole] / size[size > ROUNDING * whole]
        vectors, sizes, _ = np.linalg.svd(left, full_matrices=False)
        basis = self.covariates = np.asarray(vectors[:, sizes > 1e-8])
        self.df = n - int(self.sites.max()) - 1 - basis.shape[1] - 1
        if self.df < fewest_df:
            remedy = "Name fewer --covariates, add people" if basis.shape[1] else "Add people"
            raise Unfit(
                f"{n} people are too few: with {basis.shape[1]} columns of covariates and {int(self.sites.max()) + 1} "
                f"{'means of sites' if self.sites.any() else 'mean'} they leave {self.df} degrees of freedom, and "
                f"{fewest_df} are needed. {remedy}, or leave edges out of --analyses."
            )
        tested = self._without_sites(values[:, None])[:, 0]
        tested -= basis @ (basis.T @ tested)
        self.length = float(np.linalg.norm(tested))
        if self.length <= 1e-8 * np.linalg.norm(values - values.mean()):
            raise Unfit("Covariates and sites explain the target completely, so nothing is left for the edges.")
        self.tested = tested / self.length
        # Degrees of freedom that the model leaves to each person: 1 minus the leverage, of covariates apart.
        alone = 1 - 1 / np.bincount(self.sites)[self.sites]
        shares = alone - (basis**2).sum(axis=1) - self.tested**2
        # Groups whose own variance would have too few degrees of freedom share one, the smallest first.
        while spread.any() and (freedom := np.bincount(spread, shares)).min() < FEWEST_DF:
            smallest, next_one = np.argsort(freedom, kind="stable")[:2]
            spread = np.unique(np.where(spread == smallest, next_one, spread), return_inverse=True)[1]
        self.groups = spread
        self.freedom = np.bincount(spread, shares)
        self.freedom_permuted = np.bincount(spread, alone - self.tested**2)
        self.weights = np.bincount(spread, self.tested**2)  # (G,): squares of the target in each group

    def _without_sites(self, values: FloatArray) -> FloatArray:
        """Subtract from columns (n, k) the mean of each site."""
        if not self.sites.any():
            return np.asarray(values - values.mean(axis=0))
        members = np.zeros((int(self.sites.max()) + 1, len(self.sites)))
        members[self.sites, np.arange(len(self.sites))] = 1 / np.bincount(self.sites)[self.sites]
        return np.asarray(values - (members @ values)[self.sites])

    def residuals(self, edges: ArrayLike) -> FloatArray:
        """Edges (n, E) without sites and covariates, each of length 1; of length 0 where nothing is left of one."""
        values = np.asarray(edges, dtype=np.float64)
        left = self._without_sites(values)
        left -= self.covariates @ (self.covariates.T @ left)
        size = np.linalg.norm(left, axis=0)
        varies = size > ROUNDING * np.abs(values).max(axis=0, initial=0.0) * len(values) ** 0.5
        return np.asarray(left * np.where(varies, 1 / np.where(varies, size, 1.0), 0.0))

    def keeps_design(self, orders: Rows) -> NDArray[np.bool_]:
        """Which permutations leave the model as it is, or turn the target around: they can only repeat the |t|."""
        same = np.abs(self.tested[orders] @ self.tested) > 1 - 1e-9
        within = (np.einsum("nc,bnk->bck", self.covariates, self.covariates[orders]) ** 2).sum(axis=(1, 2))
        return np.asarray(same & (within > self.covariates.shape[1] - 1e-9))

    def shrinkage(self, residuals: FloatArray, orders: Rows | None = None) -> Shrinkage | None:
        """How the variances of groups go by all edges (Smyth 2004), as people are or in permutations (B, n).

        None where each edge goes by itself: with one group, or one edge.
        """
        varying, freedom, n_groups = residuals[:, residuals.any(axis=0)], self._freedom(orders), len(self.freedom)
        if n_groups < 2 or varying.shape[1] < 2:
            return None
        rests = self._squares(varying, orders)[1]
        half = freedom / 2
        logs = np.log(np.maximum(rests, np.finfo(float).tiny)) - special.digamma(half)[..., None]
        logs -= np.log(2)  # each is without bias for the log variance
        logs -= logs.mean(axis=0)
        chance = (1 - 1 / n_groups) * special.polygamma(1, half).sum(axis=0)
        excess = (logs.var(axis=2, ddof=1).sum(axis=0) - chance) / (n_groups - 1)
        ratio = np.exp(logs.mean(axis=2))
        ratio /= (freedom * ratio).sum(axis=0) / freedom.sum(axis=0)
        # Where the trigamma function has this excess, by Newton's iteration (Smyth 2004, appendix).
        values = np.maximum(excess, LEAST_EXCESS)
        x = 0.5 + 1 / values
        for _ in range(STEPS):
            trigamma = special.polygamma(1, x)
            x = x + trigamma * (1 - trigamma / values) / special.polygamma(2, x)
        return np.where(excess > LEAST_EXCESS, freedom / (freedom + 2 * x), 0.0), ratio

    def made_alike(self, residuals: FloatArray, shrinkage: Shrinkage | None) -> FloatArray:
        """Residuals (n, E) that may change places: over the spread that all edges have in the person's group."""
        return residuals if shrinkage is None else self.residuals(residuals / np.sqrt(shrinkage[1][self.groups]))

    def statistic(
        self, residuals: FloatArray, shrinkage: Shrinkage | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Statistic of the target for residuals (n, E) of length 1; without shrinkage each edge goes by itself.

        Returns, each (E,): Welch's t, or Student's with one variance group, NaN for an edge that does not vary; its
        degrees of freedom, by Satterthwaite; its standard error over the one that equal variances would give.
        """
        flat = ~residuals.any(axis=0)
        if len(self.freedom) == 1:
            t = np.where(flat, np.nan, self._student(residuals)[0])
            return t, np.full(t.shape, float(self.df)), np.ones(t.shape)
        t, df, error = (values[0] for values in self._welch(residuals, None, shrinkage))
        equal = (1 - (t * error) ** 2) / self.df
        return np.where(flat, np.nan, t), df, error / np.sqrt(np.maximum(equal, LEAST_REST / self.df))

    def permuted_t(self, residuals: FloatArray, orders: Rows, shrinkage: Shrinkage | None = None) -> FloatArray:
        """Statistic (B, E) when residuals (n, E) of the reduced model change places: target and covariates move."""
        if len(self.freedom) == 1:
            return self._student(residuals, orders)
        t, df, _ = self._welch(residuals, orders, shrinkage)
        return comparable_t(t, df, self.df)

    def _freedom(self, orders: Rows | None) -> NDArray[np.number]:
        return (self.freedom if orders is None else self.freedom_permuted)[:, None]

    def _student(self, residuals: FloatArray, orders: Rows | None = None) -> FloatArray:
        """Student's t (B, E) after Freedman and Lane; what the reduced model fitted drops out of the t."""
        r = (self.tested[None] if orders is None else self.tested[orders]) @ residuals
        rest = 1 - r * r
        for column in () if orders is None else self.covariates.T:
            rest -= (column[orders] @ residuals) ** 2
        return np.asarray(r / np.sqrt(np.maximum(rest, LEAST_REST) / self.df))

    def _welch(
        self, residuals: FloatArray, orders: Rows | None, shrinkage: Shrinkage | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Welch's t (v of Winkler et al. 2014), its degrees of freedom by Satterthwaite and its error, each (B, E)."""
        r, rests = self._squares(residuals, orders)
        freedom, weights = self._freedom(orders), self.weights[:, None]
        own_share, ratio = shrinkage or np.ones((2, *rests.shape[:2]))
        whole, borrowed = float(freedom.sum()), (1 - own_share) * ratio
        share = weights * own_share / freedom + (weights * borrowed).sum(axis=0) / (ratio * whole)
        # of the sampling of the squares, and of how much the ratio of an edge may differ from that of all
        uncertain = np.sqrt(share**2 * freedom + weights**2 * own_share * (1 - own_share) / freedom)
        pooled, total, squared = np.zeros((3, *rests.shape[1:]))
        for rest, relative, part in zip(rests, ratio, share, strict=True):
            pooled += rest / (relative * whole)[:, None]
            total += rest * part[:, None]
        for rest, from_own, from_all in zip(rests, uncertain * own_share / freedom, uncertain * borrowed, strict=True):
            squared += (rest * from_own[:, None] + pooled * from_all[:, None]) ** 2
        df = np.clip(total * total / np.maximum(squared, np.finfo(float).tiny), freedom.min(), whole)
        error = np.sqrt(np.maximum(total, LEAST_REST / self.df))
        return r / error, df, error

    def _squares(self, residuals: FloatArray, orders: Rows | None) -> tuple[FloatArray, FloatArray]:
        """Product with the target (B, E), and what is left of the squares of each group without it (G, B, E)."""
        tested, groups = (values[None] if orders is None else values[orders] for values in (self.tested, self.groups))
        products, rests = np.zeros((2, len(self.freedom), len(tested), residuals.shape[1]))
        for site in range(int(self.sites.max()) + 1):  # where a site has one group, it costs one product
            rows = np.flatnonzero(self.sites == site)
            here, target, group = residuals[rows], tested[:, rows], groups[:, rows]
            squares, (last, *others) = here * here, np.unique(self.groups[rows])
            product, rest = target @ here, squares.sum(axis=0)
            for number in others:
                member = (group == number).astype(np.float64)
                of_group, size = (target * member) @ here, member @ squares
                products[number] += of_group
                rests[number] += size
                product -= of_group
                rest = rest - size
            products[last] += product
            rests[last] += rest
        r = products.sum(axis=0)
        for product, rest, weight in zip(products, rests, self.weights, strict=True):
            rest += (weight * r - 2 * product) * r
            np.maximum(rest, 0, out=rest)
        return r, rests


def comparable_t(t: FloatArray, df: FloatArray, common: int) -> FloatArray:
    """Bring t to common degrees of freedom: as far in the tail there (Wallace 1959, in closed form)."""
    ratio = ((8 * df + 1) / (8 * df + 3)) ** 2 * (df * ((8 * common + 3) / (8 * common + 1)) ** 2 / common)
    return np.asarray(np.copysign(np.sqrt(common * np.expm1(ratio * np.log1p(t * t / df))), t))


# --- Networks of edges ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Components:
    """The connected networks that the edges above a threshold form, in one connectome or in many."""

    label: Rows  # (m,): network of each edge above the threshold
    graph: Rows  # (k,): connectome that each network is of
    extent: Rows  # (k,): its edges


def find_components(graph: Rows, first: Rows, second: Rows, n_parcels: int) -> Components:
    """Join edges (m,) that share a parcel into networks, by connectome (Zalesky et al. 2010)."""
    size = (int(graph.max(initial=0)) + 1) * n_parcels
    ends = graph * n_parcels + first, graph * n_parcels + second
    from scipy.sparse import coo_array  # takes a twentieth of a second, and most runs have no networks
    from scipy.sparse.csgraph import connected_components

    joined = coo_array((np.ones(len(graph), dtype=bool), ends), shape=(size, size))
    _, node = connected_components(joined, directed=False)
    _, where, label = np.unique(node[ends[0]], return_index=True, return_inverse=True)
    label = label.astype(np.intp)
    return Components(label, graph[where], np.bincount(label).astype(np.intp))


Above = tuple[Rows, Rows]
"""Edges above the threshold: connectome (weaker and stronger ones by turns), and edge."""


def _find_above(t: FloatArray, threshold: float, first_graph: int, first_edge: int) -> Above:
    row, column = np.nonzero(np.abs(t) > threshold)
    return 2 * (row + first_graph) + (t[row, column] > 0), column + first_edge


def _join_above(above: Iterable[Above], n_parcels: int) -> tuple[Rows, Components]:
    graph, edge = (np.concatenate(arrays) for arrays in zip(*above, strict=True))
    first, second = np.triu_indices(n_parcels, 1)
    return edge, find_components(graph, first[edge], second[edge], n_parcels)


# --- Permutations -----------------------------------------------------------------------------------------------------


class EdgeTests(NamedTuple):
    """Results of the model for every edge, one row each, and of its permutations."""

    # edge, slope, t, df (Satterthwaite), p (Student's t), p_permutation, p_family_wise (of the largest |t|), q of all
    # as in the table; `spread` as of `Statistic`; `size`, the t at the degrees of freedom of the model, by which edges
    # are compared; `label`: number of the network in `components`, else -1
    edges: pd.DataFrame
    components: Components  # of edges with |t| above the threshold, stronger (graph 1) and weaker ones (graph 0) apart
    null: pd.DataFrame  # largest |t| of each permutation, and extent of its largest network, of either sign


def permute_edges(
    features: FeatureSource, people: Rows, model: EdgeModel, orders: Rows, threshold: float, memory: float = np.inf
) -> EdgeTests:
    """Fit the model to every edge (n, E), and again after each permutation (B, n); each edge is read once."""
    n_edges, n_orders = features.shape[1], len(orders)
    n_parcels = round((1 + np.sqrt(1 + 8 * n_edges)) / 2)
    t, df, spread, size, slope, exceeding = np.zeros((6, n_edges))
    largest, pooled = np.zeros(n_orders), PooledNull(LARGEST)
    observed, permuted = list[Above](), list[Above]()
    if n_edges <= SAMPLE:
        sample = np.asarray(features[:, :], dtype=float)
    else:  # a run from each part of the connectome
        starts = np.linspace(0, n_edges - RUN, SAMPLE // RUN).astype(int)
        sample = np.hstack([np.asarray(features[:, start : start + RUN], dtype=float) for start in starts.tolist()])
    sample = model.residuals(sample[people])
    shrinkage = model.shrinkage(sample)
    sample = model.made_alike(sample, shrinkage)
    parts = [slice(start, start + ORDERS) for start in range(0, n_orders, ORDERS)]
    shrunk = [model.shrinkage(sample, orders[rows]) for rows in parts]
    # a block of edges fits: its values, two copies on the way to residuals, and the t of some permutations
    per_edge = 8 * (4 * len(people) + (4 + 2 * len(model.freedom)) * ORDERS)
    width = int(np.clip(memory / per_edge, SMALLEST_BLOCK, BLOCK))
    for start in range(0, n_edges, width):
        columns = slice(start, min(start + width, n_edges))
        values = np.asarray(features[:, columns], dtype=float)[people]
        residuals = model.residuals(values)
        found, freedom, spread[columns] = model.statistic(residuals, shrinkage)
        t[columns], df[columns] = found, freedom
        # compared at the degrees of freedom of the model
        size[columns] = found if len(model.freedom) == 1 else comparable_t(found, freedom, model.df)
        slope[columns] = model.tested @ values / model.length
        observed.append(_find_above(np.nan_to_num(size[None, columns]), threshold, 0, start))
        residuals = model.made_alike(residuals, shrinkage)
        for rows, permuted_shrinkage in zip(parts, shrunk, strict=True):
            block = model.permuted_t(residuals, orders[rows], permuted_shrinkage)
            permuted.append(_find_above(block, threshold, rows.start, start))
            np.abs(block, out=block)
            exceeding[columns] += (block >= TIES * np.abs(size[columns])).sum(axis=0)
            np.maximum(largest[rows], block.max(axis=1, initial=0.0), out=largest[rows])
            pooled.add(block[:, residuals.any(axis=0)])
    p, above = 2 * special.stdtr(df, -np.abs(t)), _join_above(observed, n_parcels)
    null = _join_above(permuted, n_parcels)[1] if n_orders else above[1]
    extents = np.zeros(2 * (n_orders or 1))
    np.maximum.at(extents, null.graph, null.extent)
    edges = pd.DataFrame({"edge": np.arange(n_edges), "slope": slope, "t": t, "df": df, "p": p, "spread": spread})
    edges["p_permutation"] = (1 + exceeding) / (1 + n_orders) if n_orders else np.nan
    edges["p_family_wise"] = p_of_largest(np.abs(size), largest)
    edges.loc[np.isnan(t), ["slope", "p_permutation", "p_family_wise"]] = np.nan
    edges = edges.assign(q=false_discovery_rates(pooled.p(size) if n_orders else p), size=size, label=-1)
    edges.loc[above[0], "label"] = above[1].label
    extent = extents.reshape(-1, 2).max(axis=1)[:n_orders]
    of_orders = {"permutation": np.arange(n_orders) + 1, "largest_t": largest, "extent": extent}
    return EdgeTests(edges, above[1], pd.DataFrame(of_orders))


def p_of_largest(values: NDArray[np.generic], largest: FloatArray) -> FloatArray:
    """(1 + permutations whose largest is as large) / (1 + permutations), for each value; NaN without permutations."""
    if not len(largest):
        return np.full(values.shape, np.nan)
    as_large = len(largest) - np.searchsorted(np.sort(largest), TIES * np.asarray(values, dtype=float))
    return np.asarray((1 + as_large) / (1 + len(largest)))
