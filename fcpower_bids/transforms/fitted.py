"""What is fitted to a group: tangent space, Tucker factors, and reductions of the edges to a few components."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy  # its `linalg` is loaded by the first use
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import (
    ParcelError,
    counted_among_all,
    covered_parcels,
    eigendecompose,
    full_rank,
    inverse,
    matrix_log,
    regularise,
    spectral_map,
    spectral_power,
    spread,
)
from fcpower_bids.errors import Unfit

MAXIMUM_ITERATIONS = 50
TOLERANCE = 1e-10
SINGLE = 1e-6
"""Tolerance from which on single precision will do."""
SMALLEST = 1e-5
"""Smallest eigenvalue over the largest that single precision shows."""
SHORTEST = 0.1
"""Least step of the affine-invariant mean, as a share of the mean tangent vector."""


def _exponential(matrix: ArrayLike) -> FloatArray:
    eigenvalues, eigenvectors = eigendecompose(matrix)
    return spectral_map(eigenvectors, np.exp(eigenvalues))


def _average(function: Callable[[ArrayLike], NDArray[np.floating]], matrices: Sequence[ArrayLike]) -> FloatArray:
    """Average one image at a time: a large cohort does not fit into memory twice."""
    total = np.zeros(np.shape(matrices[0]))
    for matrix in matrices:
        total += function(matrix)
    return total / len(matrices)


def whitening(reference: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return R^(-1/2) and R^(1/2) of a reference R (P, P). Raises ValueError where it is rank-deficient."""
    eigenvalues, eigenvectors = eigendecompose(reference)
    root = np.sqrt(regularise(eigenvalues))
    return spectral_map(eigenvectors, 1 / root), spectral_map(eigenvectors, root)


def whiten(matrix: ArrayLike, whitener: FloatArray) -> FloatArray:
    """R^(-1/2) Sigma R^(-1/2), exactly symmetric, in the precision of the whitener: shape (P, P)."""
    whitened = whitener @ np.asarray(matrix, dtype=whitener.dtype) @ whitener
    return (whitened + whitened.T) / 2


def _tangent_vector(matrix: ArrayLike, whitener: FloatArray) -> FloatArray:
    return matrix_log(whiten(matrix, whitener))


COARSE, COARSE_PASSES = 1e-3, 3
"""Norm of the mean tangent vector over P below which passes are in double precision, and how many before are not."""


def _coarse_vector(matrix: ArrayLike, whitener: FloatArray, product: Any = np.float64) -> NDArray[np.floating]:
    """:func:`_tangent_vector` decomposed in single precision, in half the time, where its rounding is small enough."""
    whitened = whiten(matrix, whitener.astype(product)).astype(np.float32)
    values, vectors = scipy.linalg.eigh(whitened, driver="evd", check_finite=False)
    small = values[0] < SMALLEST * values[-1]
    return _tangent_vector(matrix, whitener) if small else spectral_map(vectors, np.log(values))


def _vector(tolerance: float) -> Callable[..., NDArray[np.floating]]:
    return _coarse_vector if tolerance >= SINGLE else _tangent_vector


def arithmetic_mean(matrices: Sequence[ArrayLike]) -> FloatArray:
    """(1/n) sum Sigma_i, shape (P, P)."""
    return _average(np.array, matrices)


def harmonic_mean(matrices: Sequence[ArrayLike]) -> FloatArray:
    """((1/n) sum Sigma_i^-1)^-1, shape (P, P): the reference of the paper's screen (Appendix E). Raises ValueError."""
    return inverse(_average(inverse, matrices))


def riemannian_mean(matrices: Sequence[ArrayLike], tolerance: float = TOLERANCE) -> FloatArray:
    """Mean under the affine-invariant metric, shape (P, P): where the tangent vectors sum to zero (Pennec et al. 2006).

    Fixed-point iteration from halfway between the arithmetic and the harmonic mean, which is near. A step is the mean
    tangent vector times a number of at most 1 that follows from how the last step has changed it (Barzilai and Borwein
    1988). `tolerance`: norm of that vector over P at which the mean is found, foretold from how much the last step
    shortened it; below 1e-6 the last passes are in double precision. Raises ValueError, Unfit.
    """
    whitener, root = whitening(arithmetic_mean(matrices))
    mean = whiten(spectral_power(whiten(harmonic_mean(matrices), whitener), 0.5), root)  # Bhatia 2007, chapter 4
    length, last, size = 1.0, None, 0.0
    for number in range(MAXIMUM_ITERATIONS):
        whitener, root = whitening(mean)
        is_coarse = number < COARSE_PASSES and (number == 0 or size > COARSE)
        vector = partial(_coarse_vector, product=np.float32) if is_coarse else _vector(tolerance)
        gradient = _average(partial(vector, whitener=whitener), matrices)
        if last is not None:
            change = float((last * (last - gradient)).sum())
            length = float(np.clip(length * (last**2).sum() / change, SHORTEST, 1.0)) if change > 0 else SHORTEST
        before, size = size, float(np.linalg.norm(gradient)) / len(mean)
        mean, last = whiten(_exponential(length * gradient), root), gradient
        if not is_coarse and size * min(size / before if before else 1.0, 1.0) <= tolerance:
            return mean
    raise Unfit("The affine-invariant mean does not converge. Take the harmonic or log-Euclidean reference.")


