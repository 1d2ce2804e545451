"""Published and own encoders, one whole model per file.

An encoder maps the series of a recording (T, P) to one vector (d,). Importing this folder loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fcpower_bids.registry import Registry

if TYPE_CHECKING:
    from fcpower_bids.encoders.embedding import Encoder

ENCODERS = Registry(
    "encoder",
    {
        "fbert-1m": "fcpower_bids.encoders.loading:load_fbert_1m",
        "fbert-8m": "fcpower_bids.encoders.loading:load_fbert_8m",
        "fbert": "fcpower_bids.encoders.loading:load_fbert",
        "random-init": "fcpower_bids.encoders.loading:load_random_init",
    },
)
"""Name to a loader ``(weights, *, revision, seed, allow_missing_parcels, parcel_names) -> Encoder``."""


def load_encoder(
    name: str,
    weights: str | Path | None,
    *,
    revision: str | None = None,
    seed: int = 0,
    allow_missing_parcels: bool = False,
    parcel_names: Sequence[str] | None = None,
) -> Encoder:
    """Load an encoder of the registry, ready to embed recordings.

    Parameters
    ----------
    name : str
        An entry of `ENCODERS`.
    weights : str, Path or None
        A checkpoint folder, or an id of the Hugging Face hub (``owner/name``).
    revision : str, optional
        Commit, tag or branch of the hub repository.
    seed : int
        Seed of the weights of ``random-init``.
    allow_missing_parcels : bool
        Fill parcels that the recording lacks with their mean (0 after z-scoring) instead of refusing.
    parcel_names : sequence of str, optional
        The parcels that will be embedded: a mismatch is then found at loading. ``random-init`` needs them.

    Returns
    -------
    Encoder
        Has ``embed(series, parcel_names, repetition_time, read)`` and ``provenance(read)``.

    Raises
    ------
    UsageError
        No such encoder.
    fcpower_bids.encoders.checkpoints.EncoderUnavailable
        No weights were given to an encoder that needs them: the embedding is to be skipped with this reason.
    fcpower_bids.encoders.checkpoints.CheckpointError
        The weights cannot be read, or do not belong to this encoder or to these parcels.
    """
    encoder: Encoder = ENCODERS[name](
        weights,
        revision=revision,
        seed=seed,
        allow_missing_parcels=allow_missing_parcels,
        parcel_names=parcel_names,
    )
    return encoder
