"""Which encoder embeds a recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class Embedding(Choices):
    """The encoder, its weights, and how it is fed."""

    encoder: str | None = option(None, "encoder", "encoder that embeds each recording")
    encoder_weights: str | None = option(None, "encoder", "its weights: a folder, a file or a hub id")
    encoder_revision: str | None = option(None, "encoder", "revision of the hub id")
    encoder_read: str = option("sequence", "encoder", "how a recording is read", choices=("sequence", "windows"))
    encoder_protocol: str = option(
        "own", "encoder", "feed a published encoder as its authors do, or as in the paper", choices=("own", "paper")
    )
    encoder_aux: tuple[Path, ...] = option((), "encoder", "further files of a published encoder, or folders with them")
    accept_encoder_licence: bool = option(False, "encoder", "you accept the licence of a published encoder's weights")
    allow_missing_parcels: bool = option(False, "encoder", "fill parcels that the atlas lacks with their mean, 0")
