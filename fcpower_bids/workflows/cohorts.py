"""Input of the analyses: stored series get their embedding; one cohort with its encoders, or one per atlas."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fcpower_bids.analyses import OF_COHORTS, analyses_to_run
from fcpower_bids.cohort.feature_choice import OWN_ATLAS, asked_for, read_embedding_facts
from fcpower_bids.cohort.features import Connectome
from fcpower_bids.cohort.recordings import selected_of
from fcpower_bids.elsewhere.imports import are_named
from fcpower_bids.encoders import embed_recording, embedding_label, open_encoder
from fcpower_bids.errors import DatasetError, FcPowerError, Incomplete, RecordingError, UsageError
from fcpower_bids.imaging.atlas.files import declared_atlases
from fcpower_bids.inputs.roots import dataset_identity, output_folders
from fcpower_bids.inputs.sources import join
from fcpower_bids.notebook import open_cohort
from fcpower_bids.outputs.dataset import bids_uri
from fcpower_bids.outputs.names import TIMESERIES
from fcpower_bids.outputs.status import FAILED, Status, embedding_names, forget_embeddings, status_path, write_status
from fcpower_bids.outputs.tables import column_names, describe_files, read_json, read_series, series_file, write_matrix
from fcpower_bids.progress import say
from fcpower_bids.records import Cohort, Output
from fcpower_bids.settings import Method, Settings
from fcpower_bids.store import known_digest


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
        f"The cohort statistics of the embedding '{name}' were {about['statistics']}, "
        "which may be of people who are tested here (a leak)."
        for name, about in facts.items()
        if about.get("statistics")
    )
    encoders = {}
    own_atlas = facts.get(label, {}).get(OWN_ATLAS, True)  # else its series are not those of the cohort
    if label in cohort.embeddings and own_atlas and "learning_curves" in asked:
        encoders[label] = load_series_encoder(cohort.parcels, settings, cohort.centroids)
    return dataclasses.replace(cohort, encoders=encoders, embedding_facts=facts, notes=cohort.notes + leaks)


def load_series_encoder(
    parcels: tuple[str, ...], settings: Settings, centroids: np.ndarray | None = None
) -> Callable[[np.ndarray, float], np.ndarray]:
    """Load ``--encoder`` as a function of a series (T, P) and its repetition time. Raises FcPowerError."""
    places = {} if centroids is None else {n: (x, y, z) for n, (x, y, z) in zip(parcels, centroids, strict=True)}
    encoder = open_encoder(settings, parcels, places)

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


# Series that are stored already: of other programs, or cleaned before there was an encoder

OF_SERIES = "SeriesSha256"
"""Entry of the sidecar of an embedding: the file that it was made from."""
OF_DATASET = "DatasetName"
"""Another: the dataset whose people were looked for among those of the encoder's training."""
INHERITED = ("NuisanceStrategy", "SecondsUsed", "NumberOfVolumesUsed", "RepetitionTime", "Atlas")


def embed_stored(settings: Settings) -> None:
    """Embed the stored series that lack this embedding. Raises CheckpointError, DatasetError, Incomplete."""
    if settings.encoder is None:
        return
    label, output = embedding_label(settings), settings.output_dir
    of_sites = "" not in output_folders(settings, output)  # which are read and not written to
    if of_sites or not (settings.encoder_weights or settings.encoder == "random-init"):
        if not any(label in one.encoders for one in selected_of(settings).connectomes):
            raise UsageError(
                f"{output} holds no embedding by --encoder {settings.encoder}. Give --encoder-weights, or leave it out."
            )
        return
    there = asked_for(selected_of(settings).connectomes, settings)
    with_series = [one for one in there if series_file(one.beside(TIMESERIES)).is_file()]
    if there and not with_series and not any(label in one.encoders for one in there):
        raise DatasetError(
            f"{output} holds no series, so there is nothing to embed: matrices do not say how a scan went on in time. "
            "Give the series, or leave out --encoder."
        )
    # without an embedding of this label, or with one of their own that may be outdated
    lacking = [one for one in with_series if label not in one.encoders or dict(one.embeddings)[label] == one.atlas]
    names = {one: embedding_names(one.recording, [one.atlas_name], settings)[one.atlas_name] for one in lacking}
    forget_embeddings(output, {one.recording for one in lacking}, set(names.values()))
    done, failed = 0, list[str]()
    named = sorted(((tuple(column_names(one.path)), one) for one in lacking), key=lambda each: (each[0], each[1].path))
    for parcels, of_parcels in groupby(named, key=lambda each: each[0]):  # an encoder is loaded once for each
        encoder = open_encoder(settings, parcels, {})
        if getattr(encoder, "needs_statistics", False) and encoder.statistics is None:
            continue  # it is fitted to the training people of every fold where encoders are compared
        for _, one in of_parcels:
            try:
                done += _embed(one, encoder, label, settings)
                status_path(output, names[one]).unlink(missing_ok=True)  # of an earlier failure
            except (RecordingError, DatasetError) as error:
                one.beside(Output("embedding", (("desc", label),))).unlink(missing_ok=True)
                write_status(output, Status(names[one], FAILED, "embed", str(error)))
                failed.append(one.recording)
    if done:
        say(f"{label}: {done} stored series embedded", settings)
    if failed:
        raise Incomplete(
            f"{len(failed)} of {len(lacking)} stored series could not be embedded ({', '.join(failed[:3])}): the "
            "reasons are in logs/status.tsv."
        )


def _embed(one: Connectome, encoder: Any, label: str, settings: Settings) -> bool:
    """Embed one series and write vector and sidecar, unless they are there: made by this encoder from this series."""
    series = series_file(one.beside(TIMESERIES))
    target = one.beside(Output("embedding", (("desc", label),)))
    person = dataset_identity(settings.bids_dir, settings.dataset_name), one.participant
    stated = {OF_SERIES: known_digest(series), OF_DATASET: person[0]}  # which a node does not state
    about = {**encoder.provenance(settings.encoder_read), **stated}
    if target.is_file() and target.with_suffix(".json").is_file():
        known = {**stated, **read_json(target.with_suffix(".json"))}
        plain = json.loads(json.dumps(about))
        if {name: known.get(name) for name in plain} == plain and not (
            label in one.encoders and one.is_embedding_outdated(label)
        ):
            return False
    values, parcels = read_series(series)
    facts = read_json(series.with_suffix(".json"))
    time = float(facts.get("RepetitionTime", math.nan))
    vector, training = embed_recording(encoder, values, tuple(parcels), time, settings.encoder_read, person)
    write_matrix(target, vector[None], [f"dim{number:04d}" for number in range(len(vector))])
    own = {key: facts[key] for key in INHERITED if key in facts}
    sources = [bids_uri(series, {"": settings.output_dir})]
    describe_files({"Sources": sources, **own, **about, **training}, target)
    return True
