"""Alignment of the kernel of FC^alpha with targets, and the exponent at its maximum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial.chebyshev import chebfit
from numpy.typing import ArrayLike

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import in_range, power_weights
from fcpower_bids.core.edges import vectorise_edges

_SMALLEST_FOLD = 4


def _centred_inner(first: FloatArray, second: FloatArray, masks: FloatArray, debiased: bool = False) -> FloatArray:
    """<H K H, H L H> within each mask, (F,), NaN in a small one; the unbiased one of kernels with an empty diagonal."""
    sizes = masks.sum(axis=1)
    sizes = np.where(sizes >= _SMALLEST_FOLD, sizes, np.nan)
    rows, total = (2 / (sizes - 2), 1 / ((sizes - 1) * (sizes - 2))) if debiased else (2 / sizes, 1 / sizes**2)
    first_sums = masks * (masks @ first)
    second_sums = first_sums if second is first else masks * (masks @ second)
    squares = np.einsum("fi,fi->f", masks @ (first * second), masks)
    crossed = np.einsum("fi,fi->f", first_sums, second_sums)
    return squares - rows * crossed + total * first_sums.sum(axis=1) * second_sums.sum(axis=1)


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; NaN where the denominator is not positive (a constant target, an empty fold)."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1), np.nan)


def fold_targets(masks: ArrayLike, targets: ArrayLike) -> list[tuple[FloatArray, FloatArray]]:
    """Return, per target, its masks (F, n) without missing values and its values centred within them (F, n)."""
    masks = np.atleast_2d(np.asarray(masks, dtype=bool))
    targets = np.asarray(targets, dtype=np.float64)
    targets = targets[:, None] if targets.ndim == 1 else targets
    pairs = []
    for values in np.moveaxis(targets, -1, 0):
        known = (masks & np.isfinite(values)).astype(np.float64)
        filled = known * np.where(np.isfinite(values), values, 0)
        centred = filled - known * (filled.sum(axis=1) / np.maximum(known.sum(axis=1), 1))[:, None]
        # A constant target leaves a rounding remainder that would otherwise pass for variance.
        varies = (centred**2).sum(axis=1) > 1e-24 * (filled**2).sum(axis=1)
        pairs.append((known, centred * varies[:, None]))
    return pairs


def fold_moments(
    kernel: FloatArray, pairs: list[tuple[FloatArray, FloatArray]], other: FloatArray | None = None
) -> FloatArray:
    """N of `kernel`, and the inner product of `other` (default: itself) with it, shape (2, F, q).

    N = <H K H, H y y' H> / ||H y y' H||, without forming y y' of the centred targets.
    """
    norms: dict[bytes, FloatArray] = {}
    for known, _ in pairs:
        pattern = known.tobytes()
        if pattern not in norms:
            norms[pattern] = _centred_inner(kernel, kernel if other is None else other, known)
    targets = [values for _, values in pairs]
    numerators = [_divide(np.einsum("fi,fi->f", y @ kernel, y), (y**2).sum(axis=1)) for y in targets]
    return np.stack([np.stack(numerators, axis=-1), np.stack([norms[k.tobytes()] for k, _ in pairs], axis=-1)])


def alignment_from(moments: FloatArray) -> FloatArray:
    """A = N / sqrt(D) from moments of shape (M, 2, ...)."""
    return _divide(moments[:, 0], np.sqrt(np.maximum(moments[:, 1], 0)))


def kernel_alignment(first: ArrayLike, second: ArrayLike, debiased: bool = False) -> float:
    """Centred alignment (CKA) of two kernels (n, n), equation 5 of the paper; debiased: from unbiased HSIC."""
    first, second = (np.asarray(kernel, dtype=np.float64) for kernel in (first, second))
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("A kernel has missing or infinite values; leave out the subjects without features first.")
    if debiased:  # the unbiased HSIC ignores each subject's similarity to itself
        first, second = (kernel - np.diag(np.diag(kernel)) for kernel in (first, second))
    masks = np.ones((1, len(first)))
    pairs = ((first, second), (first, first), (second, second))
    inner, *norms = (_centred_inner(*pair, masks, debiased) for pair in pairs)
    return float(_divide(inner, np.sqrt(np.maximum(norms[0] * norms[1], 0)))[0])


def kernel_and_derivative(
    eigenvalues: ArrayLike, eigenvectors: Iterable[FloatArray], alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Kernel (n, n) of FC^alpha of eigenvalues (n, P) and its derivative in alpha (the paper, Appendix D.4)."""
    features, derivatives = [], []
    for values, vectors in zip(np.asarray(eigenvalues), eigenvectors, strict=True):
        weights = power_weights(values, alpha)
        logs = np.log(np.where(in_range(values), values, 1))
        edges, slope = (vectorise_edges((vectors * w) @ vectors.T) for w in (weights, weights * logs))
        edges, slope = edges - edges.mean(), slope - slope.mean()
        norm = np.linalg.norm(edges)
        features.append(edges / norm)
        derivatives.append((slope - features[-1] * (features[-1] @ slope)) / norm)
    units = np.stack(features)
    half = np.stack(derivatives) @ units.T
    return units @ units.T, half + half.T


