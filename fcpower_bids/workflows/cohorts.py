"""What the analyses are given: one cohort with its encoders, or one cohort per atlas."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fcpower_bids.analyses import OF_COHORTS, analyses_to_run
from fcpower_bids.derivatives.cohort import load_cohort
from fcpower_bids.derivatives.embedding_facts import read_embedding_facts
from fcpower_bids.derivatives.features import list_connectomes
from fcpower_bids.derivatives.sources import join
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings


def open_cohorts(settings: Settings) -> tuple[Cohort, dict[str, Cohort]]:
    """Load the cohort of the analyses, and one per atlas where an analysis compares atlases.

    These are the atlases of ``--atlas``, else all that the participant level wrote. The first one is that of the
    other analyses; without ``--atlas`` it is the default atlas if that is there.
    """
    if not OF_COHORTS & set(analyses_to_run(settings)):
        return complete_cohort(load_cohort(settings), settings), {}
    each = {name: dataclasses.replace(settings, atlas=(name,)) for name in _atlases(settings)}
    if not each:
        return load_cohort(settings), {}
    cohorts = {name: load_cohort(own) for name, own in each.items()}
    first = next(iter(each))
    return complete_cohort(cohorts[first], each[first]), cohorts


def _atlases(settings: Settings) -> list[str]:
    if settings.atlas != Settings.atlas:
        return list(dict.fromkeys(settings.atlas))
    from fcpower_bids.imaging.atlas_declarations import declared_atlases

    default = join(declared_atlases()[Settings.atlas[0]].entities)
    there = {one.atlas_name for one in list_connectomes(settings.output_dir)}
    return sorted(there, key=lambda name: (name != default, name))


def complete_cohort(cohort: Cohort, settings: Settings) -> Cohort:
    """Add what the sidecars say of the embeddings, and the encoder of ``--encoder`` for scans that are shortened."""
    if not cohort.embeddings:
        return cohort
    from fcpower_bids.interfaces.embedding import embedding_label

    label, encoders = embedding_label(settings), {}
    if label in cohort.embeddings and "learning_curves" in analyses_to_run(settings):
        encoders[label] = load_series_encoder(cohort.parcels, settings)
    facts = read_embedding_facts(cohort.embeddings, settings)
    return dataclasses.replace(cohort, encoders=encoders, embedding_facts=facts)


def load_series_encoder(parcels: tuple[str, ...], settings: Settings) -> Callable[[np.ndarray, float], np.ndarray]:
    """Load the encoder of ``--encoder`` as a function of a series (T, P) and its repetition time.

    Raises
    ------
    fcpower_bids.errors.FcPowerError
        The encoder cannot be loaded, or not for these parcels.
    """
    from fcpower_bids.encoders import load_encoder

    encoder = load_encoder(
        settings.encoder or "",
        settings.encoder_weights,
        revision=settings.encoder_revision,
        seed=settings.random_seed,
        allow_missing_parcels=settings.allow_missing_parcels,
        parcel_names=parcels,
        protocol=settings.encoder_protocol,
        aux=settings.encoder_aux,
        accept_licence=settings.accept_encoder_licence,
    )

    def embed(series: np.ndarray, repetition_time: float) -> np.ndarray:
        windows = settings.encoder_read == "windows"
        return encoder.embed([series], parcels, repetition_time, "windows" if windows else "sequence")[0]

    return embed
