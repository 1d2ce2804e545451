"""What one recording becomes in the corpus; many of them at a time, in processes, in their order."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.connectome.connectivity import ParcelError, standardise
from fcpower_bids.errors import RecordingError
from fcpower_bids.pretraining.corpus.teacher import teacher_vector_and_rank
from fcpower_bids.workers import begin_worker

Source = tuple[Mapping[str, Any], Callable[[], ArrayLike]]
AHEAD = 4
"""Recordings per process that may wait for the one before them: bounds memory."""


@dataclass(frozen=True)
class Prepared:
    """One recording, ready to be stored, or why it cannot be.

    Attributes
    ----------
    metadata : dict
    sha256 : str
        Digest of series, name and repetition time.
    rank : int
        Of FC.
    series : ndarray of float16, shape (T, P)
        z-scored; empty where it is known already or left out.
    vector : ndarray of float32, shape (P (P - 1) / 2,)
    problem : str
        Why it is left out, or nothing.
    """

    metadata: Mapping[str, Any]
    sha256: str
    rank: int = 0
    series: NDArray[np.float16] | None = None
    vector: NDArray[np.float32] | None = None
    problem: str = ""


def prepare(source: Source, alpha: float, known: str | None = None) -> Prepared:
    """Read, standardise and decompose one recording, unless its content is known.

    Raises
    ------
    RecordingError
        The series do not have the parcels that their names say.
    """
    metadata, load = source
    series = np.asarray(load())
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
    """Prepare recordings in processes of their own; they come back in their order.

    Parameters
    ----------
    sources : iterable of (dict, callable)
    alpha : float
    known : dict
        Digest of each recording that is stored, by its id.
    n_processes : int
        1: in this process.
    """
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
