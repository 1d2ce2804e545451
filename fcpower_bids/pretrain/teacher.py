"""The teacher: FC^alpha of whole recordings as unit vectors, their kernel, and its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import decompose_series, eigendecompose, spectral_map
from fcpower_bids.core.connectome.spectrum import power_weights, rank
from fcpower_bids.errors import FcPowerError
from fcpower_bids.store import atomic


def teacher_vector(series: ArrayLike, alpha: float) -> FloatArray:
    """Edges of FC^alpha of a whole series (T, P), centred, of unit norm: z_i of Section 3.4. Raises ParcelError."""
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
    """`teacher_vector` of series in half precision; eigenvalues beyond the rank, which is rounding, get weight 0."""
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
    """K = Z Z' (n, n), two blocks of vectors in memory at a time, products in double precision."""
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


def write_arrays(
    arrays: Mapping[str, NDArray[Any]], path: Path, metadata: dict[str, str] | None = None, *, flush: bool = True
) -> None:
    """Write arrays as one ``.safetensors`` file, in one step, and only if they read back as they were given."""
    with atomic(path, flush=flush) as part:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, part, metadata)
        with safe_open(part, "np") as file:
            wrong = [name for name, array in arrays.items() if not np.array_equal(file.get_tensor(name), array)]
        if wrong:
            raise FcPowerError(
                f"{path} does not read back as it was written ({', '.join(wrong)}): the disk or this program is at "
                "fault, not the recordings. Nothing was added; try another disk, and report it if it happens again."
            )


def kernel_corpus(path: Path) -> str | None:
    """Digest of the corpus that a stored kernel was computed for."""
    try:
        with safe_open(path, "np") as file:
            return (file.metadata() or {}).get("corpus_sha256")
    except (OSError, SafetensorError):
        return None


def write_kernel(
    path: Path, corpus_sha256: str, recordings: Sequence[str], block: Callable[[int, int], ArrayLike]
) -> None:
    """Compute and store the kernel of recordings; rows that the file has already are taken from it."""
    digests = np.array([list(bytes.fromhex(name)) for name in recordings], np.uint8).reshape(len(recordings), -1)
    kernel = teacher_kernel(block, len(recordings), known=_known(path, digests))
    write_arrays({"kernel": kernel, "digests": digests}, path, {"corpus_sha256": corpus_sha256})


def _known(path: Path, digests: NDArray[np.uint8]) -> NDArray[np.float32] | None:
    """Kernel of the first recordings, as far as the file has them in the same order."""
    try:
        with safe_open(path, "np") as file:
            before = {digest.tobytes(): i for i, digest in enumerate(file.get_tensor("digests"))}
            old: list[int] = []
            for digest in digests:
                position = before.get(digest.tobytes(), -1)
                if position <= (old[-1] if old else -1):
                    break
                old.append(position)
            kernel: NDArray[np.float32] = file.get_tensor("kernel")[np.ix_(old, old)]
            return kernel
    except (OSError, SafetensorError):
        return None
