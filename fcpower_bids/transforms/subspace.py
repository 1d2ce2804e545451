"""Reductions of the edges of a group to a few components: PCA, factor analysis, ICA, random projection.

Unlike the other transforms their result is not a connectome but a row of scores per person, so they are used
at group level alone. scikit-learn does the work, on inner products between people where there are far more edges.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit

SMALLEST = 1e-12
"""Least noise variance of a feature."""
TOLERANCE = 1e-2
"""Gain of the log-likelihood below which the iteration stops, as in scikit-learn."""


class FactorAnalysis:
    """Maximum likelihood factor analysis, x = W' z + mean + noise with a variance of its own for every feature.

    The iteration is that of scikit-learn's ``FactorAnalysis`` (Barber 2012, Algorithm 21.1), exact where its default is
    randomised: the leading singular vectors of the scaled features (n, E) come from their inner products (n, n), in
    single precision, which for n much below E is ten times as fast. After `fit`: `loadings_` (k, E) W, `noise_` (E,)
    its variances, `converged_` whether the likelihood had settled.
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


SUBSPACES = ("pca", "factor_analysis", "ica", "random_projection")
N_COMPONENTS = 300
"""Components of the paper's PCA; it names no others, so the rest take as many."""
FACTOR_ITERATIONS = 10
"""Steps of factor analysis: with tens of thousands of edges each takes seconds, and later ones change little."""
RANK = 1e-12
"""Variance over the largest below which a principal component is rounding."""


class Subspace:
    """Scores of people on a few components of their edges. Raises ValueError."""

    def __init__(self, name: str, n_components: int = N_COMPONENTS, seed: int = 0) -> None:
        if name not in SUBSPACES:
            raise ValueError(f"There is no reduction called '{name}'. Choose from: {', '.join(SUBSPACES)}.")
        self.name, self.n_components, self.seed = name, n_components, seed
        self.notes: tuple[str, ...] = ()

    def _make(self, k: int) -> Any:
        """Return an estimator of k components as scikit-learn's, which is slow to load."""
        if self.name == "factor_analysis":
            return FactorAnalysis(k, FACTOR_ITERATIONS)
        if self.name == "random_projection":
            from sklearn.random_projection import GaussianRandomProjection

            return GaussianRandomProjection(k, random_state=self.seed)
        from sklearn.decomposition import PCA, FastICA

        if self.name == "pca":
            return PCA(k, svd_solver="full", random_state=self.seed)
        return FastICA(k, whiten="unit-variance", max_iter=200, random_state=self.seed)

    def fit(self, features: ArrayLike) -> Subspace:
        """Estimate the components from the edges of n people, shape (n, E). Raises ValueError.

        What rotations of the features do not change (PCA, ICA) is fitted to all principal scores instead: n numbers
        per person, found from the inner products of n people; the edges are many more.
        """
        rows = np.asarray(features)
        if rows.ndim != 2 or len(rows) < 3:
            raise Unfit("A reduction of edges needs the edges of three people or more.")
        if not np.isfinite(rows).all():
            raise ValueError("A reduction of edges cannot take missing values; drop the parcel for the cohort.")
        limit = rows.shape[1] if self.name == "random_projection" else min(len(rows) - 1, rows.shape[1])
        self._estimator = self._make(min(self.n_components, limit))
        self._rotated = self.name in ("pca", "ica")
        if self._rotated:
            self._mean = rows.mean(axis=0)
            self._rows = rows - self._mean
            gram = self._rows @ self._rows.T
            values, vectors = linalg.eigh(gram)
            kept = np.flatnonzero(values > RANK * values[-1])[::-1]
            largest = np.abs(vectors[:, kept]).argmax(axis=0)
            self._weights = vectors[:, kept] * np.sign(vectors[largest, kept]) / np.sqrt(values[kept])
            rows = gram @ self._weights
        self._fitted = rows
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._estimator.fit(rows)
        notes = [" ".join(str(warning.message).split()) for warning in caught]
        if not getattr(self._estimator, "converged_", True):
            notes.append(f"Factor analysis did not converge in {FACTOR_ITERATIONS} steps.")
        self.notes = tuple(dict.fromkeys(notes))
        return self

    def transform(self, features: ArrayLike) -> FloatArray:
        """Return scores (n, k) of edges (n, E)."""
        if not hasattr(self, "_estimator"):
            raise ValueError("A reduction of edges needs its components: call fit with the edges of the group first.")
        rows = np.asarray(features)
        rows = (rows - self._mean) @ self._rows.T @ self._weights if self._rotated else rows
        return np.asarray(self._estimator.transform(rows), dtype=np.float64)

    def fit_transform(self, features: ArrayLike) -> FloatArray:
        """Fit to edges (n, E) and return their scores (n, k)."""
        self.fit(features)
        return np.asarray(self._estimator.transform(self._fitted), dtype=np.float64)
