"""Published and own encoders, series (T, P) to a vector (d,); importing this loads no torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.settings import Method

RANDOM = "random-init"
FBERT = ("fbert-1m", "fbert-8m", "fbert", RANDOM)
"""F-BERT of 850,944 parameters at 450 parcels, of 8,069,632, of any size, and with seeded random weights of the sizes
of ``fbert-1m`` or of a checkpoint."""
NONE_STATED = "none stated by the authors"
PUBLISHED = {
    "brainlm-111m": "CC BY-NC-ND 4.0",
    "brainlm-650m": "CC BY-NC-ND 4.0",
    "brain-jepa": NONE_STATED,
    "brainmass": NONE_STATED,
    "brain-harmonix-f": "CC BY-NC-SA 4.0",
    "brain-semantoks": NONE_STATED,
}
"""Encoders of others, with the licence of their weights."""
ENCODERS = (*FBERT, *PUBLISHED)
FACTS = "facts.json"
"""File in a folder of F-BERT weights with what its config.json does not state."""
COORDINATES, STATISTICS = "A424_Coordinates.dat", "cohort_statistics.tsv"
GRADIENTS, EIGENMODES = "gradient_mapping_400.csv", "schaefer400_roi_eigenmodes.csv"
JEPA_GRADIENTS = "gradient_mapping_450.csv"
FURTHER = {
    "brainlm-111m": (COORDINATES, STATISTICS),
    "brainlm-650m": (COORDINATES, STATISTICS),
    "brain-jepa": (JEPA_GRADIENTS,),
    "brain-harmonix-f": (GRADIENTS, EIGENMODES),
} | dict.fromkeys(FBERT, (FACTS,))
"""Files that are read from the folder of the weights, by the names of their authors."""
CHOICES = {"revision", "seed", "parcel_names", "protocol"}
"""What can be chosen of an encoder; each takes what concerns it."""


def load_encoder(name: str, weights: str | Path | None, **choices: Any) -> Any:
    """Load one of `ENCODERS`, with `CHOICES`. Raises UsageError, CheckpointError, TypeError."""
    if unknown := sorted(choices.keys() - CHOICES):
        raise TypeError(f"load_encoder has no choice '{unknown[0]}'. Choose from: {', '.join(sorted(CHOICES))}.")
    if name not in ENCODERS:
        raise UsageError(f"There is no encoder called '{name}'. Choose from: {', '.join(ENCODERS)}.")
    if name in FBERT:  # models are imported where they are asked for: torch is large, and an extra
        from fcpower_bids.encoders.embedding import load_fbert

        return load_fbert(weights, name=name, **choices)
    from fcpower_bids.encoders.published import LOADERS

    return LOADERS[name](weights, **choices)


def open_encoder(settings: Method, names: tuple[str, ...]) -> Any:
    """Load the encoder of ``--encoder`` for these parcels. Raises FcPowerError."""
    return load_encoder(
        settings.encoder or "",
        settings.encoder_weights,
        revision=settings.encoder_revision,
        seed=settings.random_seed,
        parcel_names=names,
        protocol=settings.encoder_protocol,
    )


def further_files(name: str, weights: str | Path) -> dict[str, Path]:
    """Return the files of `FURTHER` that lie in the folder of the weights."""
    path = Path(weights).expanduser()
    beside = {file: (path if path.is_dir() else path.parent) / file for file in FURTHER.get(name, ())}
    return {file: place for file, place in beside.items() if place.is_file()}


def embed_recording(
    encoder: Any, series: Any, parcels: tuple[str, ...], repetition_time: float, read: str, person: tuple[str, str]
) -> tuple[Any, dict[str, str]]:
    """Embed one recording: the vector (d,), and whether the encoder has seen its person (dataset and label)."""
    from fcpower_bids.encoders.checkpoints import STATE, training_state  # only where there is an encoder

    vectors = encoder.embed([series], parcels, repetition_time, read)
    if not float(vectors[0].max()) > float(vectors[0].min()):
        raise RecordingError("Its embedding is one number throughout, which says nothing: leave it out.")
    caution = encoder.caution(len(series)) if hasattr(encoder, "caution") else ""
    return vectors[0], {STATE: training_state(encoder, *person), **({"Caution": caution} if caution else {})}


def name_of_weights(weights: str | Path) -> str:
    """Return the origin of weights without folders: a hub id, or the last part of a path."""
    path = Path(weights).expanduser()
    return path.resolve().name if path.exists() else str(weights)


def embedding_label(settings: Method) -> str:
    """Return the ``desc`` label of the embedding: ``fbert1m``, ``fbert1mwindows``, ``brainjepapaper``."""
    name = re.sub(r"[^A-Za-z0-9]", "", settings.encoder or "")
    if settings.encoder in PUBLISHED:  # they have windows of their own
        return name + ("" if settings.encoder_protocol == "own" else settings.encoder_protocol)
    return name + ("" if settings.encoder_read == "sequence" else settings.encoder_read)


HUB_IDS = {"fbert-1m": "Marraffini-Giovanni/fbert-1m", "fbert-8m": "Marraffini-Giovanni/fbert-8m"}
"""Where the paper's weights were released."""
CORPUS_ID = "Marraffini-Giovanni/fbert-corpus"
"""The public corpus: 106,397 windows of 27,835 recordings of 162 datasets, 26 GB, a licence per dataset."""
LICENCE = "CC BY-NC 4.0"
"""Of the released weights: attribution, no commercial use."""
INPUT = (
    "450 parcels (Schaefer-400 and the 50 subcortical ones of Tian S3), 0.01-0.08 Hz, z-scored per parcel, any length"
)
"""Input of the released models in training: ``(batch, 450, time)``; here ``(B, T, P)``, and parcels by name."""
NOTICE = f"The released F-BERT weights are under {LICENCE}: name their authors, no commercial use. Input: {INPUT}."
