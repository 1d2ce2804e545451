"""Who was in the training of a model, without their names: salted digests of dataset and participant."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

DIGITS = 16
"""Hexadecimal digits of a digest: by chance two of a million people share one with a probability of 3e-8."""


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
