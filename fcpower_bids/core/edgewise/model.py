"""The linear model of an edge: target, covariates and sites, and its t under permutation (Freedman and Lane 1983)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.folds import family_numbers
from fcpower_bids.errors import Unfit

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
        What was added drops out of the t; what is left are products of the residuals with the target and the covariates
        in permuted order. Sites and the mean drop out too, because people change places within their sites.

        Parameters
        ----------
        residuals : ndarray, shape (n, E)
            Of length 1 each.
        orders : ndarray of int, shape (B, n)
            ``core.regression.targets.permuted_rows``, within the sites.
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

    Parameters
    ----------
    target : array_like, shape (n,)
        Numbers, or 0 and 1.
    covariates : array_like, shape (n, c)
        May depend on each other and on the sites.
    sites : array_like, shape (n,), optional
        Each has a mean of its own.

    Raises
    ------
    Unfit
        The target does not vary, sites and covariates explain it, or hardly a degree of freedom is left.
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