def slope_from(moments: FloatArray, slopes: FloatArray) -> FloatArray:
    """The slope dA from (N, D) and (dN, <HKH, K'>): A (dN/N - dD/2D) written so that N = 0 is harmless."""
    numerators, norms = moments
    return _divide(slopes[0] - numerators * _divide(slopes[1], norms), np.sqrt(np.maximum(norms, 0)))


Kernels = Callable[[float], tuple[FloatArray, FloatArray | None]]
"""The kernel (n, n) of an exponent, and its derivative where that is known."""
ALPHA_BOUNDS = (0.02, 1.0)
NODES = np.mean(ALPHA_BOUNDS) - np.ptp(ALPHA_BOUNDS) / 2 * np.cos(np.pi * (np.arange(13) + 0.5) / 13)
"""Chebyshev nodes of the exponents, ascending; 11 to 13 are enough for condition 1e5."""
_GRID_POINTS = 99
FITTED = (0.1, 0.75)
"""Exponents through which the parabola goes."""


def quadratic_peak(alphas: ArrayLike, scores: ArrayLike) -> tuple[float, FloatArray]:
    """Peak of the variance-weighted quadratic fit of a curve over exponents (the paper, Figure "alpha").

    `alphas` (A,), `scores` (A, F): those in `FITTED` count, as their mean over folds, weighted by 1 / variance over
    folds. Returns the exponent at the peak, NaN where the parabola has no maximum in that range, and the coefficients
    (3,), the highest power first; NaN where fewer than four exponents have a mean and a spread.
    """
    alphas, scores = np.asarray(alphas, dtype=float), np.asarray(scores, dtype=float)
    inside = (alphas >= FITTED[0] - 1e-9) & (alphas <= FITTED[1] + 1e-9)
    alphas, scores = alphas[inside], scores[inside]
    scores = scores[:, np.isfinite(scores).all(axis=0)]
    if len(alphas) < 4 or scores.shape[1] < 2 or not (scores.std(axis=1) > 0).all():
        return np.nan, np.full(3, np.nan)
    fit = np.polyfit(alphas, scores.mean(axis=1), 2, w=1 / scores.std(axis=1))
    peak = -fit[1] / (2 * fit[0]) if fit[0] < 0 else np.nan
    return float(peak if FITTED[0] <= peak <= FITTED[1] else np.nan), fit


