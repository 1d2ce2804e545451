"""Embed series that are stored already: of other programs, or cleaned before there was an encoder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from fcpower_bids.cohort.feature_choice import asked_for
from fcpower_bids.cohort.inclusion import Connectome
from fcpower_bids.cohort.recordings import selected_of
from fcpower_bids.encoders import embed_recording, embedding_label, open_encoder
from fcpower_bids.errors import DatasetError, Incomplete, RecordingError, UsageError
from fcpower_bids.inputs.roots import dataset_names, output_folders
from fcpower_bids.outputs.dataset import TIMESERIES, bids_uri
from fcpower_bids.outputs.status import (
    FAILED,
    Status,
    embedding_name,
    forget_embeddings,
    status_path,
    write_status,
)
from fcpower_bids.outputs.tables import column_names, describe_files, read_json, read_series, series_file, write_matrix
from fcpower_bids.parallel import say
from fcpower_bids.records import Output
from fcpower_bids.settings import Settings
from fcpower_bids.store import known_digest

OF_SERIES = "SeriesSha256"
"""Entry of the sidecar of an embedding: the file that it was made from."""
OF_DATASET = "DatasetName"
"""Another: the dataset whose people were looked for among those of the encoder's training."""
INHERITED = ("NuisanceStrategy", "SecondsUsed", "NumberOfVolumesUsed", "RepetitionTime", "Atlas")


def embed_stored(settings: Settings) -> None:
    """Embed the stored series that lack this embedding. Raises CheckpointError, DatasetError, Incomplete."""
    if settings.method.encoder is None:
        return
    label, output = embedding_label(settings.method), settings.output_dir
    folders = output_folders(settings, output)
    of_sites = "" not in folders  # which are read and not written to
    if of_sites or not (settings.method.encoder_weights or settings.method.encoder == "random-init"):
        if not any(label in connectome.encoders for connectome in selected_of(settings).connectomes):
            remedy = "Run the group level with --encoder in each of them" if of_sites else "Give --encoder-weights"
            raise UsageError(
                f"There is no embedding by --encoder {settings.method.encoder} in "
                f"{' and '.join(map(str, folders.values()))}. {remedy}, or leave it out."
            )
        return
    there, _ = asked_for(selected_of(settings).connectomes, settings)
    with_series = [connectome for connectome in there if series_file(connectome.beside(TIMESERIES)).is_file()]
    if there and not with_series and not any(label in connectome.encoders for connectome in there):
        raise DatasetError(
            f"{output} holds no series, so there is nothing to embed: matrices do not say how a scan went on in time. "
            "Give the series, or leave out --encoder."
        )
    # without an embedding of this label, or with one of their own that may be outdated
    lacking = [
        connectome
        for connectome in with_series
        if label not in connectome.encoders or dict(connectome.embeddings)[label] == connectome.atlas
    ]
    names = {run: embedding_name(run.recording, run.atlas_name, settings.method) for run in lacking}
    forget_embeddings(output, {connectome.recording for connectome in lacking}, set(names.values()))
    done, failed = _embed_all(lacking, names, label, settings)
    if done:
        say(f"{label}: {done} stored series embedded", settings)
    if failed:
        raise Incomplete(
            f"{len(failed)} of {len(lacking)} stored series could not be embedded ({', '.join(failed[:3])}): the "
            "reasons are in logs/status.tsv."
        )


def _embed_all(
    lacking: Sequence[Connectome], names: Mapping[Connectome, str], label: str, settings: Settings
) -> tuple[int, list[str]]:
    """Embed the series of these scans; return how many were, and the recordings of which there is none."""
    output = settings.output_dir
    done, failed, others = 0, list[str](), dict[Connectome, str]()
    named = sorted(
        ((tuple(column_names(connectome.path)), connectome) for connectome in lacking),
        key=lambda pair: (pair[0], pair[1].path),
    )
    for parcels, of_parcels in groupby(named, key=lambda pair: pair[0]):  # an encoder is loaded once for each
        scans = [connectome for _, connectome in of_parcels]
        try:
            encoder = open_encoder(settings.method, parcels)
        except UsageError as error:  # it is for other parcels than those of these scans
            if len(others) + len(scans) == len(lacking):
                raise
            others |= dict.fromkeys(scans, str(error))
            continue
        for connectome in scans:
            try:
                done += _embed(connectome, encoder, label, settings)
                status_path(output, names[connectome]).unlink(missing_ok=True)  # of an earlier failure
            except (RecordingError, DatasetError) as error:
                connectome.beside(Output("embedding", (("desc", label),))).unlink(missing_ok=True)
                write_status(output, Status(names[connectome], FAILED, "embed", str(error)))
                failed.append(connectome.recording)
    for connectome, reason in others.items():
        write_status(output, Status(names[connectome], FAILED, "embed", reason))
        failed.append(connectome.recording)
    return done, failed


def _embed(connectome: Connectome, encoder: Any, label: str, settings: Settings) -> bool:
    """Embed one series and write vector and sidecar, unless they are there: made by this encoder from this series."""
    series = series_file(connectome.beside(TIMESERIES))
    target = connectome.beside(Output("embedding", (("desc", label),)))
    person = dataset_names(settings.bids_dir), connectome.participant
    stated = {OF_SERIES: known_digest(series), OF_DATASET: person[0]}  # which a node does not state
    about = {**encoder.provenance(settings.method.encoder_read), **stated}
    if target.is_file() and target.with_suffix(".json").is_file():
        known = {**stated, **read_json(target.with_suffix(".json"))}
        plain = json.loads(json.dumps(about))
        if {name: known.get(name) for name in plain} == plain and not (
            label in connectome.encoders and connectome.is_embedding_outdated(label)
        ):
            return False
    values, parcels = read_series(series)
    facts = read_json(series.with_suffix(".json"))
    time = float(facts.get("RepetitionTime", math.nan))
    vector, training = embed_recording(encoder, values, tuple(parcels), time, settings.method.encoder_read, person)
    write_matrix(target, vector[None], [f"dim{number:04d}" for number in range(len(vector))])
    inherited = {key: facts[key] for key in INHERITED if key in facts}
    sources = [bids_uri(series, {"": settings.output_dir})]
    describe_files({"Sources": sources, **inherited, **about, **training}, target)
    return True
