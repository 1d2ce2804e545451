"""Who was in the training of a model, without their names: salted digests of people, and of what was measured of them.

A person is found by dataset and label; one who has another label now is found by the series.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.connectome.connectivity import ParcelError, standardise

if TYPE_CHECKING:
    from fcpower_bids.encoders.checkpoints import ModelCard

STATE, HOW = "seen_in_pretraining", "seen_by"
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
VOLUMES = 16
"""Of a recording, whose signs make its signature: spread evenly from the first to the last."""


def person_digest(salt: str, dataset: str, subject: str) -> str:
    """Digest of one participant: the first `DIGITS` of SHA-256 of salt, dataset and label, one per line."""
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

    Shapes and units: chosen (`VOLUMES`, P).
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


def describe_training(
    encoder: Any, dataset: str, subject: str, series: ArrayLike, parcel_names: Sequence[str]
) -> dict[str, str]:
    """Entry of the sidecar of an embedding about its person: see `find_in_training`; random weights saw no person."""
    card = getattr(encoder, "card", None)
    if card is None:  # the models of others
        return {STATE: UNKNOWN}
    if encoder.name == "random-init":
        return {STATE: NO}
    state, how = find_in_training(card, dataset, subject, series, parcel_names)
    return {STATE: state, **({HOW: how} if how else {})}


def find_in_training(
    card: ModelCard, dataset: str, subject: str, series: ArrayLike, parcel_names: Sequence[str]
) -> tuple[str, str]:
    """Say whether a recording, or its person, was in the training of a model. Shapes and units: series (T, P)."""
    if not card.trained_on:
        return UNKNOWN, ""
    person = person_digest(card.corpus_sha256, dataset, subject)
    recording = _recording_digest(card, np.asarray(series), parcel_names)
    for state, people, recordings in (
        (TRAINED, card.trained_on, card.series_trained_on),
        (HELD_OUT, card.held_out, card.series_held_out),
    ):
        if person in people:
            return state, "participant"
        if recording in recordings:
            return state, "series"
    return NO, ""


def _recording_digest(card: ModelCard, series: np.ndarray, parcel_names: Sequence[str]) -> str:
    """Digest of the parcels of the model; nothing where one is missing, as such recordings are never packed."""
    places = {name: column for column, name in enumerate(parcel_names)}
    columns = [places[name] for name in card.roi_labels if name in places]
    if len(columns) < len(card.roi_labels) or not np.isfinite(series[:, columns]).all():
        return ""
    try:
        signature = series_signature(standardise(series[:, columns]))
    except ParcelError:
        return ""
    return series_digest(card.corpus_sha256, signature)
