"""Factor analysis of far more features than people, through inner products between people."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray

SMALLEST = 1e-12
"""Least noise variance of a feature."""

TOLERANCE = 1e-2
"""Gain of the log-likelihood below which the iteration stops, as in scikit-learn."""


class FactorAnalysis:
    """Maximum likelihood factor analysis, x = W' z + mean + noise with a variance of its own for every feature.

    The iteration is that of scikit-learn's ``FactorAnalysis`` (Barber 2012, Algorithm 21.1), exact where its default is
    randomised. Each step needs the leading singular vectors of the scaled features (n, E); they come from their inner
    products (n, n), which for n much below E is ten times as fast. Products are in single precision. `n_components`:
    factors, fewer than people. `iterations`: at most so many steps. `loadings_` (k, E): W, after `fit`. `noise_` (E,):
    noise variances, after `fit`. `converged_`: whether the likelihood had settled, after `fit`.
    """

    def __init__(self, n_components: int, iterations: int) -> None:
        self.n_components, self.iterations = n_components, iterations

    def fit(self, features: FloatArray) -> FactorAnalysis:
        """Estimate loadings and noise from features (n, E)."""
        n = len(features)
        self.mean_ = features.mean(axis=0)
        centred = (features - self.mean_).astype(np.float32)
        variance = np.einsum("ij,ij->j", centred, centred, dtype=np.float64) / n
        self.noise_, self.converged_, last = np.ones_like(variance), False, -np.inf
        for _ in range(self.iterations):
            scale = np.sqrt(self.noise_) + SMALLEST
            scaled = centred * (1 / (scale * np.sqrt(n))).astype(np.float32)
            values, vectors = linalg.eigh((scaled @ scaled.T).astype(float))
            leading = slice(None, -self.n_components - 1, -1)
            squares, people = np.maximum(values[leading], SMALLEST), vectors[:, leading]
            directions = (people / np.sqrt(squares)).astype(np.float32).T @ scaled
            self.loadings_ = np.sqrt(np.maximum(squares - 1, 0))[:, None] * directions * scale
            left = float(values[: n - self.n_components].sum())
            likelihood = -n / 2 * (np.log(squares).sum() + left + np.log(self.noise_).sum())
            if likelihood - last < TOLERANCE:
                self.converged_ = True
                break
            last = likelihood
            self.noise_ = np.maximum(variance - (self.loadings_**2).sum(axis=0), SMALLEST)
        return self

    def transform(self, features: FloatArray) -> FloatArray:
        """Expected factors given the features (n, E): shape (n, k)."""
        weights = self.loadings_ / self.noise_
        precision = np.eye(len(weights)) + weights @ self.loadings_.T
        return np.asarray(linalg.solve(precision, weights @ (features - self.mean_).T, assume_a="pos").T)
