"""The embedding node; its failure costs the embedding, never the connectomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, traits

from fcpower_bids.encoders import embed_recording, embedding_label, open_encoder
from fcpower_bids.errors import FcPowerError
from fcpower_bids.imaging.atlas import open_atlas
from fcpower_bids.interfaces.nodes import Step, load_bundle, save_bundle, settings_of
from fcpower_bids.records import Atlas
from fcpower_bids.settings import Method

CHOICES = (*("encoder", "encoder_weights", "encoder_revision", "encoder_read", "encoder_protocol", "random_seed"),)


class EmbedInputSpec(BaseInterfaceInputSpec):
    """Cleaned series, their atlases, and the encoder."""

    series = traits.List(File(exists=True), mandatory=True, desc="of Bandpass, one per atlas")
    atlases = traits.List(File(exists=True), mandatory=True, desc="as for Parcellate")
    encoder = traits.Str(mandatory=True, desc="an entry of fcpower_bids.encoders.ENCODERS")
    encoder_weights = traits.Str(desc="its weights: a folder, a file or a hub id")
    encoder_revision = traits.Str(desc="revision of the hub id")
    encoder_read = traits.Str("sequence", usedefault=True, desc="how a recording is read: sequence or windows")
    encoder_protocol = traits.Str("own", usedefault=True, desc="feed a published encoder its own way or the paper's")
    random_seed = traits.Int(0, usedefault=True, desc="seed of the weights of random-init")
    dataset = traits.Str(desc="name of the dataset, by which people of the pretraining are known")
    entities = traits.List(traits.Tuple(traits.Str(), traits.Str()), desc="entities of the recording")


class EmbedOutputSpec(TraitedSpec):
    """One file per atlas."""

    embeddings = traits.List(File(exists=True), desc="embedding (d,) under each atlas, or why there is none")


class Embed(Step):
    """Embed the cleaned series under every atlas."""

    input_spec = EmbedInputSpec
    output_spec = EmbedOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        settings = settings_of({name: value for name in CHOICES if (value := self.given(name)) is not None})
        atlases = {atlas.name: atlas for atlas in (open_atlas(Path(path)) for path in self.inputs.atlases)}
        person = (self.given("dataset") or "", dict(self.given("entities") or ()).get("sub", ""))
        bundles = [_embed(path, settings, atlases, person) for path in self.inputs.series]
        self._results["embeddings"] = []
        for arrays, facts in bundles:
            if "problem" in facts:
                # where it fits another atlas, the encoder is sound and this atlas is just not the one it is for
                otherwise = "skipped" if any(arrays for arrays, _ in bundles) else "failed"
                facts["problem"][0] = facts["problem"][0] or otherwise
            self._results["embeddings"].append(save_bundle(folder / f"{facts['atlas']}.npz", arrays, facts))


def refusals(settings: Method, atlases: Sequence[Atlas]) -> dict[str, tuple[str, str]]:
    """Say under which atlases there will be no embedding, before there is a series."""
    problems = {}
    for atlas in atlases:
        try:
            _encoder(settings, atlas)
        except FcPowerError as error:
            problems[atlas.name] = _problem(error)
    otherwise = "skipped" if len(problems) < len(atlases) else "failed"
    return {name: (state or otherwise, sentence) for name, (state, sentence) in problems.items()}


def _problem(error: FcPowerError) -> tuple[str, str]:
    """State and reason; without a state where the encoder is not for the atlas."""
    from fcpower_bids.encoders.checkpoints import CheckpointError  # loads torch

    if isinstance(error, CheckpointError):
        return "", str(error)
    return "skipped" if error.exit_code == 0 else "failed", str(error)


def _embed(
    path: str, settings: Method, atlases: Mapping[str, Atlas], person: tuple[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return embedding and facts; where the encoder is not for the atlas, a problem without a state."""
    arrays, about = load_bundle(path)
    facts = {"atlas": about["atlas"], "label": embedding_label(settings)}
    try:
        encoder = _encoder(settings, atlases[about["atlas"]])
        parcels, read = tuple(about["parcels"]), settings.encoder_read
        vector, training = embed_recording(encoder, arrays["series"], parcels, about["repetition_time"], read, person)
        return {"embedding": vector}, {**facts, "about": {**encoder.provenance(read), **training}}
    except FcPowerError as error:
        return {}, {**facts, "problem": list(_problem(error))}


@lru_cache(maxsize=4)
def _encoder(settings: Method, atlas: Atlas) -> Any:
    """Load the encoder once per process; loading torch costs more than embedding."""
    return open_encoder(settings, atlas.names)
