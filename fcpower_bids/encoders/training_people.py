"""Who was in the training of a model: salted digests of series, found under any name, and of people."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.arrays import FloatArray

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
PAIRS, FEWEST = 64, 36
"""Most pairs of parcels whose correlations in a part of a recording make its signature; with fewer than the second,
parts of several people could share one."""
STEP, NEAR, MOST_NEAR = 0.05, 5e-4, 8
"""Correlations are rounded down to a multiple of the first. Those nearer than the second to a limit, at most so many of
them, may lie on either side of it in a series that was saved in half precision or as text."""


def person_digest(salt: str, dataset: str, subject: str) -> str:
    """Digest of one participant: the first `DIGITS` of SHA-256 of salt, dataset and label, one per line."""
    label = subject.removeprefix("sub-")
    return hashlib.sha256(f"{salt}\n{dataset}\n{label}".encode()).hexdigest()[:DIGITS]


def people_digests(salt: str, people: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Digests of people, each once and in an order that says nothing of them."""
    return tuple(sorted({person_digest(salt, dataset, subject) for dataset, subject in people}))


def stretch_correlations(series: ArrayLike, length: int) -> FloatArray:
    """Correlations of some pairs of parcels of series (..., T, P) over every `length` volumes in a row."""
    x = np.asarray(series)
    one, other = np.triu_indices(x.shape[-1], 1)
    chosen = np.linspace(0, len(one) - 1, min(PAIRS, len(one))).astype(int)
    a, b = (x[..., side[chosen]].astype(float) for side in (one, other))
    a, b = (each - each.mean(axis=-2, keepdims=True) for each in (a, b))

    def total(values: FloatArray) -> FloatArray:
        sums = np.cumsum(values, axis=-2)
        sums = np.concatenate([np.zeros_like(sums[..., :1, :]), sums], axis=-2)
        return sums[..., length:, :] - sums[..., :-length, :]

    spread = [np.maximum(total(each * each) - total(each) ** 2 / length, 0) for each in (a, b)]
    norm = np.sqrt(spread[0] * spread[1])
    return (total(a * b) - total(a) * total(b) / length) / np.where(norm > 0, norm, np.inf)


def part_signatures(parts: ArrayLike) -> list[str]:
    """Checksum of rounded correlations of each part (n, L, P), whatever its scale or order; None with few parcels."""
    parts = np.asarray(parts)
    found = stretch_correlations(parts, parts.shape[1])[:, 0]
    return [_signature(np.floor(r / STEP), parts.shape) for r in found if len(r) >= FEWEST]


def signatures_within(series: ArrayLike, length: int) -> set[str]:
    """Signatures that a part of `length` volumes of this series (T, P) may have, wherever it begins."""
    x = np.asarray(series)
    if len(x) < length or x.shape[1] * (x.shape[1] - 1) < 2 * FEWEST:
        return set()
    found = set()
    for r in stretch_correlations(x, length):
        bins, limits = np.floor(r / STEP), np.rint(r / STEP)
        near = np.flatnonzero(np.abs(r - STEP * limits) < NEAR)[:MOST_NEAR]
        for below in product((0, 1), repeat=len(near)):
            bins[near] = limits[near] - np.array(below, dtype=int)
            found.add(_signature(bins, (1, length, x.shape[1])))
    return found


def _signature(bins: FloatArray, shape: tuple[int, ...]) -> str:
    digest = hashlib.sha256(f"{shape[1]} {shape[2]}\n".encode())
    digest.update(bins.astype(np.int8).tobytes())
    return digest.hexdigest()


def series_digest(salt: str, known: str) -> str:
    """Digest of one part of a recording: the first `DIGITS` of SHA-256 of salt and signature, one per line."""
    return hashlib.sha256(f"{salt}\n{known}".encode()).hexdigest()[:DIGITS]


def series_digests(salt: str, signatures: Iterable[str]) -> tuple[str, ...]:
    """Digests of parts of recordings, each once and in an order that says nothing of them."""
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
    """Say whether a part of a series (T, P), or else its person, was in the training of a model."""
    if not card.trained_on:
        return UNKNOWN, ""
    places = {name: column for column, name in enumerate(parcel_names)}
    known = np.asarray(series)[:, [places[name] for name in card.roi_labels if name in places]]
    parts: set[str] = set()
    if known.shape[1] == len(card.roi_labels) and np.isfinite(known).all():  # others are never packed
        parts = {series_digest(card.corpus_sha256, part) for part in signatures_within(known, card.window)}
    person = person_digest(card.corpus_sha256, dataset, subject)
    for state, digests in ((TRAINED, card.series_trained_on), (HELD_OUT, card.series_held_out)):
        if not parts.isdisjoint(digests):
            return state, "series"
    for state, digests in ((TRAINED, card.trained_on), (HELD_OUT, card.held_out)):
        if person in digests:
            return state, "participant"
    return NO, ""
