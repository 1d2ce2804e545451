"""Age and sex of new people, and their known values of the target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.clinic.calibration import SEX, is_female
from fcpower_bids.cohort.people import Source, load_people, tables_of
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.identity import people_tables

KNOWN = "known"
"""The target, where the tables have it."""
Scans = Collection[tuple[str, str]]
"""Person and session."""


def read_people(
    output_dir: Path, phenotypes: Path | None, scans: Scans, target: str = ""
) -> dict[str, dict[tuple[str, str], float]]:
    """Return ``age``, ``female`` and the target at each scan, as far as they are known. Raises DatasetError."""
    found: dict[str, dict[tuple[str, str], float]] = {"age": {}, "female": {}, KNOWN: {}}
    if not scans:
        return found
    for dataset in dict.fromkeys(path.parent for path in people_tables(output_dir)):
        _add(found, tables_of(dataset), scans, target, dataset)
    if phenotypes is not None:
        names = _add(found, [Source(phenotypes, is_given=True)], scans, target)
        if "age" not in map(str.lower, names):
            raise DatasetError(f"{phenotypes} has no column 'age'. Columns: {', '.join(names)}.")
        if not any(scan in found["age"] for scan in scans):
            raise DatasetError(f"{phenotypes} has no number in its column 'age'. Correct it, or leave the table out.")
    return found


def _add(
    found: dict[str, dict[tuple[str, str], float]],
    sources: Sequence[Source],
    scans: Scans,
    target: str,
    dataset: Path | None = None,
) -> list[str]:
    """Add what tables say of the scans, and return their columns; no number is guessed to be a code: some are 77."""
    names: dict[str, None] = {}
    for session in {session: None for _, session in scans}:
        scanned = {person: (session,) for person, other in scans if other == session}
        people = load_people(sources, scanned, dataset, guess_codes=False)
        names |= dict.fromkeys(map(str, people.frame.columns))
        table = people.frame.drop(columns=[name for name in people.conflicts if name in people.frame])
        table = table.loc[[person for person in table.index if person in scanned]]
        values_of = {"age": _find(table, ("age",)), "female": is_female(_find(table, SEX))}
        values_of[KNOWN] = table[target] if target in table else pd.Series(np.nan, table.index)
        for key, values in values_of.items():
            numbers = pd.to_numeric(values, errors="coerce")
            found[key] |= {(str(who), session): float(value) for who, value in numbers.items() if np.isfinite(value)}
    return list(names)


def _find(table: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    """The first column of one of these names in any case; of missing values where there is none."""
    columns = {str(column).lower(): table[column] for column in table.columns}
    return next((columns[name] for name in names if name in columns), pd.Series(np.nan, table.index))
