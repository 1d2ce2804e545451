"""Who was in the training of a model: salted digests of people."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcpower_bids.encoders.checkpoints import ModelCard

STATE = "seen_in_pretraining"
"""Where the sidecar of an embedding says it."""
TRAINED, HELD_OUT, NO, UNKNOWN = "trained", "held out", "no", "unknown"
SEEN = {
    TRAINED: "the encoder was trained on this person",
    HELD_OUT: "not trained on, but among those who chose or confirmed its checkpoint",
    NO: "not in its corpus",
    UNKNOWN: "the encoder does not say which people it was trained on",
}

DIGITS = 16
"""Hexadecimal digits of a digest: by chance two of a million people share one with a probability of 3e-8."""


def person_digest(salt: str, dataset: str, subject: str) -> str:
    """Digest of one participant: the first `DIGITS` of SHA-256 of salt, dataset and label, one per line."""
    label = subject.removeprefix("sub-")
    return hashlib.sha256(f"{salt}\n{dataset}\n{label}".encode()).hexdigest()[:DIGITS]


def people_digests(salt: str, people: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Digests of people, each once and in an order that says nothing of them."""
    return tuple(sorted({person_digest(salt, dataset, subject) for dataset, subject in people}))


def training_state(encoder: Any, dataset: str, subject: str) -> str:
    """Say whether an encoder has seen a person; the models of others do not tell, and random weights saw nobody."""
    card = getattr(encoder, "card", None)
    if card is None:
        return UNKNOWN
    return NO if encoder.name == "random-init" else find_in_training(card, dataset, subject)


def find_in_training(card: ModelCard, dataset: str, subject: str) -> str:
    """Say whether a person was in the training of a model."""
    if not card.trained_on:
        return UNKNOWN
    person = person_digest(card.corpus_sha256, dataset, subject)
    return TRAINED if person in card.trained_on else HELD_OUT if person in card.held_out else NO