MEANS: dict[str, Callable[..., FloatArray]] = {
    "harmonic": harmonic_mean,
    "arithmetic": arithmetic_mean,
    "logeuclidean": lambda matrices: _exponential(_average(matrix_log, matrices)),  # Arsigny et al. 2006
    "riemannian": riemannian_mean,
}
"""By the name of the tangent reference: functions of the matrices; the affine-invariant one has a tolerance too."""


class FittedTransform:
    """A transform that is fitted to recordings of the same parcels; one that any of them lacks is left out for all.

    A subclass gives `fit` and `_apply`. `covered_` (P,): parcels that every fitted recording covers, after `fit`.
    """

    name, diagonal = "of a group", False
    _apply: Callable[[FloatArray], FloatArray]

    def _cover(self, X: Sequence[ArrayLike]) -> None:
        """Find the parcels that all cover. Raises ValueError."""
        if not len(X) or len({np.shape(recording) for recording in X}) > 1:
            raise ValueError("A transform is fitted to one recording or more, all of the same parcels.")
        self.covered_ = np.all([covered_parcels(recording) for recording in X], axis=0)

    def _block(self, recording: ArrayLike) -> FloatArray:
        recording = np.asarray(recording)
        return recording if self.covered_.all() else recording[np.ix_(self.covered_, self.covered_)]

    def transform(self, recording: ArrayLike) -> FloatArray:
        """Transform a recording (P, P), NaN in parcels that were not fitted. Raises ValueError."""
        missing = self.covered_ & ~covered_parcels(recording)
        if missing.any():
            raise ParcelError("A parcel of the group is not covered here", np.flatnonzero(missing))
        with counted_among_all(self.covered_):
            return spread(self._apply(self._block(recording)), self.covered_)


@dataclass(kw_only=True, eq=False)
class Tangent(FittedTransform):
    """log(R^(-1/2) FC R^(-1/2)) with the reference R of the recordings it was fitted to (Varoquaux et al. 2010).

    `reference_` (C, C): R of the covered parcels, after `fit`.
    """

    reference: str = "harmonic"
    tolerance: float = TOLERANCE
    eigenvalue_floor: float | None = None
    shrink_to_identity: float | None = None

    def __post_init__(self) -> None:
        if self.reference not in MEANS:
            raise ValueError(f"There is no tangent reference '{self.reference}'. Choose from: {', '.join(MEANS)}.")

    def fit(self, X: Sequence[ArrayLike]) -> Tangent:
        """Compute the reference of n recordings, each (P, P)."""
        self._cover(X)
        regular = [full_rank(self._block(recording), self.eigenvalue_floor, self.shrink_to_identity) for recording in X]
        exact = {"tolerance": self.tolerance} if self.reference == "riemannian" else {}
        self.reference_ = MEANS[self.reference](regular, **exact)
        self._whitener = whitening(self.reference_)[0]
        return self

    def _apply(self, recording: FloatArray) -> FloatArray:
        regular = full_rank(recording, self.eigenvalue_floor, self.shrink_to_identity)
        return np.asarray(_vector(self.tolerance)(regular, self._whitener), dtype=float)


TUCKER_ITERATIONS = 30
RANK = 1e-12
"""Squared singular value, or variance, over the largest below which a direction is rounding."""
TUCKER_TOLERANCE = 1e-8
"""Change of the share of the norm that is kept below which the iteration stops; tensorly's is 1e-4."""


@dataclass(kw_only=True, eq=False)
class Tucker(FittedTransform):
    """FC rebuilt from a Tucker decomposition of the tensor people x parcels x parcels.

    By higher-order orthogonal iteration from the higher-order SVD (De Lathauwer et al. 2000). Both parcel modes share
    their factors U, `factors_` (C, r) after `fit`; the people's mode is kept as the orthonormal directions that it
    allows between cores U' FC U, `directions_` (r * r, q), so that a recording that was not fitted is denoised alike.
    The paper screens "Tucker-denoised FC" and names no ranks: the defaults are ours.
    """

    parcel_share: float = 0.25
    people_share: float = 0.5
    single: bool = False  # whether single precision will do

    def __post_init__(self) -> None:
        if not (0 < self.parcel_share <= 1 and 0 < self.people_share <= 1):
            raise ValueError("The shares of Tucker factors must be above 0 and at most 1.")

    def fit(self, X: Sequence[ArrayLike]) -> Tucker:
        """Find the factors of n recordings, each (P, P)."""
        self._cover(X)
        n_covered = int(self.covered_.sum())
        # filled in place: a large cohort does not fit twice
        tensor = np.empty((len(X), n_covered, n_covered), np.float32 if self.single else float)
        for place, recording in enumerate(X):
            tensor[place] = self._block(recording)
        n_people = max(1, round(self.people_share * len(tensor)))
        n_factors = max(1, round(self.parcel_share * tensor.shape[1]))
        self.factors_, self.directions_ = decompose_tensor(tensor, n_factors, n_people)
        return self

    def _apply(self, recording: FloatArray) -> FloatArray:
        r = self.factors_.shape[1]
        core = (self.factors_.T @ recording @ self.factors_).ravel()
        kept = (self.directions_ @ (self.directions_.T @ core)).reshape(r, r)
        denoised = self.factors_ @ kept @ self.factors_.T
        return (denoised + denoised.T) / 2


