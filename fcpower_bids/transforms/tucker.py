"""Tucker denoising: connectomes of a group through few parcel factors and few directions between people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.transforms.contract import FittedTransform

MAXIMUM_ITERATIONS = 30
RANK = 1e-12
"""Squared singular value over the largest below which a direction is rounding."""

TOLERANCE = 1e-8
"""Change of the share of the norm that is kept below which the iteration stops; tensorly's is 1e-4."""


@dataclass(kw_only=True, eq=False)
class Tucker(FittedTransform):
    """FC rebuilt from a Tucker decomposition of the tensor people x parcels x parcels.

    The best factors in the least-squares sense are found by higher-order orthogonal iteration from the higher-order SVD
    (De Lathauwer et al. 2000). Both parcel modes of a symmetric tensor share their factors U. The people's mode is kept
    as the directions that it allows between cores U' FC U, so that a recording that was not fitted is denoised alike.

    The paper screens "Tucker-denoised FC" and names no ranks: the defaults are ours. `factors_` (C, r): U of the
    covered parcels, after `fit`. `directions_` (r * r, q): orthonormal directions of cores, after `fit`.
    """

    fits: ClassVar[str] = "the set of Tucker factors"
    called: ClassVar[str] = "tucker"
    summary: ClassVar[str] = "Pearson FC rebuilt from few factors of the parcels and of the people (Tucker)."
    parcel_share: float = 0.25
    people_share: float = 0.5
    single: bool = False  # whether single precision will do

    def __post_init__(self) -> None:
        if not (0 < self.parcel_share <= 1 and 0 < self.people_share <= 1):
            raise ValueError("The shares of Tucker factors must be above 0 and at most 1.")

    def fit(self, X: Sequence[ArrayLike], y: object = None) -> Tucker:
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

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (C, C) to its denoised version (C, C)."""
        r = self.factors_.shape[1]
        core = (self.factors_.T @ recording @ self.factors_).ravel()
        kept = (self.directions_ @ (self.directions_.T @ core)).reshape(r, r)
        denoised = self.factors_ @ kept @ self.factors_.T
        return (denoised + denoised.T) / 2

    def describe(self, recording: FloatArray) -> dict[str, Any]:
        """The ranks."""
        return {"TuckerParcelFactors": self.factors_.shape[1], "TuckerDirections": self.directions_.shape[1]}


def decompose_tensor(tensor: NDArray[np.floating], n_factors: int, n_people: int) -> tuple[FloatArray, FloatArray]:
    """Tucker factors of symmetric matrices by higher-order orthogonal iteration in the precision of the tensor.

    Shapes and units: tensor (n, P, P); returns factors (P, n_factors), directions (n_factors**2, q).
    """
    # The modes of the higher-order SVD: leading eigenvectors of the sum of squared matrices.
    factors = _leading(_sum_of_squares(tensor), n_factors)
    last, total = -np.inf, np.linalg.norm(tensor)
    for _ in range(MAXIMUM_ITERATIONS):
        narrow = factors.astype(tensor.dtype)
        half = tensor @ narrow
        cores = _cores(half, narrow).astype(float)
        # Left singular vectors of the cores from inner products: people are far fewer than the numbers of a core.
        values, people = linalg.eigh(cores @ cores.T, driver="evd")
        kept = float(np.sqrt(np.maximum(values[-n_people:], 0).sum()) / total)
        if kept - last <= TOLERANCE:
            break
        last = kept
        mixed = people[:, -n_people:].T.astype(half.dtype) @ half.reshape(len(half), -1)
        factors = _leading(_sum_of_squares(mixed.reshape(-1, *half.shape[1:])), n_factors)
    cores = np.concatenate([_cores(matrix[None] @ factors, factors) for matrix in tensor])
    squares, people = linalg.eigh(cores @ cores.T, driver="evd")
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
    _, vectors = linalg.eigh(matrix, driver="evd")
    return vectors[:, ::-1][:, :number]
