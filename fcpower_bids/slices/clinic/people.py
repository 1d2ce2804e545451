"""Age and sex of new people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

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
        table = _read(phenotypes)
        if "age" not in (str(column).lower() for column in table.columns):
            raise DatasetError(f"{phenotypes} has no column 'age'. Columns: {', '.join(map(str, table.columns))}.")
        ages = _numbers(_find(table, ("age",)))
        if not ages:
            raise DatasetError(f"{phenotypes} has no number in its column 'age'. Correct it, or leave the table out.")
        found["age"] |= ages
        found["female"] |= _numbers(is_female(_find(table, SEX)))
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
