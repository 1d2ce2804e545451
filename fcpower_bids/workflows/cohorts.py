"""Input of the analyses: one cohort with its encoders, or one cohort per atlas."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fcpower_bids.analyses import OF_COHORTS, analyses_to_run
from fcpower_bids.cohort.feature_choice import OWN_ATLAS, read_embedding_facts
from fcpower_bids.cohort.recordings import selected_of
from fcpower_bids.elsewhere.imports import are_named
from fcpower_bids.encoders import PUBLISHED, embedding_label, open_encoder
from fcpower_bids.encoders.statistics import LEAK, SeriesEncoder
from fcpower_bids.errors import FcPowerError
from fcpower_bids.imaging.atlas.files import declared_atlases
from fcpower_bids.inputs.sources import join
from fcpower_bids.notebook import open_cohort
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Method, Settings


def open_cohorts(settings: Settings) -> tuple[Cohort, dict[str, Cohort]]:
    """Load the cohort of the analyses, and one per atlas for comparisons."""
    if not OF_COHORTS & set(analyses_to_run(settings)):
        return complete_cohort(open_cohort(settings), settings), {}
    atlases = list(dict.fromkeys(settings.atlas))
    if settings.atlas == Method.atlas:
        default = join(declared_atlases()[Method.atlas[0]].entities)
        there = {one.atlas_name for one in selected_of(settings).connectomes}
        atlases = sorted(there, key=lambda name: (name != default, name))
    if not atlases:
        return open_cohort(settings), {}
    each = {name: dataclasses.replace(settings, atlas=(name,)) for name in atlases}
    cohorts = {name: open_cohort(own) for name, own in each.items()}
    return complete_cohort(cohorts[atlases[0]], each[atlases[0]]), cohorts


def complete_cohort(cohort: Cohort, settings: Settings) -> Cohort:
    """Add what the sidecars say of the embeddings, and the encoder of ``--encoder`` where an analysis embeds again."""
    if not cohort.embeddings and settings.encoder is None:
        return cohort
    label, asked = embedding_label(settings), analyses_to_run(settings)
    facts = read_embedding_facts(cohort.embeddings, settings)
    leaks = tuple(
        f"The cohort statistics of the embedding '{name}' were {about['statistics']}, {LEAK}"
        for name, about in facts.items()
        if about.get("statistics")
    )
    encoders, refits = {}, {}
    own_atlas = facts.get(label, {}).get(OWN_ATLAS, True)  # else its series are not those of the cohort
    if label in cohort.embeddings and own_atlas and "learning_curves" in asked:
        encoders[label] = load_series_encoder(cohort.parcels, settings, cohort.centroids)
    if settings.encoder in PUBLISHED and settings.encoder_weights and own_atlas and "encoder_comparison" in asked:
        encoder = _open_encoder(cohort.parcels, settings, cohort.centroids)
        if encoder.is_relative:
            about = encoder.provenance()
            facts[label] = {**about, **facts.get(label, {}), "RefittedWith": about["sha256"]}
            refits[label] = lambda series: _of_series(encoder.fit(series, cohort.parcels), cohort.parcels, settings)
    return dataclasses.replace(
        cohort, encoders=encoders, refits=refits, embedding_facts=facts, notes=cohort.notes + leaks
    )


def load_series_encoder(
    parcels: tuple[str, ...], settings: Settings, centroids: np.ndarray | None = None
) -> SeriesEncoder:
    """Load ``--encoder`` as a function of a series (T, P) and its repetition time. Raises FcPowerError."""
    return _of_series(_open_encoder(parcels, settings, centroids), parcels, settings)


def _open_encoder(parcels: tuple[str, ...], settings: Settings, centroids: np.ndarray | None) -> Any:
    places = {} if centroids is None else {n: (x, y, z) for n, (x, y, z) in zip(parcels, centroids, strict=True)}
    return open_encoder(settings, parcels, places)


def _of_series(encoder: Any, parcels: tuple[str, ...], settings: Settings) -> SeriesEncoder:
    def embed(series: np.ndarray, repetition_time: float) -> np.ndarray:
        vectors: np.ndarray = encoder.embed([series], parcels, repetition_time, settings.encoder_read)
        return vectors[0]

    return embed


@contextmanager
def untouched(settings: Settings) -> Iterator[Settings]:
    """Settings with a copy of the output folder that may be written to, if sources come in. Raises FcPowerError."""
    if not are_named(settings):
        yield settings
        return
    with TemporaryDirectory(prefix="fcpower_bids-") as folder:
        copy = Path(folder, "out")
        if settings.output_dir.is_dir():  # links are replaced by what is written, not written through
            without = shutil.ignore_patterns("work", "group", "locks")
            shutil.copytree(settings.output_dir.absolute(), copy, ignore=without, copy_function=os.symlink)
        try:
            yield dataclasses.replace(settings, output_dir=copy, work_dir=Path(folder, "work"))
        except FcPowerError as error:
            raise type(error)(str(error).replace(str(copy), str(settings.output_dir))) from error
