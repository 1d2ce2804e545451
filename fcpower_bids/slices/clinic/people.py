"""Tables of new people: age and sex, known targets, and how well these are predicted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from fcpower_bids.cohort.phenotypes import read_people_table
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.identity import people_tables
from fcpower_bids.settings import Selection
from fcpower_bids.slices.clinic.calibration import SEX, is_female


def read_people(output_dir: Path, phenotypes: Path | None) -> dict[str, dict[str, float]]:
    """Return ``age`` and ``female`` by person, as far as they are known. Raises DatasetError."""
    found: dict[str, dict[str, float]] = {"age": {}, "female": {}}
    for path in people_tables(output_dir):
        table = _read(path)
        found["age"] |= _numbers(_find(table, ("age",)))
        found["female"] |= _numbers(is_female(_find(table, SEX)))
    if phenotypes is not None:
        found["age"] |= read_column(phenotypes, "age")
        found["female"] |= _numbers(is_female(_find(_read(phenotypes), SEX)))
    return found


def read_column(path: Path, name: str) -> dict[str, float]:
    """Read one column of numbers by person; its case does not matter. Raises DatasetError."""
    table = _read(path)
    if name.lower() not in (str(column).lower() for column in table.columns):
        raise DatasetError(f"{path} has no column '{name}'. Columns: {', '.join(map(str, table.columns))}.")
    found = _numbers(_find(table, (name.lower(),)))
    if not found:
        raise DatasetError(f"{path} has no number in its column '{name}'. Correct it, or leave the table out.")
    return found


def read_known(output_dir: Path, phenotypes: Path | None, name: str) -> dict[str, float]:
    """Values of one column by person, of the tables that have it: those of the dataset, then that of the user."""
    found: dict[str, float] = {}
    for path in (*people_tables(output_dir), *([phenotypes] if phenotypes else [])):
        found |= _numbers(_find(_read(path), (name.lower(),)))
    return found


def _read(path: Path) -> pd.DataFrame:
    """A table as the group level reads it, one row per person; nothing is taken for a code: some people are 77."""
    return read_people_table(path, Selection(), []).frame


def _find(table: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    """The first column of one of these names in any case; of missing values where there is none."""
    columns = {str(column).lower(): table[column] for column in table.columns}
    return next((columns[name] for name in names if name in columns), pd.Series(np.nan, table.index))


def _numbers(values: pd.Series) -> dict[str, float]:
    """The finite numbers among the values, by person."""
    numbers = pd.to_numeric(values, errors="coerce")
    return {str(person): float(value) for person, value in numbers.items() if np.isfinite(value)}


RARE = 0.01
"""Probability below which so few values inside their intervals are no chance."""


@dataclass(frozen=True)
class KnownValues:
    """Predictions of people whose value is known and that the model has not seen."""

    # people, inside: how many, and of how many the value lies in the interval
    people: int
    inside: int
    # mean_error, mean_absolute_error: predicted minus known
    mean_error: float
    mean_absolute_error: float
    # whether so few inside would come of the claimed coverage in less than 1 of 100 cases, were people independent
    fails: bool


def check_known_values(predicted: ArrayLike, known: ArrayLike, radius: ArrayLike, level: float) -> KnownValues | None:
    """Compare predictions (n,) with known values (n,), within radius (n,) or one for all."""
    error = np.asarray(predicted, dtype=float) - np.asarray(known, dtype=float)
    held, there = np.abs(error) <= np.asarray(radius, dtype=float), np.isfinite(error)
    if not there.any():
        return None
    error, inside = error[there], int(held[there].sum())
    fails = bool(stats.binom.cdf(inside, error.size, level) < RARE)
    return KnownValues(error.size, inside, float(error.mean()), float(np.abs(error).mean()), fails)
