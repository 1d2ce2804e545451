"""A model fitted on everyone, as plain arrays, with what its user has to know."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.analyses.features import (
    FC,
    FC_POWER,
    Representation,
    build_representations,
    expand_names,
)
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.analyses.targets import join_target_builders
from fcpower_bids.clinic.calibration import (
    FEWEST_SHOWN,
    SEX,
    Ingredients,
    class_radii,
    held_out_residuals,
    interval_facts,
    is_female,
    negative_class,
    reference_scans,
)
from fcpower_bids.clinic.skill import UNTESTED, judge_skill
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.krr import LAST_DECADE, decades
from fcpower_bids.core.regression.nested import score_penalties
from fcpower_bids.core.regression.ridge_model import ModelArrays, ridge_model_arrays
from fcpower_bids.core.regression.scores import best_penalty
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis
from fcpower_bids.settings.group import PERMUTE

ERROR = "pooled_mse"
MODEL_REPRESENTATIONS = (FC, FC_POWER)
"""Representations of exportable models: features that follow from one connectome alone."""


@dataclass(frozen=True, eq=False)
class FinalModel:
    """A model that can be handed on."""

    arrays: ModelArrays  # see `core.regression.ridge_model.ridge_model_arrays`; plain types, for ``numpy.savez``
    # facts for the user of the model, JSON-ready: parcels, exponent, target, cohort, its ranges, intervals
    facts: dict[str, Any]
    reference: pd.DataFrame  # `calibration.REFERENCE`


def fit_final_model(
    cohort: Cohort,
    settings: Analysis,
    target: str,
    representation: str,
    tested: Mapping[str, Any] = UNTESTED,
) -> FinalModel:
    """Fit one regression on everyone whose target is known, the penalty by the folds of the preset. Raises Unfit."""
    if representation not in MODEL_REPRESENTATIONS:
        allowed = " or ".join(MODEL_REPRESENTATIONS)
        raise Unfit(f"A model can be saved for {allowed}, not for '{representation}'.")
    study = _study_of(cohort, settings, target, representation)
    if study.targets[0].is_binary and study.preset.covariates:
        raise Unfit(
            f"A model of the two classes of '{target}' cannot be saved with covariates. Leave out --covariates, or "
            "--save-models."
        )
    chosen = next(study.representations())
    everyone = np.arange(len(study.people.names))
    built = join_target_builders(study.targets, study.people.covariates)
    values = (built(everyone) if callable(built) else built)[:, 0]
    known = np.flatnonzero(~np.isnan(values))
    # The penalty that predicts best over as many folds as the inner loop has, families whole.
    solver = make_solver(chosen, study.preset)
    reach = range(-LAST_DECADE, LAST_DECADE + 1)
    penalties = decades(solver.unit, reach) if solver.unit else solver.penalties
    folds = study.protocol.divide(known, study.settings.random_seed)
    scores = score_penalties(solver, penalties, values[:, None], folds, _selection(study))
    # A penalty of 0 interpolates the training people; it makes no model for others.
    scores = np.where(penalties[:, None] > 0, scores, np.nan)
    penalty = float(penalties[best_penalty(scores, penalties)[0]])
    features = np.asarray(chosen.features()[:], dtype=float)
    rows = np.concatenate([study.people.scans[person] for person in known])
    person = np.repeat(known, [len(study.people.scans[one]) for one in known])
    single = _features_of_scans(study, rows, chosen)
    given = Ingredients(features, single, person, known, penalty, chosen.kernel, study.preset.intercept)
    held_out = held_out_residuals(study, given, settings.random_seed)
    arrays = ridge_model_arrays(features[known], values[known], penalty, chosen.kernel, study.preset.intercept)
    # Single scans are noisier than the averages that the model is fitted on; each is compared with others.
    arrays["similarity_range"] = np.array(_outwards(held_out.similarity.min(), held_out.similarity.max()))
    facts = _describe(study, known, representation, penalty) | {"HeldOutScores": held_out.scores}
    facts |= _facts_of_values(study, held_out.residuals, values[known])
    if not study.targets[0].is_binary:
        arrays["target_range"] = np.array(facts["TargetRange"])[:, None]
    width, observed = 2 * facts["Interval"]["Radius"], pd.Series(values[known])
    facts["Skill"] = judge_skill(tested, held_out.residuals, held_out.scores, width, observed)
    reference, facts["ReferenceAt"] = reference_scans(cohort, rows, held_out.similarity, _of_people(cohort))
    return FinalModel(arrays, facts, reference)


def _facts_of_values(study: Study, residuals: pd.DataFrame, values: FloatArray) -> dict[str, Any]:
    """The interval, the distribution of the training values (n,), and where the target ends."""
    interval = interval_facts(residuals)
    if study.targets[0].is_binary:
        interval["RadiusOfClasses"], interval["CoverageOfClasses"] = class_radii(residuals)
        return {"Interval": interval, "TargetRange": [0.0, 1.0], "TrainingValues": {}}
    # a quantity of which no training person has a negative value ends at 0; a residual of covariates does not
    ends = 0.0 if values.min() >= 0 and not study.preset.covariates else None
    return {
        "Interval": interval | {"Least": ends},
        "TargetRange": list(_outwards(float(values.min()), float(values.max()))),
        "TrainingValues": _histogram(values),
    }


def _histogram(values: FloatArray) -> dict[str, Any]:
    """Numbers of people between round values, `FEWEST_SHOWN` or more each, so that none is seen alone."""
    low, high = _outwards(float(values.min()), float(values.max()))
    if not high > low:
        return {"Edges": [low, high], "People": [len(values)]}
    step = _step(float(np.ptp(values)))
    edges, people = [low], []
    for edge in np.arange(1, round((high - low) / step) + 1) * step + low:
        inside = int(np.sum((values >= edges[-1]) & (values < edge)))
        if inside >= FEWEST_SHOWN:
            edges.append(round(float(edge), 10))
            people.append(inside)
    rest = len(values) - sum(people)  # too few for a part of their own: they go with those before them
    if people:
        edges[-1], people[-1] = high, people[-1] + rest
    return {"Edges": edges if people else [low, high], "People": people or [len(values)]}


def _study_of(cohort: Cohort, settings: Analysis, target: str, representation: str) -> Study:
    """Open a study of one target and one representation; the folds only serve to select the penalty."""
    columns = settings.composites.get(target)
    one = dataclasses.replace(
        settings,
        targets=(f"{target}={','.join(columns)}" if columns else target,),
        representations=(representation,),
        repeats=1,
        sites=PERMUTE,
    )
    return open_study(cohort, one)


def _features_of_scans(study: Study, rows: Rows, whole: Representation) -> FloatArray:
    """Features of single scans; those of the people where each has one scan only."""
    if all(len(scans) == 1 for scans in study.people.scans):
        place = {int(scans[0]): person for person, scans in enumerate(study.people.scans)}
        return np.asarray(whole.features()[:], dtype=float)[[place[int(row)] for row in rows]]
    names = expand_names(study.cohort, study.settings)
    groups = [np.array([row]) for row in rows]
    single = next(build_representations(study.cohort, groups, names, study.settings)).features()
    return np.asarray(single[:], dtype=float)


def _of_people(cohort: Cohort) -> dict[str, pd.Series]:
    """Columns age and sex by participant, whatever the case of their names."""
    columns = {str(name).lower(): cohort.phenotypes[name] for name in cohort.phenotypes.columns}
    found = {"age": pd.to_numeric(columns["age"], errors="coerce")} if "age" in columns else {}
    sex = next((columns[name] for name in SEX if name in columns), None)
    return found if sex is None else found | {"female": is_female(sex)}


def _selection(study: Study) -> str:
    """The score that selects the penalty: a correlation knows no scale, and here the numbers themselves are read."""
    return study.settings.selection or (study.preset.selection if study.targets[0].is_binary else ERROR)


def _describe(study: Study, known: NDArray[np.intp], representation: str, penalty: float) -> dict[str, Any]:
    target = study.targets[0]
    rows = np.concatenate([study.people.scans[row] for row in known])
    scans, cohort_times = study.cohort.scans.iloc[rows], study.cohort.repetition_times
    times = [cohort_times[row] for row in rows] if cohort_times else []
    ages, people = _of_people(study.cohort).get("age"), [study.people.names[row] for row in known]
    return {
        "Target": target.name,
        "PositiveClass": target.positive,
        "NegativeClass": negative_class(study),
        "CompositeOf": list(study.settings.composites.get(target.name, ())),
        "Covariates": list(study.preset.covariates),
        "Meaning": "residual after the covariates" if study.preset.covariates else "the target itself",
        "Representation": representation,
        "Alpha": study.settings.alpha if representation == FC_POWER else 1.0,
        "Kernel": study.settings.kernel,
        "Penalty": penalty,
        "Preset": study.preset.name,
        "Selection": _selection(study),
        "NumberOfPeople": int(known.size),
        "NumberOfScans": len(scans),
        "Sites": _counts(study.people.sites, known),
        "AgeRange": _range(ages.reindex(people)) if ages is not None else [],
        "DegreesOfFreedomRange": _range(scans["degrees_of_freedom"]) if "degrees_of_freedom" in scans else [],
        "MeanFDRange": _range(scans["mean_fd"]),
        "RepetitionTimeRange": _range(pd.Series(times, dtype=float)),
        "SecondsRange": _range(scans["seconds"]),
        "Parcels": list(study.cohort.parcels),
        "Networks": list(study.cohort.networks),
        "Caution": "Predictions hold for people, scanners and preprocessing like those of the training cohort. "
        "The weights are a sum of the training scans: who has these gets the values of their people.",
    }


def _counts(sites: NDArray[np.str_] | None, known: NDArray[np.intp]) -> dict[str, int]:
    return {} if sites is None else {str(name): int(n) for name, n in pd.Series(sites[known]).value_counts().items()}


def _range(values: pd.Series) -> list[float]:
    known = values.dropna()
    return list(_outwards(float(known.min()), float(known.max()))) if len(known) else []


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Ends of a range on a round value beyond it: an exact extreme is the number of a single person."""
    if not high > low:
        return low, high
    step = _step(high - low)
    return round((math.ceil(low / step) - 1) * step, 10), round((math.floor(high / step) + 1) * step, 10)


def _step(width: float) -> float:
    """1, 2 or 5 times a power of ten, about a tenth of a width."""
    power = 10.0 ** math.floor(math.log10(width / 10))
    return float(next(each * power for each in (1, 2, 5, 10) if each * power >= width / 10 * (1 - 1e-9)))
