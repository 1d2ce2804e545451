"""The embedding step; what goes wrong with it costs the embedding, never the connectomes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nipype.interfaces.base import traits

from fcpower_bids.encoders import PUBLISHED, embedding_label, load_encoder
from fcpower_bids.errors import FcPowerError
from fcpower_bids.interfaces.bundles import load_series, save_bundle
from fcpower_bids.interfaces.recording import RecordingInputSpec, RecordingStep
from fcpower_bids.records import Atlas
from fcpower_bids.settings import Participant

Places = Mapping[str, tuple[float, float, float]]


class EmbedInputSpec(RecordingInputSpec):
    """The embedding step knows what its weights looked like, so that other weights are another result."""

    weights_state = traits.Str(desc="size and time of the weights")


class Embed(RecordingStep):
    """Embed the cleaned series under every atlas."""

    input_spec = EmbedInputSpec
    stage = "embed"

    def work(self, folder: Path) -> Path:  # noqa: D102
        from fcpower_bids.encoders.checkpoints import CheckpointError  # a step loads what it needs, no more

        cleaning, series = load_series(Path(self.inputs.bundle))
        settings: Participant = self.inputs.settings
        arrays: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        unsuited: dict[str, str] = {}
        for number, (one, atlas) in enumerate(zip(series, self.inputs.atlases, strict=True)):
            key = f"{number}/{embedding_label(settings)}"
            try:
                encoder = _encoder(settings, atlas)
                vectors = encoder.embed([one.clean], atlas.names, cleaning.repetition_time, settings.encoder_read)
                arrays[key], facts[key] = vectors[0], encoder.provenance(settings.encoder_read)
            except CheckpointError as error:
                unsuited[f"problem/{atlas.name}"] = str(error)
            except FcPowerError as error:
                state = "skipped" if error.exit_code == 0 else "failed"
                facts[f"problem/{atlas.name}"] = [state, str(error)]
        # Where it fits another atlas of the run, the encoder is sound and this atlas is just not the one it is for.
        facts |= {key: ["skipped" if arrays else "failed", reason] for key, reason in unsuited.items()}
        return save_bundle(folder / "embedding.npz", arrays, {} if cleaning.excluded else facts)


@lru_cache(maxsize=4)
def _encoder(settings: Participant, atlas: Atlas) -> Any:
    """Load the encoder once per process; loading torch costs more than embedding."""
    return open_encoder(settings, atlas.names, _places(atlas) if settings.encoder in PUBLISHED else {})


def _places(atlas: Atlas) -> dict[str, tuple[float, float, float]]:
    # a step loads what it needs, no more
    from fcpower_bids.imaging.atlas.centroids import parcel_centroids

    centroids = parcel_centroids(atlas.image, atlas.labels).tolist()
    return {name: (x, y, z) for name, (x, y, z) in zip(atlas.names, centroids, strict=True)}


def open_encoder(settings: Participant, names: tuple[str, ...], places: Places) -> Any:
    """Load the encoder of ``--encoder`` for these parcels.

    Parameters
    ----------
    settings : Participant
        Everything that concerns the encoder.
    names : tuple of str
        Parcels of the recordings.
    places : mapping of str to tuple of float
        Their MNI centroids in mm, where known: a published encoder finds parcels by them if it does not know the names.

    Raises
    ------
    fcpower_bids.errors.FcPowerError
        The encoder cannot be loaded, or not for these parcels.
    """
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
        places=places,
    )
