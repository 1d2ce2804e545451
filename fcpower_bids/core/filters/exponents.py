"""The exponent of best alignment per training fold, by a dozen Chebyshev nodes (the paper, Section 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial.chebyshev import chebfit
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.filters.alignment import (
    alignment_from,
    checked_kernel,
    emptied,
    fold_moments,
    fold_targets,
    slope_from,
)

Kernels = Callable[[float], ArrayLike] | ArrayLike

ALPHA_BOUNDS = (0.02, 1.0)
N_NODES = 13
_GRID_POINTS = 99


def chebyshev_nodes(n_nodes: int = N_NODES, bounds: tuple[float, float] = ALPHA_BOUNDS) -> FloatArray:
    """Chebyshev nodes (n_nodes,) of an interval of exponents, ascending; 11 to 13 are enough for condition 1e5."""
    low, high = bounds
    angles = np.pi * (np.arange(n_nodes) + 0.5) / n_nodes
    return (low + high) / 2 - (high - low) / 2 * np.cos(angles)


@dataclass(frozen=True)
class AlignmentOptimum:
    """The best exponent of each fold and target, every array of shape (F, q)."""

    alpha: FloatArray  # alpha_A: where the alignment is largest within the bounds; NaN for a fold without variance
    alignment: FloatArray  # a there
    alignment_at_star: FloatArray  # a at alpha = 0.35
    slope: FloatArray  # dA/dalpha there from the closed form; NaN where the derivatives of the kernels were not given
    evaluations: NDArray[np.int64]  # steps of Brent's search on the interpolant
    at_bound: NDArray[np.bool_]  # the optimum lies at an end of the interval: the true one may be outside


@dataclass(frozen=True)
class AlignmentCurves:
    """A(alpha) of every fold and target as an interpolant through the nodes."""

    nodes: FloatArray  # (M,): exponents at which kernels were computed
    moments: FloatArray  # (M, 2, F, q): N and D at the nodes
    slopes: FloatArray | None = None  # (M, 2, F, q), or None: dN/dalpha and <HKH, K'> at the nodes

    @cached_property
    def _basis(self) -> Callable[[FloatArray], FloatArray]:
        from scipy.interpolate import BarycentricInterpolator  # takes a quarter of a second

        return BarycentricInterpolator(self.nodes, np.eye(len(self.nodes)))

    def at(self, alphas: ArrayLike) -> FloatArray:
        """Alignment at any exponents between the nodes, shape (len(alphas), F, q)."""
        return alignment_from(np.tensordot(self._basis(np.atleast_1d(alphas)), self.moments, axes=1))

    def truncation(self) -> FloatArray:
        """Size of the last two Chebyshev coefficients of A, shape (F, q): what the interpolant may be off by."""
        low, high = self.nodes.min(), self.nodes.max()
        scaled = (2 * self.nodes - low - high) / (high - low)
        curves = alignment_from(self.moments)
        coefficients = chebfit(scaled, curves.reshape(len(scaled), -1), len(scaled) - 1)
        return np.abs(coefficients[-2:]).max(axis=0).reshape(curves.shape[1:])

    def optimum(self, bounds: tuple[float, float] = ALPHA_BOUNDS, tolerance: float = 1e-6) -> AlignmentOptimum:
        """Maximise every curve: the best point of a grid, refined by Brent's search between its neighbours."""
        grid = np.linspace(*bounds, _GRID_POINTS)
        on_grid = self.at(grid)
        folds, targets = on_grid.shape[1:]
        result = np.full((4, folds, targets), np.nan)
        for fold, target in np.ndindex(folds, targets):
            if np.isfinite(on_grid[:, fold, target]).all():
                best = int(on_grid[:, fold, target].argmax())
                bracket = grid[max(best - 1, 0)], grid[min(best + 1, _GRID_POINTS - 1)]
                result[:, fold, target] = self._search(fold, target, bracket, tolerance)
        alpha, alignment, slope, evaluations = result
        at_bound = np.isfinite(alpha) & ((alpha - bounds[0] < 1e-4) | (bounds[1] - alpha < 1e-4))
        counts = np.nan_to_num(evaluations).astype(np.int64)
        return AlignmentOptimum(alpha, alignment, self.at(ALPHA_STAR)[0], slope, counts, at_bound)

    def _search(
        self, fold: int, target: int, bracket: tuple[float, float], tolerance: float
    ) -> tuple[float, float, float, int]:
        from scipy.optimize import minimize_scalar  # takes a fifth of a second

        moments = self.moments[:, :, fold, target]
        found = minimize_scalar(
            lambda alpha: -alignment_from((self._basis(alpha) @ moments)[None])[0],
            bounds=bracket,
            method="bounded",
            options={"xatol": tolerance},
        )
        slope = np.nan
        if self.slopes is not None:
            basis = self._basis(found.x)
            slope = slope_from((basis @ moments)[:, None], (basis @ self.slopes[:, :, fold, target])[:, None])[0]
        return found.x, -found.fun, slope, found.nfev


def alignment_curves(
    kernels: Kernels,
    masks: ArrayLike,
    targets: ArrayLike,
    nodes: ArrayLike | None = None,
    derivatives: Kernels | None = None,
    debiased: bool = False,
) -> AlignmentCurves:
    """N and D of every fold and target at the nodes (M,), one kernel (n, n) at a time; see `target_alignment`."""
    nodes = chebyshev_nodes() if nodes is None else np.asarray(nodes, dtype=np.float64)
    pairs = fold_targets(masks, targets)
    n = pairs[0][0].shape[1]
    moments, slopes = [], []
    for position, alpha in enumerate(nodes):
        kernel = emptied(checked_kernel(_take(kernels, position, alpha), n), debiased)
        moments.append(fold_moments(kernel, pairs, debiased))
        if derivatives is not None:
            derivative = emptied(checked_kernel(_take(derivatives, position, alpha), n), debiased)
            slopes.append(fold_moments(derivative, pairs, debiased, other=kernel))
    return AlignmentCurves(nodes, np.stack(moments), np.stack(slopes) if slopes else None)


def _take(kernels: Kernels, position: int, alpha: float) -> ArrayLike:
    return kernels(float(alpha)) if callable(kernels) else np.asarray(kernels)[position]
