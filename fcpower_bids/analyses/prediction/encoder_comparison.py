"""Connectomes and embeddings of any origin under one linear probe on shared folds, and their identification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.comparisons import COMPARISON_COLUMNS, compare_representations
from fcpower_bids.analyses.engine.cross_validation import (
    SCORE_COLUMNS,
    cross_validate,
    fold_rows,
    make_solver,
    pooled_rows,
)
from fcpower_bids.analyses.engine.progress import track
from fcpower_bids.analyses.engine.protocol import Study, open_study
from fcpower_bids.analyses.engine.representations import (
    EMBEDDING,
    build_representations,
    expand_names,
    scans_without_features,
)
from fcpower_bids.analyses.identification.curves import can_identify
from fcpower_bids.analyses.identification.fingerprinting import repeated_scans
from fcpower_bids.analyses.prediction.relative_embeddings import (
    cross_validate_refitted,
    embed_where_missing,
    tell_statistics,
)
from fcpower_bids.core.inference.differences import adjust_p_values
from fcpower_bids.core.inference.identification import Identification, compare_identification, identify
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Settings

Rows = list[dict[str, Any]]

IDENTIFICATION = "identification"
"""What stands in the column of targets for the identification of people."""

NOT_KNOWN = "n/a"

INPUT_COLUMNS = {
    "representation": "What predicts and identifies",
    "params": "Weights of the encoder; for connectomes and other features those of the probe, one per feature",
    "parcels": "Parcels that are read",
    "atlas": "Parcellation that is read",
    "scan": "How the scan is read: full, or as the encoder does (sequence, windows, windows of so many volumes)",
    "minutes": "Median length of the scans",
}
SUMMARY_COLUMNS = {
    **INPUT_COLUMNS,
    "target": f"Phenotype or composite, or {IDENTIFICATION}",
    "score": "r, auc for two classes, accuracy for identification",
    "pooled": "Score of all out-of-fold predictions of a repeat, mean over repeats; accuracy for identification",
    "fold_mean": "Mean of the scores per fold",
    "fold_sd": "Standard deviation over folds; over resampled people for identification",
    "n_scored": "Folds with a score; searches for identification",
}
FOLD_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "What predicts it",
    "repeat": "Repetition of the cross-validation, from 0",
    "fold": "Fold of the repetition, from 0",
    "n_train": "People who train, with a known target",
    "n_test": "People who are tested, with a known target",
    "penalty": "Ridge penalty that the inner folds selected",
    "at_grid_edge": "Whether that is the smallest or the largest of the grid",
}
PAIR_COLUMNS = {
    **COMPARISON_COLUMNS,
    "target": f"Phenotype or composite, or {IDENTIFICATION}",
    "score": "r, auc for two classes, accuracy for identification",
    "p_two_sided": "p of a difference; exact McNemar for identification",
    "only_representation": "Searches that the representation alone got right (identification)",
    "only_reference": "Searches that the reference alone got right (identification)",
}
FACTS = {
    "Probe": (
        "Ridge regression with a linear kernel on features z-scored on the training people, for every representation, "
        "on one set of folds and the people whom all representations describe."
    ),
    "PooledAndPerFold": "Tests use the scores per fold; pooled scores are what the paper's Table 'bench' prints.",
    "IdentificationTest": (
        "Exact McNemar test on the searches that one of the two alone gets right. It takes searches as independent; "
        "the confidence limits resample people."
    ),
}


def analyse_encoders(cohort: Cohort, settings: Settings) -> dict[str, Table]:
    """Compare representations as frozen features.

    Source: the paper, Tables "bench", "cohorts", "adhd", "paired" and "paired-aomic".

    Parameters
    ----------
    cohort : Cohort
        Scans, phenotypes, and embeddings by label; several labels of one encoder (full scan, windows) are several
        representations. Encoders in ``refits`` are fitted to the training people of every fold.
    settings : Settings
        As of the prediction; `kernel` is not used. All embeddings of the cohort take part besides what is named.

    Returns
    -------
    dict of str to Table
        ``encoders`` (one row per representation and target: input, pooled and per-fold score), ``encoder_folds``
        (one row per target, representation and fold), ``encoder_comparisons`` (every pair).

    Raises
    ------
    ValueError
        Fewer than two representations, or neither phenotypes nor repeated sessions.
    """
    told = tell_statistics(cohort)
    cohort = embed_where_missing(cohort, settings)
    settings = dataclasses.replace(settings, kernel="linear", representations=_names(cohort, settings))
    names = expand_names(cohort, settings)
    if len(names) < 2:
        raise ValueError("A comparison needs two representations or more; name them with --representations.")
    study = open_study(cohort, settings) if len(cohort.phenotypes.columns) else None
    if study is None and not can_identify(cohort):
        raise ValueError("A comparison needs phenotypes to predict, or two people with two sessions to identify.")
    summary, folds, pairs = _predict(study) if study else ([], pd.DataFrame(), [])
    facts = FACTS | (study.facts() if study else {})
    if can_identify(cohort):
        found = _identify(cohort, names, settings)
        summary += [_identification_row(name, each, settings) for name, each in found.items()]
        pairs.append(_identification_pairs(found, settings))
    inputs = {name: describe_input(name, cohort) for name in names}
    facts |= _unknown_inputs(inputs) | told
    frame = pd.DataFrame([inputs[row["representation"]] | row for row in summary], columns=list(SUMMARY_COLUMNS))
    compared = pd.concat(pairs, ignore_index=True).reindex(columns=list(PAIR_COLUMNS))
    tables = {
        "encoders": Table(frame, SUMMARY_COLUMNS, facts),
        "encoder_comparisons": Table(compared, PAIR_COLUMNS, facts),
    }
    return tables | ({"encoder_folds": Table(folds, FOLD_COLUMNS | SCORE_COLUMNS, facts)} if study else {})


def _names(cohort: Cohort, settings: Settings) -> tuple[str, ...]:
    return (*settings.representations, EMBEDDING) if cohort.embeddings else settings.representations


def describe_input(name: str, cohort: Cohort) -> dict[str, Any]:
    """What a representation reads, from the sidecars of embeddings; what they do not say is ``n/a``."""
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
    keys = {"params": "n_parameters", "parcels": "n_parcels", "atlas": "atlas", "scan": "read"}
    return row | {column: facts.get(key) or NOT_KNOWN for column, key in keys.items()}


def _unknown_inputs(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    unknown = [name for name, row in inputs.items() if row["params"] == NOT_KNOWN]
    return {"InputsNotKnown": f"The sidecars do not tell what is read by: {', '.join(unknown)}."} if unknown else {}


def _predict(study: Study) -> tuple[Rows, pd.DataFrame, list[pd.DataFrame]]:
    """Score every representation; rows of the summary, of the folds, and of the pairs."""
    folds, pooled = [], []
    for representation in study.representations():
        label = representation.name.partition(":")[2]
        if label in study.cohort.refits:
            result = cross_validate_refitted(label, study)
        else:
            result = cross_validate(make_solver(representation, study.preset), study, representation.name)
        folds += fold_rows(study, representation.name, result)
        pooled += pooled_rows(study, representation.name, result)
    frame, repeats = pd.DataFrame(folds), pd.DataFrame(pooled)
    summary: Rows = []
    for target in study.targets:
        score = "auc" if target.is_binary else "r"
        for name, own in frame[frame["target"] == target.name].groupby("representation", sort=False):
            together = repeats[(repeats["target"] == target.name) & (repeats["representation"] == name)][score]
            summary.append(
                {
                    "representation": name,
                    "target": target.name,
                    "score": score,
                    "pooled": float(together.mean()),
                    "fold_mean": float(own[score].mean()),
                    "fold_sd": float(own[score].std()),
                    "n_scored": int(own[score].notna().sum()),
                }
            )
    return summary, frame, [compare_representations(frame, study)[0]]


def _identify(cohort: Cohort, names: tuple[str, ...], settings: Settings) -> dict[str, Identification]:
    rows = repeated_scans(cohort, ~scans_without_features(cohort, names))
    persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
    each = build_representations(cohort, [np.array([row]) for row in rows], names, settings)
    return {
        one.name: identify(one.similarity(), persons, sessions)
        for one in track(each, "identification", settings, len(names))
    }


def _identification_row(name: str, found: Identification, settings: Settings) -> dict[str, Any]:
    return {
        "representation": name,
        "target": IDENTIFICATION,
        "score": "accuracy",
        "pooled": found.accuracy,
        "fold_mean": np.nan,
        "fold_sd": float(found.bootstrap(seed=settings.random_seed).sd),
        "n_scored": len(found.credit),
    }


def _identification_pairs(found: Mapping[str, Identification], settings: Settings) -> pd.DataFrame:
    rows: Rows = []
    for earlier, later in combinations(found, 2):
        test = compare_identification(found[later], found[earlier], seed=settings.random_seed)
        rows.append(
            {
                "target": IDENTIFICATION,
                "representation": later,
                "reference": earlier,
                "score": "accuracy",
                "mean_difference": test.difference,
                "ci_low": float(test.bootstrap.low),
                "ci_high": float(test.bootstrap.high),
                "p_two_sided": test.p_mcnemar,
                "only_representation": test.only_first,
                "only_reference": test.only_second,
            }
        )
    for row, adjusted in zip(rows, adjust_p_values([row["p_two_sided"] for row in rows]), strict=True):
        row["p_holm"] = float(adjusted)
    return pd.DataFrame(rows)
