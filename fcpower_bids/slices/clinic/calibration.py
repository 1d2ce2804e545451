"""How wide the intervals of a model are, and whether a new scan is like those of its people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.scoring import main_score
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.engine.targets import Target, join_target_builders
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.connectome.spd import connectome_summary
from fcpower_bids.core.regression.ridge_model import predict_from_arrays, ridge_model_arrays
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.records import Cohort
from fcpower_bids.schema import TABLES
from fcpower_bids.slices.clinic.equations import conformal_radius, measure_coverage, normal_at

SEX = ("sex", "gender")
"""Columns of a phenotype table, in lower case."""

REFERENCE = TABLES["reference"]
ABOUT = ("mean_fd", "seconds", "female")
"""Properties of a scan that its reference is adjusted for."""

UNUSUAL = TABLES["predicted/target-TARGET-REPRESENTATION_reference"]


def compare_with_reference(
    reference: pd.DataFrame, at: Mapping[str, float], summary: Mapping[str, float], about: Mapping[str, float]
) -> list[dict[str, float | str]]:
    """Say how unusual a connectome is against training scans at its motion, length and sex, as far as known."""
    away = _away(pd.DataFrame([about], columns=list(ABOUT), dtype=float), at)[0]
    known = [name for name in ABOUT if np.isfinite(about.get(name, np.nan)) and name in at]
    names = {"mean_fd": "motion", "seconds": "length", "female": "sex"}
    rows: list[dict[str, float | str]] = []
    for measure, row in reference.set_index("measure").iterrows():
        if measure not in summary:
            continue
        slopes = row[[f"per_{name}" for name in ABOUT]].to_numpy(dtype=float)
        mean, sd, value = float(row["mean"] + away @ slopes), float(row["sd"]), summary[str(measure)]
        adjusted = ", ".join(names[name] for name in known if row[f"per_{name}"])
        numbers = {"value": value, "mean": mean, "sd": sd, "z": (value - mean) / sd if sd > 0 else np.nan}
        rows.append({"measure": str(measure), **numbers, "scans": float(row["scans"]), "adjusted_for": adjusted})
    return rows


def _away(about: pd.DataFrame, at: Mapping[str, float]) -> FloatArray:
    """Distances of scans from where the means stand: doublings of motion and length, and sex; 0 where unknown."""
    centre = {name: at.get(name, np.nan) for name in ABOUT}
    away = about[list(ABOUT)].astype(float).copy()
    for name in ("mean_fd", "seconds"):
        with np.errstate(divide="ignore", invalid="ignore"):
            away[name] = np.log2(away[name] / centre[name])
    away["female"] -= centre["female"]
    return np.where(np.isfinite(away), away, 0.0)


def is_female(column: pd.Series) -> pd.Series:
    """Say 1 where a table has F, female or woman, 0 for M, male or man, NaN for all else, codes too."""
    words = column.astype(object).map(lambda cell: str(cell).strip().casefold())
    return words.map({"f": 1.0, "female": 1.0, "woman": 1.0, "m": 0.0, "male": 0.0, "man": 0.0}).astype(float)


def reference_scans(
    cohort: Cohort, rows: Rows, similarity: NDArray[np.float64], people: Mapping[str, pd.Series]
) -> tuple[pd.DataFrame, dict[str, float]]:
    """`REFERENCE` of scans (n,) of a cohort, and the motion, length and share of women of its means."""
    scans = cohort.scans.iloc[rows]
    edges = (rebuild_matrix(np.asarray(cohort.edges[row], dtype=float), 1.0, weighted=False) for row in rows)
    measures = pd.DataFrame([connectome_summary(fc, cohort.networks) for fc in edges]).assign(similarity=similarity)
    about = pd.DataFrame({name: scans.get(name, np.nan) for name in ABOUT[:2]}).astype(float)
    about["female"] = scans["participant_id"].astype(str).map(people.get("female", pd.Series(dtype=float))).to_numpy()
    with np.errstate(divide="ignore"):
        logs = np.log2(about[["mean_fd", "seconds"]]).replace([np.inf, -np.inf], np.nan).mean()
    at = {name: _rounded(2 ** float(mean)) for name, mean in logs.items() if np.isfinite(mean)}
    if about["female"].notna().any():
        at["female"] = _rounded(float(about["female"].mean()))
    away = _away(about, at)
    found = []
    for name, column in measures.items():
        known = column.notna().to_numpy()
        if known.sum() < FEWEST_SHOWN:
            continue
        mean, sd, slopes = normal_at(column[known], away[known])
        found.append((name, int(known.sum()), *map(_rounded, (mean, sd, *slopes))))
    return pd.DataFrame(found, columns=list(REFERENCE.columns)), at


def _rounded(value: float) -> float:
    """Four digits: the numbers of many scans, and not those of one in another form."""
    return float(f"{value:.4g}")


LEVEL = 0.9
FEWEST_SHOWN = 5
"""People below which a model has no numbers of a group: they would be those of single people."""


@dataclass(frozen=True, eq=False)
class Ingredients:
    """Parts of a fold of the model."""

    # features, single: (n, E), (n_scans, E): of the people, and of their single scans
    features: FloatArray
    single: FloatArray
    person: Rows  # (n_scans,): row of the person of each single scan
    known: Rows  # people whose target is known
    penalty: float
    kernel: str
    intercept: bool


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of models for scans that they have not seen."""

    # one row per scan: its ``fold``, its ``person`` by number, ``predicted``, ``observed``, ``residual``, ``guess``
    # (error of the mean of the training people), ``observed_class``; it is not written
    residuals: pd.DataFrame
    similarity: FloatArray  # (n_scans,): of each scan to the training people of the fold that held it out
    # how well each fold of `FEWEST_SHOWN` people or more was predicted: scans, mean error, its standard deviation, mean
    # absolute error, and r or, for two classes, scans and the area under the curve alone; NaN where all were observed
    # equal
    scores: dict[str, dict[str, float]]


