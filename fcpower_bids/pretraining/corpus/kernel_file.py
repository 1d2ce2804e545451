"""The stored teacher kernel: which recordings it is of, so that a corpus that grows computes only what is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from fcpower_bids.pretraining.corpus.shards import write_arrays
from fcpower_bids.pretraining.corpus.teacher import teacher_kernel


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
    """Compute and store the kernel of recordings; rows that the file has already are taken from it.

    Parameters
    ----------
    path : Path
    corpus_sha256 : str
    recordings : sequence of str
        Hexadecimal digest of each recording; those that the file has come first, in its order.
    block : callable
        As in `teacher_kernel`.
    """
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
