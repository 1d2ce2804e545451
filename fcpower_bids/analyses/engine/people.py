"""Who takes part in a prediction: one row per person, with scans, relatives, site and covariates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.representations import scans_without_features
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.records import Cohort
from fcpower_bids.settings import GroupLevel

AMOUNTS = {
    "minutes": "minutes of cleaned series",
    "degrees_of_freedom": "degrees of freedom of the series",
    "scans": "number of scans",
    "mean_fd": "mean FD",
}
"""Covariates that no table has to hold: they are known from the scans."""


@dataclass(frozen=True, eq=False)
class People:
    """Everyone whose features and covariates are known, in the order of their names."""

    names: tuple[str, ...]  # ``participant_id`` of n people
    scans: tuple[Rows, ...]  # rows of the cohort's scans of each person
    phenotypes: pd.DataFrame  # their rows
    # families, sites: (n,), or None: none where no column is named
    families: NDArray[np.str_] | None
    sites: NDArray[np.str_] | None
    covariates: FloatArray  # (n, c): numbers, and one indicator per further class of a text column
    facts: Mapping[str, Any]  # who was left out and why, for the sidecar


def choose_people(
    cohort: Cohort, settings: GroupLevel, representations: Sequence[str], covariates: Sequence[str]
) -> People:
    """Choose the people that every representation can describe, for the same folds. Raises NotInCohort, Unfit."""
    usable = ~scans_without_features(cohort, representations)
    scans: dict[str, list[int]] = {}
    for row, name in enumerate(cohort.scans["participant_id"].astype(str)):
        if usable[row]:
            scans.setdefault(name, []).append(row)
    everyone = sorted(set(cohort.scans["participant_id"].astype(str)))
    table = cohort.phenotypes.copy()
    table.index = table.index.astype(str)
    numbers = covariate_columns(table, cohort.scans, covariates, (settings.site_column,))
    complete = set(numbers.index[numbers.notna().all(axis=1)])
    left_out = {
        "PeopleWithoutPhenotypes": [name for name in everyone if name not in table.index],
        "PeopleWithoutEmbedding": [name for name in everyone if name not in scans],
        "PeopleWithoutCovariates": [name for name in everyone if name in table.index and name not in complete],
    }
    names = [name for name in everyone if name in scans and name in complete]
    if table.empty:
        raise NotInCohort("There are no phenotypes to predict; name their tables with --phenotypes.")
    if not names:
        raise Unfit("No person has scans, phenotypes and covariates; check participant_id in the phenotype tables.")
    table, numbers = table.loc[names], numbers.loc[names]
    return People(
        names=tuple(names),
        scans=tuple(np.array(scans[name], dtype=np.intp) for name in names),
        phenotypes=table,
        families=join_families(labels_of(table, settings.family_column, "family"), names, cohort.alike),
        sites=labels_of(table, settings.site_column, "site"),
        covariates=numbers.to_numpy(dtype=float).reshape(len(names), -1),
        facts={key: value for key, value in left_out.items() if value},
    )


def person_amounts(scans: pd.DataFrame) -> pd.DataFrame:
    """How much of everyone was scanned and how they moved: `AMOUNTS` by person; what is not known is NaN."""
    scans = scans.assign(participant_id=scans["participant_id"].astype(str))
    groups = scans.groupby("participant_id")
    found = pd.DataFrame({"minutes": groups["seconds"].sum(min_count=1) / 60, "scans": groups.size().astype(float)})
    found["mean_fd"] = groups["mean_fd"].mean()
    known = "degrees_of_freedom" in scans
    found["degrees_of_freedom"] = groups["degrees_of_freedom"].sum(min_count=1) if known else np.nan
    return found


def join_families(
    families: NDArray[np.str_] | None, names: Sequence[str], alike: Sequence[tuple[str, str]]
) -> NDArray[np.str_] | None:
    """Make one family of people who seem to share a scan, and of their families; shape (n,), None without any."""
    place = {name: row for row, name in enumerate(names)}
    pairs = [(place[one], place[other]) for one, other in alike if one in place and other in place]
    if not pairs:
        return families
    joined = np.array(names, dtype=str) if families is None else families.copy()
    for one, other in pairs:
        joined[joined == joined[other]] = joined[one]
    return joined


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of the phenotype tables; an `Unfit` lists those that are there."""
    if name not in table.columns:
        known = ", ".join(map(str, table.columns)) or "none"
        raise Unfit(f"There is no column '{name}' in the phenotype tables. Columns: {known}.")
    return table[name]


def labels_of(table: pd.DataFrame, column: str | None, kind: str) -> NDArray[np.str_] | None:
    """Return the families or sites of a column, shape (n,); None without one. An `Unfit` names who has none."""
    if column is None:
        return None
    labels = column_of(table, column)
    missing = labels.isna() | labels.astype(str).str.strip().isin(["", "n/a"])
    if missing.any():
        raise Unfit(f"{labels.index[missing][0]} has no {kind} in the column '{column}'; give one or exclude.")
    return labels.astype(str).to_numpy(dtype=str)


def covariate_columns(
    table: pd.DataFrame, scans: pd.DataFrame, names: Sequence[str], classes: Collection[str | None]
) -> pd.DataFrame:
    """Numeric columns; text, and what is named as classes, becomes indicators of all classes but the first."""
    columns = []
    for name in names:
        if name in AMOUNTS and name not in table.columns:
            columns.append(person_amounts(scans)[[name]].reindex(table.index))
            continue
        values = column_of(table, name)
        numbers = pd.to_numeric(values, errors="coerce")
        if name not in classes and numbers.notna().sum() == values.notna().sum():
            columns.append(numbers.astype(float).to_frame())
        else:
            indicators = pd.get_dummies(values, prefix=name, drop_first=True, dtype=float)
            columns.append(indicators.where(values.notna(), np.nan))
    return pd.concat(columns, axis=1) if columns else pd.DataFrame(index=table.index)
