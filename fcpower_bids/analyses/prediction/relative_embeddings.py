"""Embeddings that are fed relative to a cohort: its statistics come from the training people of every fold alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fcpower_bids.analyses.engine.cross_validation import cross_validate_anew, make_solver
from fcpower_bids.analyses.engine.representations import EMBEDDING, Representation
from fcpower_bids.analyses.engine.series import has_series
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.errors import FcPowerError, Unfit
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis

SeriesEncoder = Callable[[np.ndarray, float], np.ndarray]


def embed_where_missing(cohort: Cohort, settings: Analysis) -> Cohort:
    """Embed all scans for encoders of which nothing is stored, relative to all scans.

    These embeddings tell who can be embedded, and identify people, for which nobody is trained on. Predictions do not
    use them: see `cross_validate_refitted`. A scan that cannot be embedded is a row of NaN and a note.

    Raises
    ------
    Unfit
        No scan can be embedded, or there are no series.
    """
    embeddings, notes = dict(cohort.embeddings), list(cohort.notes)
    for label in missing_embeddings(cohort):
        everyone = range(len(cohort.scans))
        embed = _fit(cohort, label, everyone)
        vectors, refused = {}, {}
        for scan in track(everyone, f"{label} of all scans", settings):
            try:
                vectors[scan] = _embed_scan(cohort, embed, scan)
            except FcPowerError as error:
                refused[scan] = str(error)
        if not vectors:
            raise Unfit(f"'{label}' can be computed of no scan: {next(iter(refused.values()))}")
        if refused:
            notes.append(f"No '{label}' of {len(refused)} of {len(everyone)} scans: {next(iter(refused.values()))}")
        empty = np.full(next(iter(vectors.values())).size, np.nan)
        embeddings[label] = np.stack([vectors.get(scan, empty) for scan in everyone])
    return dataclasses.replace(cohort, embeddings=embeddings, notes=tuple(notes))


def missing_embeddings(cohort: Cohort) -> tuple[str, ...]:
    """Encoders that are fitted here and of which nothing is stored.

    Raises
    ------
    Unfit
        There are no series to fit them to.
    """
    if cohort.refits and not has_series(cohort):
        raise Unfit(f"'{', '.join(cohort.refits)}' cannot be computed: the series of the scans are not there.")
    return tuple(label for label in cohort.refits if label not in cohort.embeddings)


def cross_validate_refitted(label: str, study: Study) -> NestedResult:
    """Predict as `cross_validation.cross_validate`, with embeddings relative to the training people of each outer fold.

    Everyone is embedded once for every distinct training set. The inner folds share the statistics of their outer
    training set, which know no target and nobody who is tested.

    Parameters
    ----------
    label : str
        Of the embedding; the cohort of the study has its encoder in ``refits``.
    study : Study
    """
    return cross_validate_anew(
        lambda training_sets: (
            make_solver(_as_representation(label, features), study.preset)
            for features in embed_relative_to(label, study, training_sets)
        ),
        study,
    )


def embed_relative_to(label: str, study: Study, training_sets: Sequence[Rows]) -> Iterator[FloatArray]:
    """Yield embeddings (n_people, d) relative to each set of training people, the mean over the scans of a person."""
    cohort, people = study.cohort, study.people.scans
    scans = np.concatenate(list(people)).tolist()
    what = f"{label}, {len(scans)} scans for each of {len(training_sets)} training sets"
    steps = track(range(len(scans) * len(training_sets)), what, study.settings)
    for train in training_sets:
        embed = _fit(cohort, label, np.concatenate([people[person] for person in train]).tolist())
        vectors = {scan: _embed_scan(cohort, embed, scan) for scan, _ in zip(scans, steps, strict=False)}
        yield np.stack([np.mean([vectors[scan] for scan in own.tolist()], axis=0) for own in people])


def tell_statistics(cohort: Cohort) -> dict[str, Any]:
    """Say where the cohort statistics of every embedding come from, and where they may leak.

    Parameters
    ----------
    cohort : Cohort
        As it was loaded, with the embeddings that are stored.

    Returns
    -------
    dict
        For a sidecar: ``CohortStatistics``, by label; empty where no embedding has any.
    """
    told = {}
    for label in dict.fromkeys([*cohort.embeddings, *cohort.refits]):
        stored = cohort.embedding_facts.get(label, {}).get("statistics")
        if label in cohort.refits:
            whole = f"those stored ({stored})" if label in cohort.embeddings else "those of all scans"
            told[label] = (
                "Prediction: of the training people of each outer fold, shared by its inner folds. "
                f"Identification, which trains on nobody: {whole}."
            )
        elif stored:
            told[label] = f"{stored[0].upper()}{stored[1:]}, {LEAK}"
    return {"CohortStatistics": told} if told else {}


LEAK = (
    "which may be of people who are tested here (a leak). encoder_comparison fits them on the training people of each "
    "fold if the group level is given --encoder, --encoder-weights and the --atlas of the encoder."
)


def _fit(cohort: Cohort, label: str, scans: Iterable[int]) -> SeriesEncoder:
    return cohort.refits[label]([run for scan in scans for run in cohort.series[scan]()])


def _embed_scan(cohort: Cohort, embed: SeriesEncoder, scan: int) -> FloatArray:
    """Mean over the runs that can be embedded, as of stored embeddings; the error of the last one if none can."""
    vectors, refusal = [], None
    for run in cohort.series[scan]():
        try:
            vectors.append(np.asarray(embed(run, cohort.repetition_times[scan]), dtype=float))
        except FcPowerError as error:
            refusal = error
    if not vectors and refusal is not None:
        raise refusal
    return np.asarray(np.mean(vectors, axis=0))


def _as_representation(label: str, features: FloatArray) -> Representation:
    return Representation(f"{EMBEDDING}:{label}", "linear", lambda: features, is_edges=False)