def decompose_tensor(tensor: NDArray[np.floating], n_factors: int, n_people: int) -> tuple[FloatArray, FloatArray]:
    """Tucker factors of symmetric matrices by higher-order orthogonal iteration in the precision of the tensor.

    Shapes and units: tensor (n, P, P); returns factors (P, n_factors), directions (n_factors**2, q).
    """
    # The modes of the higher-order SVD: leading eigenvectors of the sum of squared matrices.
    factors = _leading(_sum_of_squares(tensor), n_factors)
    last, total = -np.inf, np.linalg.norm(tensor)
    for _ in range(TUCKER_ITERATIONS):
        narrow = factors.astype(tensor.dtype)
        half = tensor @ narrow
        cores = _cores(half, narrow).astype(float)
        # Left singular vectors of the cores from inner products: people are far fewer than the numbers of a core.
        values, people = scipy.linalg.eigh(cores @ cores.T, driver="evd")
        kept = float(np.sqrt(np.maximum(values[-n_people:], 0).sum()) / total)
        if kept - last <= TUCKER_TOLERANCE:
            break
        last = kept
        mixed = people[:, -n_people:].T.astype(half.dtype) @ half.reshape(len(half), -1)
        factors = _leading(_sum_of_squares(mixed.reshape(-1, *half.shape[1:])), n_factors)
    cores = np.concatenate([_cores(matrix[None] @ factors, factors) for matrix in tensor])
    squares, people = scipy.linalg.eigh(cores @ cores.T, driver="evd")
    leading = np.arange(len(tensor))[: -n_people - 1 : -1]
    leading = leading[squares[leading] > RANK * squares[-1]]
    return factors, cores.T @ (people[:, leading] / np.sqrt(squares[leading]))


def _cores(half: NDArray[np.floating], factors: NDArray[np.floating]) -> NDArray[np.floating]:
    """U' X U of every matrix X from half = X U, as rows: shape (n, r * r)."""
    return (factors.T @ half).reshape(len(half), -1)


def _sum_of_squares(matrices: NDArray[np.floating]) -> FloatArray:
    """Sum of X X' over the matrices X, shape (P, P)."""
    total = np.zeros((matrices.shape[1],) * 2)
    for matrix in matrices:
        total += matrix @ matrix.T
    return total


def _leading(matrix: FloatArray, number: int) -> FloatArray:
    _, vectors = scipy.linalg.eigh(matrix, driver="evd")
    return vectors[:, ::-1][:, :number]


# --- Reductions of the edges of a group to a few components -----------------------------------------------------------
# Unlike the transforms their result is no connectome but a row of scores per person. scikit-learn does the work, on
# inner products between people where there are far more edges.


LEAST_NOISE = 1e-12
"""Least noise variance of a feature."""
LEAST_GAIN = 1e-2
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
            scale = np.sqrt(self.noise_) + LEAST_NOISE
            scaled = centred * (1 / (scale * np.sqrt(n))).astype(np.float32)
            values, vectors = scipy.linalg.eigh((scaled @ scaled.T).astype(float))
            leading = slice(None, -self.n_components - 1, -1)
            squares, people = np.maximum(values[leading], LEAST_NOISE), vectors[:, leading]
            directions = (people / np.sqrt(squares)).astype(np.float32).T @ scaled
            self.loadings_ = np.sqrt(np.maximum(squares - 1, 0))[:, None] * directions * scale
            left = float(values[: n - self.n_components].sum())
            likelihood = -n / 2 * (np.log(squares).sum() + left + np.log(self.noise_).sum())
            if likelihood - last < LEAST_GAIN:
                self.converged_ = True
                break
            last = likelihood
            self.noise_ = np.maximum(variance - (self.loadings_**2).sum(axis=0), LEAST_NOISE)
        return self

    def transform(self, features: FloatArray) -> FloatArray:
        """Expected factors given the features (n, E): shape (n, k)."""
        weights = self.loadings_ / self.noise_
        precision = np.eye(len(weights)) + weights @ self.loadings_.T
        return np.asarray(scipy.linalg.solve(precision, weights @ (features - self.mean_).T, assume_a="pos").T)


SUBSPACES = ("pca", "factor_analysis", "ica", "random_projection")
N_COMPONENTS = 300
"""Components of the paper's PCA; it names no others, so the rest take as many."""
FACTOR_ITERATIONS = 10
"""Steps of factor analysis: with tens of thousands of edges each takes seconds, and later ones change little."""


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
            values, vectors = scipy.linalg.eigh(gram)
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
