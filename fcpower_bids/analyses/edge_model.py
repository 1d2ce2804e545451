"""The linear model of every edge: target, covariates, sites, and groups that are spread differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.folds import family_numbers
from fcpower_bids.core.regression.kernels import PANEL, FeatureSource
from fcpower_bids.errors import Unfit

STEPS = 50
"""Of Newton's iteration for the inverse of the trigamma function, which needs fewer than ten."""
LEAST_EXCESS = 1e-6
"""Variance of log ratios between edges that is none: all edges have one ratio."""


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """How far the variance of each of G groups goes by all edges, in each of B permutations."""

    # (G, B): share of an edge's own variance in it; the rest is what the variance of everyone makes likely
    own: FloatArray
    ratio: FloatArray  # (G, B): variance of the group over that of everyone, common to all edges


def learn_shrinkage(rests: FloatArray, freedom: FloatArray) -> Shrinkage:
    """Ratios of variances over all edges, and how much they truly differ (Smyth 2004); squares (G, B, E)."""
    n_groups, n_orders, n_edges = rests.shape
    if n_groups < 2 or n_edges < 2:
        return Shrinkage(*np.ones((2, n_groups, n_orders)))
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
    own = np.where(excess > LEAST_EXCESS, freedom / (freedom + 2 * x), 0.0)
    return Shrinkage(own, ratio)


def join_variances(
    rests: FloatArray, weights: FloatArray, freedom: FloatArray, shrinkage: Shrinkage
) -> tuple[FloatArray, FloatArray]:
    """Variance of the slope over groups, squares (G, B, E), and its degrees of freedom by Satterthwaite: (B, E)."""
    own, ratio, whole = shrinkage.own, shrinkage.ratio, float(freedom[:, 0].sum())
    borrowed = (1 - own) * ratio
    share = weights * own / freedom + (weights * borrowed).sum(axis=0) / (ratio * whole)
    # of the sampling of the squares, and of how much the ratio of an edge may differ from that of all
    uncertain = np.sqrt(share**2 * freedom + weights**2 * own * (1 - own) / freedom)
    pooled, total, squared = np.zeros((3, *rests.shape[1:]))
    for rest, each, one in zip(rests, ratio, share, strict=True):
        pooled += rest / (each * whole)[:, None]
        total += rest * one[:, None]
    for rest, from_own, from_all in zip(rests, uncertain * own / freedom, uncertain * borrowed, strict=True):
        part = rest * from_own[:, None]
        part += pooled * from_all[:, None]
        part *= part
        squared += part
    found = total * total
    found /= np.maximum(squared, np.finfo(float).tiny, out=squared)
    return total, np.clip(found, freedom.min(axis=0)[:, None], whole, out=found)


LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Statistic:
    """The t of every edge, all arrays of shape (E,)."""

    t: FloatArray  # welch's, or Student's with one variance group; NaN for an edge that does not vary
    df: FloatArray  # its degrees of freedom, by Satterthwaite
    spread: FloatArray  # its standard error over the one that equal variances would give


def partial_correlation(found: Statistic, df: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Partial correlation (E,) of edge and target given the covariates, with its 95 % interval by Fisher's z."""
    t = found.t * found.spread
    r = t / np.sqrt(t**2 + df)
    z, wide = np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15)), special.stdtrit(found.df, (1 + LEVEL) / 2)
    wide *= found.spread / special.stdtrit(df, (1 + LEVEL) / 2)
    half = wide * special.ndtri((1 + LEVEL) / 2) / np.sqrt(df - 1) if df > 1 else np.nan * wide
    return r, np.tanh(z - half), np.tanh(z + half)


