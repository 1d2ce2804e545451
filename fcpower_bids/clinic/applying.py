"""Result of a model for one new scan, how certain it is, and for which people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.analyses.features import FC, FC_POWER
from fcpower_bids.clinic.fit import FinalModel, compare_with_reference
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import connectome_summary, spectral_power
from fcpower_bids.core.regression.probe import predict_from_arrays
from fcpower_bids.errors import Unfit

UNLIKE = -2.33
"""Similarity in standard deviations below which a scan is unlike the training scans: 1 of 100 of a normal law."""
NEAR, FEW_NEAR = 0.1, 5
"""People of the training are near a value by this share of its range; fewer than so many are called few."""


@dataclass(frozen=True)
class NewScan:
    """Facts about a scan besides its connectome; NaN where unknown."""

    seconds: float = math.nan
    mean_fd: float = math.nan
    degrees_of_freedom: float = math.nan
    repetition_time: float = math.nan
    # age, female: from a phenotype table of the new people; 1 for female, 0 for male
    age: float = math.nan
    female: float = math.nan
    in_training: bool = False  # whether the model was fitted on this very connectome


@dataclass(frozen=True)
class AppliedModel:
    """Result of a fitted model for one scan."""

    prediction: float  # in the unit of the target; for two classes a score between the classes 0 and 1
    # low, high: interval with the coverage and for the people that ``facts["Interval"]`` states; NaN for classes
    low: float
    high: float
    classes: tuple[str, ...]  # for two classes those that cannot be ruled out; empty for numbers
    similarity: float  # how like the training people the scan is
    compared: tuple[Mapping[str, Any], ...] = ()  # rows of the comparison with the reference
    # properties outside of the model's training, the gravest first; empty when there are none
    warnings: tuple[str, ...] = ()


def apply_model(
    model: FinalModel,
    connectome: ArrayLike,
    parcels: Sequence[str],
    scan: NewScan | None = None,
) -> AppliedModel:
    """Predict the target of one scan from its Pearson FC. Shapes and units: connectome (P, P). Raises Unfit."""
    facts, known = model.facts, scan or NewScan()
    fc = _in_order(np.asarray(connectome, dtype=float), parcels, facts["Parcels"])
    matrix = spectral_power(fc, float(facts["Alpha"])) if facts["Representation"] == FC_POWER else fc
    if np.ptp(matrix[np.triu_indices(len(fc), 1)]) == 0:
        raise Unfit("All correlations of the scan are equal, so it says nothing; check the series.")
    found = predict_from_arrays(model.arrays, vectorise_edges(matrix, facts["Representation"] != FC)[None])
    prediction, similarity = float(found.predicted[0, 0]), float(found.similarity[0])
    about = {"seconds": known.seconds, "mean_fd": known.mean_fd, "female": known.female}
    measures = connectome_summary(fc, facts["Networks"]) | {"similarity": similarity}
    compared = tuple(compare_with_reference(model.reference, facts["ReferenceAt"], measures, about))
    return AppliedModel(
        prediction,
        *ends_of(prediction, facts),
        possible_classes(prediction, facts),
        similarity,
        compared,
        _warnings(known, compared, prediction, facts),
    )


def ends_of(prediction: float, facts: Mapping[str, Any]) -> tuple[float, float]:
    """Ends of the interval, NaN for classes."""
    interval = facts["Interval"]
    if facts["PositiveClass"] is not None:
        return math.nan, math.nan
    least = -math.inf if interval.get("Least") is None else interval["Least"]
    low, high = prediction - interval["Radius"], prediction + interval["Radius"]
    return max(low, least), max(high, least)


def _in_order(matrix: FloatArray, parcels: Sequence[str], wanted: Sequence[str]) -> FloatArray:
    if matrix.shape != (len(parcels), len(parcels)):
        raise ValueError(f"A connectome of shape {matrix.shape} does not fit {len(parcels)} parcels.")
    place = {name: i for i, name in enumerate(parcels)}
    unknown = [name for name in wanted if name not in place]
    if unknown:
        raise Unfit(f"The model needs {len(unknown)} parcels that are not in this atlas: {_listed(unknown)}.")
    order = [place[name] for name in wanted]
    matrix = matrix[np.ix_(order, order)]
    empty = [name for name, value in zip(wanted, np.diag(matrix), strict=True) if not np.isfinite(value)]
    if empty:
        raise Unfit(f"{len(empty)} parcels of the model have no value in the scan, which does not cover them: "
                    f"{_listed(empty)}.")  # fmt: skip
    return matrix


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")


def possible_classes(score: float, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Classes whose members have scores as far from the class as this one, in 90 of 100 cases."""
    radii = facts["Interval"].get("RadiusOfClasses", {})
    return tuple(name for name, radius in radii.items() if abs(score - float(name == facts["PositiveClass"])) <= radius)


def people_near(values: Mapping[str, Any], value: float) -> float:
    """How many training people are near a value, of their numbers between round values."""
    edges, people = values["Edges"], values["People"]
    reach = NEAR * (edges[-1] - edges[0])
    below = np.concatenate([[0.0], np.cumsum(people)])
    low, high = np.interp([value - reach, value + reach], edges, below)
    return float(high - low)


def _warnings(
    scan: NewScan, compared: Sequence[Mapping[str, Any]], prediction: float, facts: Mapping[str, Any]
) -> tuple[str, ...]:
    """Properties outside of the model's training, the gravest first."""
    found = []
    if scan.in_training:
        found.append("the model was fitted on this very scan, so the prediction tests nothing")
    low, high = facts["AgeRange"] or (-math.inf, math.inf)
    if scan.age < low or scan.age > high:
        found.append(f"the person is {scan.age:g} years old, the training people {low:g} to {high:g}: "
                     "the interval does not hold")  # fmt: skip
    far = next((one["z"] for one in compared if one["measure"] == "similarity"), 0.0)
    if (far if facts.get("Kernel") != "linear" else -far) < UNLIKE:
        found.append("the scan is unlike those of the training people")
    for value, name, key, per, unit in (
        (scan.seconds, "series of", "SecondsRange", 60, "minutes"),
        (scan.repetition_time, "a repetition time of", "RepetitionTimeRange", 1, "s"),
        (scan.mean_fd, "mean motion of", "MeanFDRange", 1, "mm"),
    ):
        least, most = facts.get(key) or (-math.inf, math.inf)
        if value < least * 0.99 or value > most * 1.01:
            found.append(f"it has {name} {value / per:.3g} {unit}, the training scans {least / per:.3g} to "
                         f"{most / per:.3g}")  # fmt: skip
    if facts["PositiveClass"] is None:
        found += _of_the_value(prediction, facts)
    return tuple(found)


def _of_the_value(prediction: float, facts: Mapping[str, Any]) -> list[str]:
    """Whether the model has seen people of such a value."""
    least, most = facts["TargetRange"]
    if not least <= prediction <= most:
        return [f"the prediction lies outside the values of '{facts['Target']}' that the model was trained on"]
    near = people_near(facts["TrainingValues"], prediction)
    if near >= FEW_NEAR:
        return []
    return [f"fewer than {FEW_NEAR} of the training people are near this value ({facts['Target']} {prediction:.3g})"]