def held_out_residuals(study: Study, given: Ingredients, seed: int) -> HeldOut:
    """Predict every single scan, as a model is given later, by a model without its person and their relatives."""
    built = join_target_builders(study.targets, study.people.covariates)
    target = study.targets[0]
    parts, similarity = [], np.full(len(given.person), np.nan)
    scores: dict[str, dict[str, float]] = {}
    for fold, test in enumerate(study.protocol.divide(given.known, seed)):
        train = np.setdiff1d(given.known, test)
        values = (built(train) if callable(built) else built)[:, 0]
        arrays = ridge_model_arrays(given.features[train], values[train], given.penalty, given.kernel, given.intercept)
        scans = np.flatnonzero(np.isin(given.person, test))
        found = predict_from_arrays(arrays, given.single[scans])
        observed = values[given.person[scans]]
        part = pd.DataFrame({"fold": str(fold), "person": given.person[scans]})
        part["predicted"], part["observed"] = found.predicted[:, 0], observed
        part["residual"] = found.predicted[:, 0] - observed
        part["guess"] = values[train].mean() - observed
        if len(test) >= FEWEST_SHOWN:
            scores[str(fold)] = _score(target, observed, found.predicted[:, 0])
        pair = (str(negative_class(study)), str(target.positive))
        part["observed_class"] = [pair[int(high)] if target.is_binary else None for high in observed > 0.5]
        parts.append(part)
        similarity[scans] = found.similarity
    return HeldOut(pd.concat(parts, ignore_index=True), similarity, scores)


def _score(target: Target, observed: FloatArray, predicted: FloatArray) -> dict[str, float]:
    """Scores of one fold, by the names of `HeldOut`."""
    score = score_predictions("auc" if target.is_binary else "pearson", observed, predicted)
    summary = {"Scans": float(len(observed)), main_score(target): float(score)}
    if target.is_binary:
        return summary
    error = predicted - observed
    spread = float(error.std(ddof=1)) if len(error) > 1 else 0.0
    return summary | {"MeanError": float(error.mean()), "SD": spread, "MAE": float(np.abs(error).mean())}


def negative_class(study: Study) -> str | None:
    """The class that is coded as 0; None for a target of numbers."""
    target = study.targets[0]
    if not target.is_binary:
        return None
    return next(str(each) for each in study.people.phenotypes[target.name].dropna() if str(each) != target.positive)


def interval_facts(residuals: pd.DataFrame) -> dict[str, object]:
    """Radius of the interval, the coverage that it claims, and how often it held on the folds, each by the others."""
    radius = conformal_radius(residuals["residual"], residuals["person"], LEVEL)
    return {
        "HoldsFor": "a person like these, of the same site",
        "NominalCoverage": radius.level,
        "Radius": radius.value,
        "Scans": len(residuals),
        "MeasuredCoverage": measure_coverage(residuals["residual"], residuals["person"], residuals["fold"], LEVEL),
    }


def class_radii(residuals: pd.DataFrame) -> tuple[dict[str, float], dict[str, float]]:
    """For two classes: how far from a class the score of 90 % of its members stays, and how often it did, by class."""
    radii, held = {}, {}
    for name, part in residuals.groupby("observed_class"):
        radii[str(name)] = conformal_radius(part["residual"], part["person"], LEVEL).value
        held[str(name)] = measure_coverage(part["residual"], part["person"], part["fold"], LEVEL)
    return radii, held
