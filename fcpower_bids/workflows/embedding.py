"""Embeddings of series that are stored already: of other programs, or cleaned before there was an encoder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from fcpower_bids.cohort.feature_choice import asked_for
from fcpower_bids.cohort.features import Connectome
from fcpower_bids.cohort.recordings import selected_of
from fcpower_bids.encoders import embed_recording, embedding_label, open_encoder
from fcpower_bids.errors import DatasetError, Incomplete, RecordingError, UsageError
from fcpower_bids.inputs.identity import dataset_identity
from fcpower_bids.inputs.roots import output_folders
from fcpower_bids.outputs.dataset import bids_uri
from fcpower_bids.outputs.names import TIMESERIES
from fcpower_bids.outputs.status import (
    DONE,
    FAILED,
    Status,
    embedding_names,
    forget_embeddings,
    status_path,
    write_status,
)
from fcpower_bids.outputs.tables import column_names, describe_files, read_json, read_series, series_file, write_matrix
from fcpower_bids.progress import say
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
    if settings.encoder is None:
        return
    label = embedding_label(settings)
    of_sites = "" not in output_folders(settings, settings.output_dir)  # which are read and not written to
    if of_sites or not (settings.encoder_weights or settings.encoder == "random-init"):
        if not any(label in one.encoders for one in selected_of(settings).connectomes):
            raise UsageError(
                f"{settings.output_dir} holds no embedding by --encoder {settings.encoder}. Give --encoder-weights, or "
                "leave it out."
            )
        return
    done, failed = 0, list[str]()
    lacking = _lacking(label, settings)
    asked = {name for one in lacking for name in _status_names(one, settings)}
    forget_embeddings(settings.output_dir, {one.recording for one in lacking}, asked)
    named = sorted(((tuple(column_names(one.path)), one) for one in lacking), key=lambda each: (each[0], each[1].path))
    for parcels, of_parcels in groupby(named, key=lambda each: each[0]):  # an encoder is loaded once for each
        encoder = open_encoder(settings, parcels, {})
        if getattr(encoder, "needs_statistics", False) and encoder.statistics is None:
            continue  # it is fitted to the training people of every fold where encoders are compared
        for _, one in of_parcels:
            state = _embed(one, encoder, label, settings)
            done, failed = done + (state == DONE), failed + [one.recording] * (state == FAILED)
    if done:
        say(f"{label}: {done} stored series embedded", settings)
    if failed:
        raise Incomplete(
            f"{len(failed)} of {len(lacking)} stored series could not be embedded ({', '.join(failed[:3])}): the "
            "reasons are in logs/status.tsv."
        )


def _lacking(label: str, settings: Settings) -> list[Connectome]:
    """Scans with a series and without an embedding of this label, or with one of their own that may be outdated."""
    there = asked_for(selected_of(settings).connectomes, settings)
    with_series = [one for one in there if series_file(one.beside(TIMESERIES)).is_file()]
    if there and not with_series and not any(label in one.encoders for one in there):
        raise DatasetError(
            f"{settings.output_dir} holds no series, so there is nothing to embed: matrices do not say how a scan went "
            "on in time. Give the series, or leave out --encoder."
        )
    return [one for one in with_series if label not in one.encoders or dict(one.embeddings)[label] == one.atlas]


def _embed(one: Connectome, encoder: Any, label: str, settings: Settings) -> str:
    """Embed one series and write vector, sidecar and status; return its state, empty where it is there already."""
    series = series_file(one.beside(TIMESERIES))
    target = one.beside(Output("embedding", (("desc", label),)))
    person = dataset_identity(settings.bids_dir, settings.dataset_name), one.participant
    about = {**encoder.provenance(settings.encoder_read), OF_SERIES: known_digest(series), OF_DATASET: person[0]}
    (name,) = _status_names(one, settings)
    if _is_current(target, about) and not (label in one.encoders and one.is_embedding_outdated(label)):
        _clear_status(settings.output_dir, name)
        return ""
    try:
        values, parcels = read_series(series)
        facts = read_json(series.with_suffix(".json"))
        time = float(facts.get("RepetitionTime", math.nan))
        vector, training = embed_recording(encoder, values, tuple(parcels), time, settings.encoder_read, person)
    except (RecordingError, DatasetError) as error:
        target.unlink(missing_ok=True)
        write_status(settings.output_dir, Status(name, FAILED, "embed", str(error)))
        return FAILED
    write_matrix(target, vector[None], [f"dim{number:04d}" for number in range(len(vector))])
    own = {key: facts[key] for key in INHERITED if key in facts}
    sources = [bids_uri(series, {"": settings.output_dir})]
    describe_files({"Sources": sources, **own, **about, **training}, target)
    _clear_status(settings.output_dir, name)
    return DONE


def _status_names(one: Connectome, settings: Settings) -> Iterable[str]:
    return embedding_names(one.recording, [one.atlas_name], settings).values()


def _is_current(target: Path, about: dict[str, Any]) -> bool:
    """Whether the vector was made by this encoder from this series; a node states neither series nor dataset."""
    if not (target.is_file() and target.with_suffix(".json").is_file()):
        return False
    known = read_json(target.with_suffix(".json"))
    unstated = {key: about[key] for key in (OF_SERIES, OF_DATASET)}
    return all(known.get(key, unstated.get(key)) == value for key, value in _plain(about))


def _plain(about: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Entries as they are after a round through JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(about))
    return plain.items()


def _clear_status(output_dir: Path, name: str) -> None:
    """Remove the record of an earlier failure."""
    status_path(output_dir, name).unlink(missing_ok=True)
