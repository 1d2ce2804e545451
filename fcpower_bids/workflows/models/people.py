"""What tables say of new people: age and sex, from the user's table or that of the dataset, and known targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.analyses.models.reference import SEX, is_female
from fcpower_bids.cohort.phenotypes import read_people_table
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.identity import people_tables
from fcpower_bids.settings import Selection


def read_people(output_dir: Path, phenotypes: Path | None) -> dict[str, dict[str, float]]:
    """Return ``age`` and ``female`` by person, as far as they are known.

    Parameters
    ----------
    output_dir : Path
        Of the participant level; its description leads to ``participants.tsv`` of the dataset.
    phenotypes : Path or None
        A table of the user, which comes first.

    Raises
    ------
    DatasetError
        A table cannot be read, or that of the user has no ages.
    """
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
    """Read one column of numbers by person; its case does not matter.

    Raises
    ------
    DatasetError
        The table cannot be read, has no such column, or no number in it.
    """
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
