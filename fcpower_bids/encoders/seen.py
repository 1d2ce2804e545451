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


def series_signature(series: ArrayLike) -> str:
    """Checksum of the number of volumes and of the signs of `VOLUMES` of them.

    Signs survive half precision, text and another scale. Another cleaning, parcellation or length gives another
    signature.

    Parameters
    ----------
    series : array_like, shape (T, P)
        Standardised over the whole recording, the parcels in the order of the model (``roi_labels``).
    """
    z = np.asarray(series)
    chosen = z[np.linspace(0, len(z) - 1, VOLUMES).astype(int)]
    digest = hashlib.sha256(f"{len(z)} {z.shape[1]}\n".encode())
    digest.update(np.packbits(chosen > 0).tobytes())
    return digest.hexdigest()


def series_digest(salt: str, signature: str) -> str:
    """Digest of one recording: the first `DIGITS` of SHA-256 of salt and signature, one per line."""
    return hashlib.sha256(f"{salt}\n{signature}".encode()).hexdigest()[:DIGITS]


def series_digests(salt: str, signatures: Iterable[str]) -> tuple[str, ...]:
    """Digests of recordings, each once and in an order that says nothing of them."""
    return tuple(sorted({series_digest(salt, signature) for signature in signatures}))
