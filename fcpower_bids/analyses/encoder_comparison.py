"""Encoders and connectivity on the same people and folds; relative embeddings fitted in the folds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import (
    compare,
    correct_within,
    cross_validate,
    cross_validate_anew,
    describe_scores,
    fold_scores,
    main_score,
    make_solver,
    pooled_scores,
)
from fcpower_bids.analyses.features import (
    EMBEDDING,
    Representation,
    build_representations,
    expand_names,
    has_series,
    scans_without_features,
)
from fcpower_bids.analyses.fingerprinting import can_identify, compare_pairs, repeated_scans
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.identification import Identification, identify
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.encoders.statistics import LEAK, SeriesEncoder
from fcpower_bids.errors import FcPowerError, Unfit
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort, Table, tabulate
from fcpower_bids.settings import Analysis


def embed_where_missing(cohort: Cohort, settings: Analysis) -> Cohort:
    """Embed all scans relative to all, to identify, and to see who can be: a note and NaN if not. Raises Unfit."""
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
    """Encoders that are fitted here and of which nothing is stored. Raises Unfit."""
    if cohort.refits and not has_series(cohort):
        raise Unfit(f"'{', '.join(cohort.refits)}' cannot be computed: the series of the scans are not there.")
    return tuple(label for label in cohort.refits if label not in cohort.embeddings)


def cross_validate_refitted(label: str, study: Study) -> NestedResult:
    """Predict as `evaluate.cross_validate`, with embeddings relative to each outer fold's training people."""
    name = f"{EMBEDDING}:{label}"
    return cross_validate_anew(
        lambda training_sets: (
            make_solver(Representation(name, "linear", partial(np.asarray, features), is_edges=False), study.preset)
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


def describe_statistics(cohort: Cohort) -> dict[str, Any]:
    """Say where the cohort statistics of every embedding come from, and where they may leak."""
    statistics = {}
    for label in dict.fromkeys([*cohort.embeddings, *cohort.refits]):
        stored = cohort.embedding_facts.get(label, {}).get("statistics")
        if label in cohort.refits:
            whole = f"those stored ({stored})" if label in cohort.embeddings else "those of all scans"
            statistics[label] = (
                "Prediction: of the training people of each outer fold, shared by its inner folds. "
                f"Identification, which needs no training: {whole}."
            )
        elif stored:
            statistics[label] = f"{stored[0].upper()}{stored[1:]}, {LEAK}"
    return {"CohortStatistics": statistics} if statistics else {}


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


TableRows = list[dict[str, Any]]

IDENTIFICATION = "identification"
"""Value of the column of targets for the identification of people."""

NOT_KNOWN = "n/a"

FACTS = {
    "Probe": (
        "Ridge regression with a linear kernel on z-scored features (Preset.fit_transforms_on: whose), for every "
        "representation, on one set of folds and the people that all representations describe."
    ),
    "PooledAndPerFold": "Tests use the scores per fold; pooled scores are what the paper's Table 'bench' prints.",
    "IdentificationTest": (
        "Exact sign flips of the net number of searches that each person wins under one of the two; the confidence "
        "limits resample people."
    ),
}


def prepare(cohort: Cohort, settings: Analysis) -> None:
    """Refuse a single representation, and a cohort without targets and second sessions."""
    stand_in = np.zeros((len(cohort.scans), 1))
    embeddings = {**cohort.embeddings, **dict.fromkeys(missing_embeddings(cohort), stand_in)}
    _open(dataclasses.replace(cohort, embeddings=embeddings), settings)


def _open(cohort: Cohort, settings: Analysis) -> tuple[tuple[str, ...], Study | None, Analysis]:
    """Return the representations, what there is to predict, and the choices that hold for all."""
    wanted = (*settings.representations, EMBEDDING) if cohort.embeddings else settings.representations
    settings = dataclasses.replace(settings, kernel="linear", representations=wanted)
    names = expand_names(cohort, settings)
    if len(names) < 2:
        raise Unfit("A comparison needs two representations or more; name them with --representations.")
    study = open_study(cohort, settings) if len(cohort.phenotypes.columns) else None
    if study is None and not can_identify(cohort):
        raise Unfit("A comparison needs phenotypes to predict, or two people with two sessions to identify.")
    return names, study, settings


def analyse_encoders(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Compare representations as frozen features. Raises Unfit."""
    statistics = describe_statistics(cohort)
    cohort = embed_where_missing(cohort, settings)
    names, study, settings = _open(cohort, settings)
    summary, pairs, folds = [], [], pd.DataFrame()
    if study:
        results = {
            each.name: cross_validate_refitted(label, study)
            if (label := each.name.partition(":")[2]) in cohort.refits
            else cross_validate(make_solver(each, study.preset), study, each.name)
            for each in study.representations()
        }
        folds = fold_scores(study, results)
        summary, pairs = _summarise(study, folds, pooled_scores(study, results)), [compare(folds, study)]
    facts = FACTS | (study.facts() if study else {})
    if can_identify(cohort):
        found = _identify(cohort, names, settings)
        about = {"target": IDENTIFICATION, "score": "accuracy"}
        summary += [
            {**about, "representation": name, "pooled": each.accuracy, "fold_sd": each.interval()[0]}
            | {"n_scored": len(each.credit)}
            for name, each in found.items()
        ]
        renamed = {"difference": "mean_difference", "p_people": "p_two_sided"}
        own = pd.DataFrame(compare_pairs(found, settings)).rename(columns=renamed).assign(**about)
        pairs.append(correct_within(own, ["target"]))
    inputs = {name: describe_input(name, cohort) for name in names}
    facts |= statistics
    if unknown := [name for name, row in inputs.items() if row["params"] == NOT_KNOWN]:
        facts["InputsNotKnown"] = f"The sidecars lack the input of: {', '.join(unknown)}."
    tables = tabulate(
        facts,
        encoders=[inputs[row["representation"]] | row for row in summary],
        encoder_comparisons=pd.concat(pairs, ignore_index=True),
    )
    return tables | (tabulate(facts, encoder_folds=folds) if study else {})


def describe_input(name: str, cohort: Cohort) -> dict[str, Any]:
    """Input of a representation, from the sidecars of embeddings; ``n/a`` where they lack it."""
    row: dict[str, Any] = {"representation": name, "minutes": float(np.median(cohort.scans["seconds"])) / 60}
    kind, _, label = name.partition(":")
    if kind != EMBEDDING:
        n_parcels = len(cohort.parcels)
        return row | {
            "params": n_parcels * (n_parcels - 1) // 2,
            "parcels": n_parcels,
            "atlas": NOT_KNOWN,
            "scan": "full",
        }
    facts: Mapping[str, Any] = cohort.embedding_facts.get(label, {})
    keys = {"params": "n_parameters", "parcels": "n_parcels", "atlas": "parcellation", "scan": "read"}
    return row | {column: facts.get(key) or NOT_KNOWN for column, key in keys.items()}


def _summarise(study: Study, of_folds: pd.DataFrame, of_repeats: pd.DataFrame) -> TableRows:
    """One row per target and representation."""
    rows: TableRows = []
    folds, pooled = (dict(iter(frame.groupby(["target", "representation"]))) for frame in (of_folds, of_repeats))
    for target in study.targets:
        score = main_score(target)
        for name in of_folds["representation"].unique():
            key = target.name, name
            about = describe_scores(folds[key], pooled[key], score)
            row = {"representation": name, "target": target.name, "score": score, "pooled": about["pooled_mean"]}
            row |= {"fold_mean": about["fold_mean"], "fold_sd": about["fold_sd"]}
            row["n_scored"] = int(folds[key][score].notna().sum())
            rows.append(row | {"share_at_grid_edge": float(folds[key]["at_grid_edge"].mean())})
    return rows


def _identify(cohort: Cohort, names: tuple[str, ...], settings: Analysis) -> dict[str, Identification]:
    rows = repeated_scans(cohort, ~scans_without_features(cohort, names))
    persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
    each = build_representations(cohort, [np.array([row]) for row in rows], names, settings)
    return {
        one.name: identify(one.similarity(), persons, sessions)
        for one in track(each, "identification", settings, len(names))
    }
