"""The teacher: FC^alpha of whole recordings, and the kernel of their correlations, in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import decompose_series, eigendecompose, spectral_map
from fcpower_bids.core.connectome.spectrum import power_weights, rank


def teacher_vector(series: ArrayLike, alpha: float) -> FloatArray:
    """Edges of FC^alpha of a whole recording, centred on their mean and of unit norm: z_i of the paper, Section 3.4.

    Parameters
    ----------
    series : array_like, shape (T, P)
        Every parcel covered. Eigenvalues outside the range of a rank-deficient FC get weight 0.
    alpha : float

    Returns
    -------
    ndarray of float64, shape (P (P - 1) / 2,)

    Raises
    ------
    fcpower_bids.core.connectome.connectivity.ParcelError
        A parcel is NaN, partly missing or constant (its position is named).
    """
    return teacher_vector_and_rank(series, alpha)[0]


def teacher_vector_and_rank(series: ArrayLike, alpha: float) -> tuple[FloatArray, int]:
    """`teacher_vector`, and the rank of the FC it was computed from."""
    series = np.asarray(series, dtype=np.float64)
    if len(series) < series.shape[1]:  # the singular value decomposition is exact, and cheaper
        eigenvalues, eigenvectors = decompose_series(series)
    else:
        eigenvalues, eigenvectors = eigendecompose(pearson_connectivity(series))
    return _vector(eigenvalues, eigenvectors, power_weights(eigenvalues, alpha)), rank(eigenvalues)


def stored_teacher(series: ArrayLike, alpha: float, known_rank: int) -> FloatArray:
    """`teacher_vector` from series that were stored in half precision.

    Rounding fills the null space of a rank-deficient FC, so its rank has to be known: what lies beyond gets weight 0.
    """
    eigenvalues, eigenvectors = eigendecompose(pearson_connectivity(np.asarray(series, dtype=np.float64)))
    weights = power_weights(eigenvalues, alpha)
    weights[known_rank:] = 0.0
    return _vector(eigenvalues, eigenvectors, weights)


def _vector(eigenvalues: FloatArray, eigenvectors: FloatArray, weights: FloatArray) -> FloatArray:
    matrix = spectral_map(eigenvalues, eigenvectors, weights)
    return unit_vectors(np.asarray(vectorise_edges(matrix, weighted=False), dtype=np.float64)[None])[0]


def teacher_kernel(
    block: Callable[[int, int], ArrayLike], n: int, size: int = 1024, known: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """K = Z Z' over n recordings, two blocks of vectors in memory at a time, products in double precision.

    Parameters
    ----------
    block : callable
        ``block(start, stop)`` returns the teacher vectors of these recordings, shape (stop - start, E).
    n : int
    size : int
        Recordings per block: memory is 16 * size * E bytes (1.7 GB for 1,024 recordings of 450 parcels), and every
        vector is read n / size times.
    known : ndarray of float32, shape (m, m), optional
        Kernel of the first m recordings, which is not computed again.

    Returns
    -------
    ndarray of float32, shape (n, n)
        Exactly symmetric with unit diagonal.
    """
    K = np.empty((n, n), np.float32)
    m = 0 if known is None else len(known)
    K[:m, :m] = 0 if known is None else known
    for i in range(0, n, size):
        columns = [j for j in range(i, n, size) if min(j + size, n) > m]
        if not columns:
            continue
        rows = unit_vectors(block(i, min(i + size, n)))
        for j in columns:
            K[i : i + size, j : j + size] = rows @ (rows if i == j else unit_vectors(block(j, min(j + size, n)))).T
            K[j : j + size, i : i + size] = K[i : i + size, j : j + size].T
    np.fill_diagonal(K, 1.0)
    return K


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Undo the rounding of storage: teacher vectors, one per row, centred and of unit norm in double precision."""
    z = np.array(vectors, dtype=np.float64)
    z -= z.mean(axis=1, keepdims=True)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return z