def cohens_d(found: Statistic, length: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Difference d (E,) of two classes given the covariates, with its 95 % interval by the noncentral t."""
    per_t = found.spread / length
    low, high = (special.nctdtrinc(found.df, (1 + sign * LEVEL) / 2, found.t) * per_t for sign in (1, -1))
    return found.t * per_t, low, high


def comparable_t(t: FloatArray, df: FloatArray, common: int) -> FloatArray:
    """Bring t to common degrees of freedom: as far in the tail there (Wallace 1959, in closed form)."""
    ratio = (8 * df + 1) / (8 * df + 3)
    ratio *= ratio
    ratio *= df * ((8 * common + 3) / (8 * common + 1)) ** 2 / common
    size = t * t
    size /= df
    np.log1p(size, out=size)
    size *= ratio
    np.expm1(size, out=size)
    size *= common
    np.sqrt(size, out=size)
    return np.asarray(np.copysign(size, t, out=size))


def number_pairs(networks: Sequence[str]) -> tuple[list[tuple[str, str]], Rows]:
    """Name the pairs of networks that have edges, and say of which pair each edge is. Returns pair (E,)."""
    labels = list(dict.fromkeys(networks))
    place = np.array([labels.index(name) for name in networks])
    first, second = np.triu_indices(len(networks), 1)
    ends = np.sort(np.column_stack([place[first], place[second]]), axis=1)
    there, pair = np.unique(ends @ [len(labels), 1], return_inverse=True)
    names = [(labels[key // len(labels)], labels[key % len(labels)]) for key in there.tolist()]
    return names, pair.astype(np.intp)


def average_pairs(features: FeatureSource, pair: Rows) -> FloatArray:
    """Mean of the edges of each pair of networks, shape (n, K). Shapes and units: features (n, E), pair (E,)."""
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
class Placed:
    """The target after B changes of places."""

    tested: FloatArray  # (B, n): without what sites and covariates explain, of length 1
    groups: Rows  # (B, n): number of the variance group
    weights: FloatArray  # (G, B), or (G, 1) where it is always the same: squares of the target in each group
    freedom: FloatArray  # alike: degrees of freedom of the variance of each group
    moved: Rows | None  # (B, n): orders of the covariates, where these change places too


@dataclass(frozen=True, eq=False)
class EdgeModel:
    """Edge = sites (or one mean) + covariates + target, for n people."""

    tested: FloatArray  # (n,): the target without what sites and covariates explain, of length 1
    length: float  # its length before: an edge that grows by b per unit of the target has b * length along ``tested``
    covariates: FloatArray  # (n, c): orthonormal basis of the covariates, without what sites explain
    sites: Rows  # (n,): number of the site of each person; 0 for everyone without sites
    groups: Rows  # (n,): number of the variance group of each person: those whose residuals are equally spread
    df: int  # residual degrees of freedom

    @cached_property
    def freedom(self) -> FloatArray:
        """Degrees of freedom of the variance of each group, shape (G,); they add up to ``df``."""
        return _add_up(self.groups, _left_to(self.sites, self.covariates, self.tested))

    def residuals(self, edges: ArrayLike) -> FloatArray:
        """Edges (n, E) without sites and covariates, each of length 1; of length 0 where nothing is left of one."""
        values = np.asarray(edges, dtype=np.float64)
        left = _without_sites(values, self.sites)
        left -= self.covariates @ (self.covariates.T @ left)
        size = np.linalg.norm(left, axis=0)
        varies = size > ROUNDING * np.abs(values).max(axis=0, initial=0.0) * len(values) ** 0.5
        return np.asarray(left * np.where(varies, 1 / np.where(varies, size, 1.0), 0.0))

    def _place(self, orders: Rows | None = None) -> Placed:
        """The model as it is, or where people have changed places."""
        if orders is None:
            weights = _add_up(self.groups, self.tested**2)
            return Placed(self.tested[None], self.groups[None], weights[:, None], self.freedom[:, None], None)
        # covariates are not fitted again: each group keeps what they took
        both = self.tested**2, _left_to(self.sites, self.covariates[:, :0], self.tested)
        weights, freedom = (_add_up(self.groups, each)[:, None] for each in both)
        return Placed(self.tested[orders], self.groups[orders], weights, freedom, orders)

    def shrinkage(self, residuals: FloatArray, orders: Rows | None = None) -> Shrinkage:
        """How the variances of groups go by all edges, as people are or in permutations (B, n)."""
        placed = self._place(orders)
        return learn_shrinkage(self._squares(residuals[:, residuals.any(axis=0)], placed)[1], placed.freedom)

    def made_alike(self, residuals: FloatArray, shrinkage: Shrinkage) -> FloatArray:
        """Residuals (n, E) that may change places: over the spread that all edges have in the person's group."""
        if len(self.freedom) == 1:
            return residuals
        return self.residuals(residuals / np.sqrt(shrinkage.ratio[self.groups]))

    def statistic(self, residuals: FloatArray, shrinkage: Shrinkage | None = None) -> Statistic:
        """Statistic of the target for residuals (n, E) of length 1; without shrinkage each edge goes by itself."""
        flat = ~residuals.any(axis=0)
        if len(self.freedom) == 1:
            t = np.where(flat, np.nan, self._student(residuals, self._place())[0])
            return Statistic(t, np.full(t.shape, float(self.df)), np.ones(t.shape))
        t, df, error = (each[0] for each in self._welch(residuals, self._place(), shrinkage))
        equal = (1 - (t * error) ** 2) / self.df
        return Statistic(np.where(flat, np.nan, t), df, error / np.sqrt(np.maximum(equal, LEAST_REST / self.df)))

    def common_t(self, found: Statistic) -> FloatArray:
        """The t of every edge at the degrees of freedom of the model, by which edges are compared, shape (E,)."""
        return found.t if len(self.freedom) == 1 else comparable_t(found.t, found.df, self.df)

    def permuted_t(self, residuals: FloatArray, orders: Rows, shrinkage: Shrinkage | None = None) -> FloatArray:
        """Statistic (B, E) when residuals (n, E) of the reduced model change places: target and covariates move."""
        placed = self._place(orders)
        if len(self.freedom) == 1:
            return self._student(residuals, placed)
        t, df, _ = self._welch(residuals, placed, shrinkage)
        return comparable_t(t, df, self.df)

    def _student(self, residuals: FloatArray, placed: Placed) -> FloatArray:
        """Student's t (B, E) after Freedman and Lane; what the reduced model fitted drops out of the t."""
        r = placed.tested @ residuals
        rest = 1 - r * r
        for column in () if placed.moved is None else self.covariates.T:
            explained = column[placed.moved] @ residuals
            explained *= explained
            rest -= explained
        np.maximum(rest, LEAST_REST, out=rest)
        rest /= self.df
        np.sqrt(rest, out=rest)
        r /= rest
        return np.asarray(r)

    def _welch(self, residuals: FloatArray, placed: Placed, shrinkage: Shrinkage | None) -> tuple[FloatArray, ...]:
        """Welch's t (v of Winkler et al. 2014) with variances of groups, degrees of freedom and SE, each (B, E)."""
        r, rests = self._squares(residuals, placed)
        shrinkage = shrinkage or Shrinkage(*np.ones((2, *rests.shape[:2])))
        total, df = join_variances(rests, placed.weights, placed.freedom, shrinkage)
        np.maximum(total, LEAST_REST / self.df, out=total)
        error = np.sqrt(total, out=total)
        return r / error, df, error

    def _squares(self, residuals: FloatArray, placed: Placed) -> tuple[FloatArray, FloatArray]:
        """Product with the target (B, E), and what is left of the squares of each group without it (G, B, E)."""
        products, rests = self._moments(residuals, placed)
        r = products.sum(axis=0)
        for product, rest, weight in zip(products, rests, placed.weights, strict=True):
            product *= -2
            product += weight[:, None] * r
            product *= r
            rest += product
            np.maximum(rest, 0, out=rest)
        return r, rests

    def _moments(self, residuals: FloatArray, placed: Placed) -> tuple[FloatArray, FloatArray]:
        """Product of residuals with the target, and sum of squares, of each group, site by site: (G, B, E)."""
        products, rests = np.zeros((2, len(self.freedom), len(placed.tested), residuals.shape[1]))
        for site in range(int(self.sites.max()) + 1):
            rows = np.flatnonzero(self.sites == site)
            here, tested, groups = residuals[rows], placed.tested[:, rows], placed.groups[:, rows]
            squares, (last, *others) = here * here, np.unique(self.groups[rows])
            product, rest = tested @ here, squares.sum(axis=0)
            for group in others:
                member = (groups == group).astype(np.float64)
                of_group, size = (tested * member) @ here, member @ squares
                products[group] += of_group
                rests[group] += size
                product -= of_group
                rest = rest - size
            products[last] += product
            rests[last] += rest
        return products, rests

    def slopes(self, edges: ArrayLike) -> FloatArray:
        """Change of edges (n, E) per unit of the target, given sites and covariates, shape (E,)."""
        return np.asarray(self.tested @ np.asarray(edges, dtype=np.float64) / self.length)

    def keeps_design(self, orders: Rows) -> NDArray[np.bool_]:
        """Which permutations leave the model as it is, or turn the target around: they can only repeat the |t|."""
        same = np.abs(self.tested[orders] @ self.tested) > 1 - 1e-9
        within = (np.einsum("nc,bnk->bck", self.covariates, self.covariates[orders]) ** 2).sum(axis=(1, 2))
        return np.asarray(same & (within > self.covariates.shape[1] - 1e-9))


def build_model(
    target: ArrayLike, covariates: ArrayLike, sites: ArrayLike | None = None, groups: ArrayLike | None = None
) -> EdgeModel:
    """Prepare the linear model of the edges; target, sites, groups (n,), covariates (n, c). Raises Unfit."""
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
    spread = np.zeros(len(values), dtype=np.intp) if groups is None else family_numbers(groups, len(values))
    left /= length
    shares = _left_to(number, basis, left)
    # Groups whose own variance would have too few degrees of freedom share one, the smallest first.
    while spread.any() and (freedom := _add_up(spread, shares)).min() < FEWEST_DF:
        smallest, next_one = np.argsort(freedom, kind="stable")[:2]
        spread = np.unique(np.where(spread == smallest, next_one, spread), return_inverse=True)[1]
    return EdgeModel(left, length, basis, number, spread, df)


def _left_to(sites: Rows, covariates: FloatArray, tested: FloatArray) -> FloatArray:
    """Degrees of freedom that a model leaves to each person, shape (n,): 1 minus the leverage."""
    return np.asarray(1 - 1 / np.bincount(sites)[sites] - (covariates**2).sum(axis=1) - tested**2)


def _add_up(groups: Rows, values: FloatArray) -> FloatArray:
    """Sum of values (n,) in each group, shape (G,)."""
    return np.asarray(np.bincount(groups, values), dtype=np.float64)


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
