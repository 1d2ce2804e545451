"""The embedding step; what goes wrong with it costs the embedding, never the connectomes."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from nipype.interfaces.base import traits

from fcpower_bids.errors import FcPowerError
from fcpower_bids.interfaces.bundles import load_series, save_bundle
from fcpower_bids.interfaces.recording import RecordingInputSpec, RecordingStep
from fcpower_bids.settings import Settings


class EmbedInputSpec(RecordingInputSpec):
    """The embedding step knows what its weights looked like, so that other weights are another result."""

    weights_state = traits.Str(desc="size and time of the weights")


class Embed(RecordingStep):
    """Embed the cleaned series under every atlas."""

    input_spec = EmbedInputSpec
    stage = "embed"

    def work(self, folder: Path) -> Path:  # noqa: D102
        cleaning, series = load_series(Path(self.inputs.bundle))
        settings: Settings = self.inputs.settings
        arrays: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        for number, (one, atlas) in enumerate(zip(series, self.inputs.atlases, strict=True)):
            key = f"{number}/{embedding_label(settings)}"
            try:
                encoder = _encoder(settings, atlas.names)
                vectors = encoder.embed([one.clean], atlas.names, cleaning.repetition_time, settings.encoder_read)
                arrays[key], facts[key] = vectors[0], encoder.provenance(settings.encoder_read)
            except FcPowerError as error:
                state = "skipped" if error.exit_code == 0 else "failed"
                facts[f"problem/{atlas.name}"] = [state, str(error)]
        return save_bundle(folder / "embedding.npz", arrays, {} if cleaning.excluded else facts)


def embedding_label(settings: Settings) -> str:
    """Return the ``desc`` label of the embedding: ``fbert1m``."""
    return re.sub(r"[^A-Za-z0-9]", "", settings.encoder or "")


@lru_cache(maxsize=4)
def _encoder(settings: Settings, names: tuple[str, ...]) -> Any:
    """Load the encoder once per process; loading torch costs more than embedding."""
    from fcpower_bids.encoders import load_encoder

    return load_encoder(
        settings.encoder or "",
        settings.encoder_weights,
        revision=settings.encoder_revision,
        seed=settings.random_seed,
        allow_missing_parcels=settings.allow_missing_parcels,
        parcel_names=names,
        protocol=settings.encoder_protocol,
        aux=settings.encoder_aux,
        accept_licence=settings.accept_encoder_licence,
    )
