"""The teacher: kernels of FC^alpha between windows, their file, and the windows that are prepared for it."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import ParcelError, pearson_connectivity, standardise
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import decompose_series, eigendecompose, spectral_map
from fcpower_bids.core.connectome.spectrum import power_weights, rank
from fcpower_bids.errors import RecordingError, Unfit
from fcpower_bids.slices.pretraining.corpus.opened import write_arrays
from fcpower_bids.workers import begin_worker


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


Source = tuple[Mapping[str, Any], Callable[[], ArrayLike]]
AHEAD = 4
"""Recordings per process that may wait for the one before them: bounds memory."""


@dataclass(frozen=True)
class Prepared:
    """One recording, ready to be stored, or why it cannot be."""

    metadata: Mapping[str, Any]
    sha256: str  # digest of series, name and repetition time
    rank: int = 0  # of FC
    series: NDArray[np.float16] | None = None  # (T, P): z-scored; empty where it is known already or left out
    vector: NDArray[np.float32] | None = None  # (P (P - 1) / 2,)
    problem: str = ""  # why it is left out, or nothing


def prepare(source: Source, alpha: float, known: str | None = None) -> Prepared:
    """Read, standardise and decompose one recording, unless its content is known. Raises RecordingError."""
    metadata, load = source
    try:
        series = np.asarray(load())
    except Unfit as error:  # by its status it is not to be used
        return Prepared(metadata, "", problem=str(error))
    names = metadata["parcel_names"]
    if series.ndim != 2 or series.shape[1] != len(names):
        raise RecordingError(f"{metadata['id']} has series of shape {series.shape} for {len(names)} parcels.")
    digest = hashlib.sha256(np.ascontiguousarray(series, np.float64).tobytes())
    digest.update(json.dumps([metadata["id"], float(metadata["repetition_time"])]).encode())
    sha256 = digest.hexdigest()
    if sha256 == known:
        return Prepared(metadata, sha256)
    try:
        z = standardise(series)
        vector, rank = teacher_vector_and_rank(series, alpha)
    except ParcelError as error:
        named = ", ".join(str(names[i]) for i in error.parcels[:10])
        return Prepared(metadata, sha256, problem=f"missing or constant parcels: {named}")
    return Prepared(metadata, sha256, rank, z.astype(np.float16), vector.astype(np.float32))


def prepare_all(
    sources: Iterable[Source], alpha: float, known: Mapping[str, str], n_processes: int
) -> Iterator[Prepared]:
    """Prepare recordings in processes of their own; they come back in their order."""
    if n_processes == 1:
        for source in sources:
            yield prepare(source, alpha, known.get(source[0]["id"]))
        return
    with ProcessPoolExecutor(n_processes, get_context("forkserver"), initializer=begin_worker) as pool:
        waiting: deque[Future[Prepared]] = deque()
        for source in sources:
            waiting.append(pool.submit(prepare, source, alpha, known.get(source[0]["id"])))
            if len(waiting) > AHEAD * n_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