@dataclass(frozen=True)
class AlignmentCurves:
    """A(alpha) of every fold and target as an interpolant through the nodes."""

    moments: FloatArray  # (M, 2, F, q): N and D at the nodes
    slopes: FloatArray | None = None  # (M, 2, F, q), or None: dN/dalpha and <HKH, K'> at the nodes

    @cached_property
    def _basis(self) -> Callable[[FloatArray], FloatArray]:
        from scipy.interpolate import BarycentricInterpolator  # takes a quarter of a second

        apart = (NODES[:, None] - NODES) * 4 / np.ptp(NODES) + np.eye(len(NODES))
        # scipy's own weights multiply in a random order, so their last bits would differ from run to run
        return BarycentricInterpolator(NODES, np.eye(len(NODES)), wi=1 / apart.prod(axis=1))

    def at(self, alphas: ArrayLike) -> FloatArray:
        """Alignment at any exponents between the nodes, shape (len(alphas), F, q)."""
        return alignment_from(np.tensordot(self._basis(np.atleast_1d(alphas)), self.moments, axes=1))

    def truncation(self) -> FloatArray:
        """Size of the last two Chebyshev coefficients of A, shape (F, q): what the interpolant may be off by."""
        scaled = (2 * NODES - NODES[0] - NODES[-1]) / (NODES[-1] - NODES[0])
        curves = alignment_from(self.moments)
        coefficients = chebfit(scaled, curves.reshape(len(scaled), -1), len(scaled) - 1)
        return np.abs(coefficients[-2:]).max(axis=0).reshape(curves.shape[1:])

    def optimum(self) -> dict[str, FloatArray]:
        """Maximise every curve: the best point of a grid, refined by Brent's search between its neighbours.

        Returns columns of ``alpha_optimum``, each (F, q). The alignment is NaN for a fold without variance, its slope
        where the derivatives of the kernels were not given.
        """
        from scipy.optimize import minimize_scalar  # takes a fifth of a second

        (low, high), grid = ALPHA_BOUNDS, np.linspace(*ALPHA_BOUNDS, _GRID_POINTS)
        on_grid = self.at(grid)
        alpha, alignment, slope = np.full((3, *on_grid.shape[1:]), np.nan)
        for fold, target in np.ndindex(alpha.shape):
            curve, moments = on_grid[:, fold, target], self.moments[:, :, fold, target]
            if not np.isfinite(curve).all():
                continue
            best = int(curve.argmax())
            result = minimize_scalar(
                lambda alpha, moments=moments: -alignment_from((self._basis(alpha) @ moments)[None])[0],
                bounds=(grid[max(best - 1, 0)], grid[min(best + 1, _GRID_POINTS - 1)]),
                method="bounded",
                options={"xatol": 1e-6},
            )
            alpha[fold, target], alignment[fold, target] = result.x, -result.fun
            if self.slopes is not None:
                basis = self._basis(result.x)
                slopes = basis @ self.slopes[:, :, fold, target]
                slope[fold, target] = slope_from((basis @ moments)[:, None], slopes[:, None])[0]
        at_bound = np.isfinite(alpha) & ((alpha - low < 1e-4) | (high - alpha < 1e-4))
        at_star = {"score_at_star": self.at(ALPHA_STAR)[0], "slope": slope, "truncation": self.truncation()}
        return {"alpha": alpha, "score": alignment, **at_star, "at_bound": at_bound}


def alignment_curves(kernels: Kernels, masks: ArrayLike, targets: ArrayLike) -> AlignmentCurves:
    """N and D at the nodes (M,), one kernel (n, n) at a time: masks (F, n), targets (n,), (n, q) or (F, n, q).

    A missing target leaves the person out; NaN for folds of fewer than four, or with a constant target.
    """
    pairs, moments, slopes = fold_targets(masks, targets), [], []
    for alpha in NODES.tolist():
        kernel, derivative = kernels(alpha)
        moments.append(fold_moments(kernel, pairs))
        if derivative is not None:
            slopes.append(fold_moments(derivative, pairs, other=kernel))
    return AlignmentCurves(np.stack(moments), np.stack(slopes) if slopes else None)
