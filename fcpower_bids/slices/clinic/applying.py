"""Result of a model for one new scan, its certainty, and the people for whom that holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.analyses.engine.representations import FC, FC_POWER
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.connectome.summary import connectome_summary
from fcpower_bids.core.regression.ridge_model import predict_from_arrays
from fcpower_bids.errors import Unfit
from fcpower_bids.slices.clinic.calibration import LEVEL, Evidence
from fcpower_bids.slices.clinic.equations import Radius, recalibrated_residuals, shrunken_offset, site_radius
from fcpower_bids.slices.clinic.fitting import FinalModel

UNLIKE = 1.0
"""Per cent of the training scans that are less like the others than a scan that is called unlike them."""


@dataclass(frozen=True)
class NewScan:
    """Facts about a scan besides its connectome; NaN where unknown.

    Attributes
    ----------
    seconds, mean_fd, degrees_of_freedom, repetition_time : float
    age, female : float
        From a phenotype table of the new people; 1 for female, 0 for male.
    in_training : bool
        Whether the model was fitted on this very connectome.
    """

    seconds: float = math.nan
    mean_fd: float = math.nan
    degrees_of_freedom: float = math.nan
    repetition_time: float = math.nan
    age: float = math.nan
    female: float = math.nan
    in_training: bool = False


@dataclass(frozen=True)
class AppliedModel:
    """Result of a fitted model for one scan.

    Attributes
    ----------
    prediction : float
        In the unit of the target; for two classes a score between the classes 0 and 1.
    low, high : float
        Interval with the coverage and for the people that ``facts["Interval"]`` states; NaN for classes.
    low_new_site, high_new_site : float
        The cautious interval for a site that is unlike the others; NaN without several sites.
    classes : tuple of str
        For two classes those that cannot be ruled out; empty for numbers.
    similarity, similarity_percentile : float
        How like the training people the scan is, and how many per cent of their scans are less like the others.
    summary : mapping of str to float
        The connectome in the measures that the table of the model's training scans has.
    warnings : tuple of str
        Properties outside of the model's training, the gravest first; empty when there are none.
    """

    prediction: float
    low: float
    high: float
    low_new_site: float
    high_new_site: float
    classes: tuple[str, ...]
    similarity: float
    similarity_percentile: float
    summary: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recalibration:
    """Correction by local people of known target.

    Attributes
    ----------
    people : int
        How many there were.
    offset : float
        Offset that is subtracted from predictions, shrunken to zero by the spread of offsets between sites.
    bias, mean_error_before : float
        Mean and mean absolute residual of these people before.
    radius : Radius
        Half the width of the interval afterwards.
    """

    people: int
    offset: float
    bias: float
    mean_error_before: float
    radius: Radius


def apply_model(
    model: FinalModel,
    connectome: ArrayLike,
    parcels: Sequence[str],
    scan: NewScan | None = None,
    recalibration: Recalibration | None = None,
) -> AppliedModel:
    """Predict the target of one scan from its Pearson FC.

    Shapes and units: connectome (P, P). Raises Unfit.
    """
    facts, told = model.facts, scan or NewScan()
    fc = _in_order(np.asarray(connectome, dtype=float), parcels, facts["Parcels"])
    matrix = spectral_power(fc, float(facts["Alpha"])) if facts["Representation"] == FC_POWER else fc
    if np.ptp(matrix[np.triu_indices(len(fc), 1)]) == 0:
        raise Unfit("All correlations of the scan are equal, so it says nothing; check the series.")
    found = predict_from_arrays(model.arrays, vectorise_edges(matrix, facts["Representation"] != FC)[None])
    prediction, similarity = float(found.predicted[0, 0]), float(found.similarity[0])
    known = model.reference.loc[model.reference["measure"] == "similarity", "value"].to_numpy(dtype=float)
    percentile = float(100 * np.mean(known < similarity)) if known.size else math.nan
    interval = facts["Interval"]
    radius, wide = interval["Radius"], interval.get("NewSiteRadius", math.nan)
    if recalibration is not None:
        prediction -= recalibration.offset
        radius, wide = recalibration.radius.value, math.nan
    classes = _possible_classes(prediction, facts)
    if facts["PositiveClass"] is not None:
        radius = wide = math.nan
    return AppliedModel(
        prediction,
        prediction - radius,
        prediction + radius,
        prediction - wide,
        prediction + wide,
        classes,
        similarity,
        percentile,
        connectome_summary(fc, facts["Networks"]) | {"similarity": similarity},
        _warnings(told, percentile, prediction, facts),
    )


def recalibrate(model: FinalModel, residuals: ArrayLike, seed: int = 0) -> Recalibration:
    """Move a model to a place of which a few people with known targets were predicted.

    Shapes and units: residuals (k,). Raises Unfit.
    """
    local, chosen = np.asarray(residuals, dtype=float), Evidence.of(model.residuals)
    if model.facts["PositiveClass"] is not None:
        raise Unfit("A model of two classes cannot be recalibrated.")
    if not chosen.by_site:
        raise Unfit(
            "The model was made without sites, so nothing is known of offsets between them. Make it with --site-column."
        )
    after, sites = recalibrated_residuals(chosen.values, chosen.groups, len(local), seed)
    if len(set(sites.tolist())) < 2:
        raise Unfit(
            f"The training needs three sites, each with more than {len(local) + 1} scans, to know what {len(local)} "
            "local people change. Name fewer, or make the model with more sites."
        )
    offset = shrunken_offset(local, chosen.values, chosen.groups)
    return Recalibration(
        len(local), offset, float(local.mean()), float(np.abs(local).mean()), site_radius(after, sites, LEVEL)
    )


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


def _possible_classes(score: float, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Classes whose members have scores as far from the class as this one, in 90 of 100 cases."""
    radii = facts["Interval"].get("RadiusOfClasses", {})
    return tuple(name for name, radius in radii.items() if abs(score - float(name == facts["PositiveClass"])) <= radius)


def _warnings(scan: NewScan, percentile: float, prediction: float, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Properties outside of the model's training, the gravest first."""
    found = []
    if scan.in_training:
        found.append("the model was fitted on this very scan, so the prediction tests nothing")
    low, high = facts["AgeRange"] or (-math.inf, math.inf)
    if scan.age < low or scan.age > high:
        found.append(f"the person is {scan.age:g} years old, the training people {low:g} to {high:g}: "
                     "the interval does not hold")  # fmt: skip
    if percentile < UNLIKE:
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
    least, most = facts["TargetRange"] or (-math.inf, math.inf)
    if facts["PositiveClass"] is None and not least <= prediction <= most:
        found.append(f"the prediction lies outside the values of '{facts['Target']}' that the model was trained on")
    return tuple(found)
