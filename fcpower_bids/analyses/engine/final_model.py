"""A model fitted on everyone, as plain arrays and facts, and its application to the connectome of a new scan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.analyses.engine.cross_validation import make_solver
from fcpower_bids.analyses.engine.protocol import Study, open_study
from fcpower_bids.analyses.engine.representations import FC, FC_POWER, build_representations, expand_names
from fcpower_bids.analyses.engine.targets import join_target_builders
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.regression.folds import deal_families, family_numbers
from fcpower_bids.core.regression.penalties import PenaltyLadder
from fcpower_bids.core.regression.ridge import Sides, Solver, Split
from fcpower_bids.core.regression.ridge_model import ModelArrays, predict_from_arrays, ridge_model_arrays
from fcpower_bids.core.regression.scores import Training, best_penalty, selection_scores
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis

FloatArray = NDArray[np.float64]

BLOCK = 256
"""Scans that are compared with the model at a time."""

MODEL_REPRESENTATIONS = (FC, FC_POWER)
"""What a model can be exported for: features that follow from one connectome without anything else."""


@dataclass(frozen=True)
class AppliedModel:
    """What a fitted model says of one scan.

    Attributes
    ----------
    prediction : float
        In the unit of the target; for two classes a score between the classes 0 and 1.
    similarity : float
        How like the training people the scan is, as `core.ridge_model.NewPredictions` defines it.
    inside_range : bool
        Whether similarity and prediction lie in the ranges of the training people.
    warning : str
        What is outside, in words; empty when nothing is.
    """

    prediction: float
    similarity: float
    inside_range: bool
    warning: str


def fit_final_model(
    cohort: Cohort, settings: Analysis, target: str, representation: str
) -> tuple[ModelArrays, dict[str, Any]]:
    """Fit one regression on everyone whose target is known; the penalty is selected by the folds of the preset.

    Parameters
    ----------
    cohort : Cohort
    settings : Analysis
        As for the prediction.
    target : str
        Column or composite.
    representation : str
        "fc" or "fc_power".

    Returns
    -------
    arrays : dict of str to ndarray
        See `core.ridge_model.ridge_model_arrays`; plain types, for ``numpy.savez``.
    facts : dict
        What a user of the model has to know, JSON-ready: parcels, exponent, target, cohort and its ranges.

    Raises
    ------
    Unfit
        The representation cannot be exported, or as `prediction.analyse_prediction`.
    """
    if representation not in MODEL_REPRESENTATIONS:
        allowed = " or ".join(MODEL_REPRESENTATIONS)
        raise Unfit(f"A model can be saved for {allowed}, not for '{representation}'.")
    study = _study_of(cohort, settings, target, representation)
    chosen = next(study.representations())
    everyone = np.arange(len(study.people.names))
    built = join_target_builders(study.targets, study.people.covariates)
    values = (built(everyone) if callable(built) else built)[:, 0]
    known = np.flatnonzero(~np.isnan(values))
    penalty = _select_penalty(make_solver(chosen, study.preset), values, known, study)
    features = np.asarray(chosen.features()[:])[known]
    arrays = ridge_model_arrays(features, values[known], penalty, chosen.kernel, study.preset.intercept)
    arrays["similarity_range"] = _widen(arrays, study, known)
    return arrays, _describe(study, known, representation, penalty)


def apply_model(
    arrays: Mapping[str, NDArray[np.generic]], facts: Mapping[str, Any], connectome: ArrayLike, parcels: Sequence[str]
) -> AppliedModel:
    """Predict the target of one scan from its Pearson FC.

    Parameters
    ----------
    arrays, facts
        From `fit_final_model`.
    connectome : array_like, shape (P, P)
        Pearson FC of the scan.
    parcels : sequence of str, length P
        Its parcels, in any order; parcels that the model does not use are ignored.

    Returns
    -------
    AppliedModel

    Raises
    ------
    Unfit
        A parcel of the model is missing, or the shapes do not fit.
    """
    matrix = np.asarray(connectome, dtype=float)
    if matrix.shape != (len(parcels), len(parcels)):
        raise ValueError(f"A connectome of shape {matrix.shape} does not fit {len(parcels)} parcels.")
    place = {name: i for i, name in enumerate(parcels)}
    lacking = [
        name for name in facts["Parcels"] if name not in place or not np.isfinite(matrix[place[name], place[name]])
    ]
    if lacking:
        listed = ", ".join(lacking[:5]) + (" ..." if len(lacking) > 5 else "")
        raise Unfit(f"The model needs {len(lacking)} parcels that the scan lacks: {listed}. Use the same atlas.")
    order = [place[name] for name in facts["Parcels"]]
    matrix = matrix[np.ix_(order, order)]
    if facts["Representation"] == FC_POWER:
        matrix = spectral_power(matrix, float(facts["Alpha"]))
    if np.ptp(matrix[np.triu_indices(len(order), 1)]) == 0:
        raise Unfit("All correlations of the scan are equal, so it says nothing; check the series.")
    found = predict_from_arrays(arrays, vectorise_edges(matrix, facts["Representation"] != FC)[None])
    warning = _warn(found.familiar[0], found.within_range[0, 0], facts)
    return AppliedModel(float(found.predicted[0, 0]), float(found.similarity[0]), not warning, warning)


def _study_of(cohort: Cohort, settings: Analysis, target: str, representation: str) -> Study:
    """Open a study of one target and one representation; the folds only serve to select the penalty."""
    composites = tuple(text for text in settings.composite if text.partition("=")[0].strip() == target)
    one = dataclasses.replace(
        settings,
        targets=() if composites else (target,),
        composite=composites,
        representations=(representation,),
        repeats=1,
        hold_out_sites=False,
    )
    return open_study(cohort, one)


def _widen(arrays: ModelArrays, study: Study, known: NDArray[np.intp]) -> FloatArray:
    """Range of similarity that covers single scans too, noisier than the averages that the model is fitted on.

    Without this every new scan of a cohort with several sessions would look strange.
    """
    low, high = np.asarray(arrays["similarity_range"], dtype=float)
    groups = [np.array([row]) for person in known for row in study.people.scans[person]]
    if len(groups) == known.size:
        return np.array([low, high])
    names = expand_names(study.cohort, study.settings)
    single = next(build_representations(study.cohort, groups, names, study.settings)).features()
    blocks = [single[at : at + BLOCK, :] for at in range(0, len(groups), BLOCK)]
    similarity = np.concatenate([predict_from_arrays(arrays, block).similarity for block in blocks])
    return np.array([min(low, similarity.min()), max(high, similarity.max())])


def _select_penalty(solver: Solver, values: FloatArray, known: NDArray[np.intp], study: Study) -> float:
    """Return the penalty that predicts best over as many folds as the inner loop has, families whole."""
    solver = solver.whole() if isinstance(solver, PenaltyLadder) else solver
    families = None if study.people.families is None else study.people.families[known]
    rng = np.random.default_rng(study.settings.random_seed)
    labels = deal_families(family_numbers(families, known.size), study.preset.n_inner, rng)
    others = np.setdiff1d(np.arange(len(values)), known)
    sides: Sides = solver.prepare(np.nan_to_num(values)[:, None])
    observed, predicted, train = [], [], []
    for fold in range(study.preset.n_inner):
        test, rest = known[labels == fold], known[labels != fold]
        # A solver also predicts inner folds; here they are two halves whose predictions are not used.
        split = Split(test, rest, tuple(np.array_split(rest, 2)), others)
        predicted.append(solver.predict(split, sides, [sides, sides])[0])
        observed.append(values[test, None])
        train.append(Training.of(values[rest, None]))
    scores = selection_scores(study.preset.selection, observed, predicted, train)
    # A penalty of 0 interpolates the training people; it makes no model for others.
    scores = np.where(solver.penalties[:, None] > 0, scores, np.nan)
    return float(solver.penalties[best_penalty(scores, solver.penalties)[0]])


def _describe(study: Study, known: NDArray[np.intp], representation: str, penalty: float) -> dict[str, Any]:
    target = study.targets[0]
    scans = study.cohort.scans.iloc[np.concatenate([study.people.scans[row] for row in known])]
    composite = [text.partition("=")[2].split(",") for text in study.settings.composite]
    return {
        "Target": target.name,
        "PositiveClass": target.positive,
        "CompositeOf": [name.strip() for name in composite[0]] if composite else [],
        "Covariates": list(study.preset.covariates),
        "Meaning": "residual after the covariates" if study.preset.covariates else "the target itself",
        "Representation": representation,
        "Alpha": study.settings.alpha if representation == FC_POWER else 1.0,
        "Penalty": penalty,
        "Preset": study.preset.name,
        "Selection": study.preset.selection,
        "RandomSeed": study.settings.random_seed,
        "NumberOfPeople": int(known.size),
        "MeanFDRange": _range(scans["mean_fd"]),
        "SecondsRange": _range(scans["seconds"]),
        "Parcels": list(study.cohort.parcels),
        "Caution": "Predictions hold for people, scanners and preprocessing like those of the training cohort.",
    }


def _range(values: pd.Series) -> list[float]:
    known = values.dropna()
    return [float(known.min()), float(known.max())] if len(known) else []


def _warn(familiar: bool, within: bool, facts: Mapping[str, Any]) -> str:
    outside = []
    if not familiar:
        outside.append("the scan is unlike those of the training people")
    if not within:
        outside.append(f"the prediction lies outside the values of '{facts['Target']}' that the model was trained on")
    return f"Treat with caution: {' and '.join(outside)}." if outside else ""
