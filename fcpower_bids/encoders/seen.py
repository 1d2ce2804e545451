"""Who was in the training of a model, without their names: salted digests of people, and of what was measured of them.

A person is found by dataset and label; one who has another label now is found by the series.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

DIGITS = 16
"""Hexadecimal digits of a digest: by chance two of a million people share one with a probability of 3e-8."""
VOLUMES = 16
"""Of a recording, whose signs make its signature: spread evenly from the first to the last."""


def person_digest(salt: str, dataset: str, subject: str) -> str:
    """Digest of one participant: the first `DIGITS` of SHA-256 of salt, dataset and label, one per line.

    Parameters
    ----------
    salt : str
        Stored with the digests (the checksum of the corpus): the same person has another digest in another corpus.
    dataset, subject : str
        Name of the dataset, and label with or without ``sub-``.
    """
    label = subject.removeprefix("sub-")
    return hashlib.sha256(f"{salt}\n{dataset}\n{label}".encode()).hexdigest()[:DIGITS]


def people_digests(salt: str, people: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Digests of people, each once and in an order that says nothing of them."""
    return tuple(sorted({person_digest(salt, dataset, subject) for dataset, subject in people}))


def signature_volumes(length: int) -> list[int]:
    """Which volumes of a recording make its signature."""
    return [i * (length - 1) // (VOLUMES - 1) for i in range(VOLUMES)]


def signature(chosen: ArrayLike, length: int) -> str:
    """Checksum of the number of volumes and of the signs of those that `signature_volumes` names.

    Signs survive half precision, text and another scale. Another cleaning, parcellation or length gives another
    signature.

    Parameters
    ----------
    chosen : array_like, shape (`VOLUMES`, P)
        Of a recording that is z-scored over its whole length, the parcels in the order of the model (``roi_labels``).
    length : int
        Volumes of the recording.
    """
    values = np.asarray(chosen)
    digest = hashlib.sha256(f"{length} {values.shape[1]}\n".encode())
    digest.update(np.packbits(values > 0).tobytes())
    return digest.hexdigest()


def series_signature(series: ArrayLike) -> str:
    """`signature` of a whole z-scored series (T, P)."""
    z = np.asarray(series)
    return signature(z[signature_volumes(len(z))], len(z))


def series_digest(salt: str, known: str) -> str:
    """Digest of one recording: the first `DIGITS` of SHA-256 of salt and signature, one per line."""
    return hashlib.sha256(f"{salt}\n{known}".encode()).hexdigest()[:DIGITS]


def series_digests(salt: str, signatures: Iterable[str]) -> tuple[str, ...]:
    """Digests of recordings, each once and in an order that says nothing of them."""
    return tuple(sorted({series_digest(salt, known) for known in signatures}))
