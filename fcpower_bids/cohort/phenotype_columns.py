"""The columns that an analysis uses: whether they exist and can be used, and which are the targets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.cohort.inclusion import NO_SESSION, TARGET, VALUE, Exclusion
from fcpower_bids.cohort.people import Phenotypes, describe_unknown, load_phenotypes
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.records import CALLED
from fcpower_bids.settings import Group, Settings

LARGEST, SMALLEST, LEAST_SPREAD = 1e15, 1e-30, 1e-10
"""Sizes of values, and their spread as a share of these, beyond which scores would be errors of rounding."""
CODES = frozenset(
    [int(digit * length) for digit in "789" for length in (2, 3, 4, 5)]
    + [-int(digit * length) for digit in "789" for length in (1, 2, 3, 4, 5)]
)
"""99, 999, 9999, 99999, the same of 7 and 8, their negatives, and -7, -8, -9."""
COVARIATE, PART = "covariate", "part"
"""Roles of a column beside `TARGET`."""
FROM_SCANS = ("minutes", "scans", "degrees_of_freedom", "mean_fd")


def resolve_columns(phenotypes: Phenotypes, people: Collection[str], settings: Group) -> Phenotypes:
    """Return the phenotypes of people ready for an analysis, their defaults being its targets. Raises DatasetError.

    Targets, covariates and parts of composites are numbers where they can be; composites are not among the targets.
    """
    frame = phenotypes.frame.loc[[person for person in people if person in phenotypes.frame.index]].copy()
    composites = settings.composites
    parts = tuple(dict.fromkeys(part for columns in composites.values() for part in columns))
    groups = tuple(name for name in (settings.family_column, settings.site_column) if name)
    # Motion and amount of the scans are covariates without being in any table.
    covariates = tuple(name for name in settings.covariates if name not in FROM_SCANS or name in frame.columns)
    predicted = tuple(dict.fromkeys((*settings.target_columns, *parts)))
    known = [str(name) for name in frame.columns]
    asked = [name for name in dict.fromkeys((*predicted, *covariates, *groups)) if name not in known]
    problems = [f"No phenotype table has a column {describe_unknown(name, known)}" for name in asked]
    problems += [
        phenotypes.conflicts[name]
        for name in dict.fromkeys((*predicted, *covariates, *groups))
        if name in phenotypes.conflicts
    ]
    for name, columns in composites.items():
        if name in frame.columns:
            problems.append(f"The composite '{name}' has the name of a column. Give it another name.")
        if len(set(columns)) < 2:
            problems.append(f"The composite '{name}' needs two different columns or more, as NAME=COLUMN,COLUMN.")
    cut = {name: column for name, (column, _) in settings.classes.items()}
    made_of = tuple(dict.fromkeys((*cut.values(), *predicted)))
    problems += [f"'{name}' is both target and covariate; name it once." for name in made_of if name in covariates]
    problems += [f"'{name}' is both target and site or family; name it once." for name in made_of if name in groups]
    problems += filter(None, (_fault_of_levels(frame[name]) for name in groups if name in frame))
    notes = [
        f"The covariate '{name}' is the column of the phenotype tables, and not what is known from the scans."
        for name in covariates
        if name in FROM_SCANS
    ]
    notes += [why for name, why in phenotypes.conflicts.items() if name.casefold() in CALLED]  # nobody's is known
    spoilt = set(phenotypes.conflicts) | {column for name, column in cut.items() if name in phenotypes.conflicts}
    for name in dict.fromkeys((*made_of, *covariates)):
        if name in frame.columns and name not in spoilt and cut.get(name) not in spoilt:
            frame[name] = _facts_of(frame[name])[0]
            role = PART if name in parts else TARGET if name in predicted else COVARIATE
            if fault := _fault_of(frame[name], phenotypes.frame[name], role):
                problems, spoilt = [*problems, fault], spoilt | {name}
            levels = sorted({str(value) for value in frame[name].dropna()})
            if frame[name].dtype != np.float64 and len(levels) == 2:
                notes.append(f"{name} is coded {levels[0]} = 0, {levels[1]} = 1.")
    if problems:
        raise DatasetError("\n".join(problems))
    targets, rows = list(settings.target_columns), list[Exclusion]()
    if not predicted:
        targets, rows, about_targets = _default_targets(phenotypes, frame, (*covariates, *groups))
        notes += about_targets
    missing = frame[list(dict.fromkeys((*targets, *parts, *covariates, *groups)))].isna()
    for person in missing.index[missing.any(axis=1)]:
        names = ", ".join(missing.columns[missing.loc[person].to_numpy()])
        rows.append(Exclusion(str(person), "n/a", VALUE, f"missing: {names}"))
    frame = frame.drop(columns=[name for name in phenotypes.conflicts if name in frame])
    codes = (row for row in phenotypes.rows if row.participant_id in set(people))
    return Phenotypes(frame, tuple(dict.fromkeys(targets)), rows=(*codes, *rows), notes=tuple(notes))


def _facts_of(column: pd.Series) -> tuple[pd.Series, bool, str]:
    """Numbers where there is nothing else, whether most are numbers, and who has the first word, with the remedy."""
    numbers = pd.to_numeric(column, errors="coerce")
    words = column[column.notna() & numbers.isna()]
    if words.empty:
        return numbers.astype(float), True, ""
    mostly = bool(2 * numbers.notna().sum() > column.notna().sum())
    remedy = f" Correct it, or set missing_values '{column.name}={words.iloc[0]}' in --config-file if it means missing."
    return column, mostly, f"{words.index[0]} has '{words.iloc[0]}'.{remedy if mostly else ''}"


def _fault_of(column: pd.Series, of_all: pd.Series, role: str) -> str:
    """Why a column cannot be a target, a part of a composite or a covariate; empty where it can."""
    column, mostly, word = _facts_of(column)
    name, known, counts = column.name, column.dropna(), column.value_counts()
    if word and (fault := _fault_of_levels(column)):
        return fault
    if known.empty:
        stranger = of_all.first_valid_index()
        strangers = "" if stranger is None else f"correct participant_id, as others have it, such as {stranger!s}, or "
        return f"The column '{name}' is missing for all {len(column)} people with scans; {strangers}leave it out."
    if role != COVARIATE and len(counts) == 1:
        return f"The target '{name}' is constant ({known.iloc[0]}) over all people; leave it out."
    if role != COVARIATE and word and (role == PART or len(counts) > 2):
        allowed = "numbers" if role == PART else "numbers or text of two levels"
        return f"The target '{name}' is not numeric: {word} Only {allowed} can be used."
    is_code = not word and counts.index[-1] in CODES  # of which the next sentence speaks
    if role == TARGET and len(counts) == 2 and counts.iloc[-1] == 1 and counts.iloc[0] > 2 and not is_code:
        person = column.index[column == counts.index[-1]][0]
        return (
            f"The target '{name}' has two values, and {person} alone has one of them ({column[person]}). "
            "A class of one person can be learned or tested, not both. Correct it, or leave it out."
        )
    if word and mostly and len(counts) > 2:  # as levels, every number would be a column of its own
        return f"The covariate '{name}' has words among its numbers: {word}"
    if word:
        return ""
    sizes, spread = column.abs(), float(column.max() - column.min())
    largest, place = float(sizes.max()), int(np.nanargmax(sizes))
    who, value = column.index[place], f"{float(column.iloc[place]):g}"
    why = f"cannot be computed with ({who} has {value}): its values are too large, too small, or alike but for rounding"
    if not (largest > LARGEST or 0 < largest < SMALLEST or 0 < spread < LEAST_SPREAD * largest):
        suspect = known.isin(CODES)
        low, high = known[~suspect].min(), known[~suspect].max()  # NaN where none is left
        above = (known > 2 * high - low) & (known > 2 * high)
        below = (known < 0) & ((low >= 0) | ((known < 2 * low - high) & (known < 2 * low)))
        if (apart := known[suspect & (above | below)]).empty:
            return ""
        who, value = apart.index[0], f"{apart.iloc[0]:g}"
        why = f"has {value} ({who}), which looks like a code for a missing value"
    return (
        f"The column '{name}' {why}. Correct it, give it in another unit, or set missing_values {name}={value} in "
        "--config-file if that means missing."
    )


def _fault_of_levels(column: pd.Series) -> str:
    """Say that levels differ in capitals, blanks or ``.0`` alone: one site or family would be counted as two."""
    spellings: dict[str, list[str]] = {}
    for level in sorted(map(str, column.dropna().unique())):
        spellings.setdefault(re.sub(r"(?<=\d)\.0+$", "", level.strip()).casefold(), []).append(level)
    named = ", ".join(sorted(level for levels in spellings.values() if len(levels) > 1 for level in levels))
    return named and f"The column '{column.name}' writes one level in several ways ({named}); use one of them."


def _default_targets(
    phenotypes: Phenotypes, frame: pd.DataFrame, taken: Sequence[str]
) -> tuple[list[str], list[Exclusion], list[str]]:
    """All numeric columns; those that cannot be used, with the reason."""
    targets, rows, empty = list[str](), list[Exclusion](), list[str]()
    for name in (default for default in phenotypes.defaults if default not in taken):
        numbers, mostly, word = _facts_of(frame[name])
        fault = phenotypes.conflicts.get(name) or (mostly and word and f"It has words among its numbers: {word}")
        fault = fault or _fault_of(frame[name], phenotypes.frame[name], TARGET)
        is_text = not mostly or (not word and frame[name].dtype != np.float64)  # or has the numbers of identifiers
        if is_text and name not in phenotypes.conflicts:
            continue
        if not fault:
            targets.append(name)
        elif name not in phenotypes.conflicts and numbers.nunique() < 2:
            empty.append(name)
        else:
            rows.append(Exclusion(NO_SESSION, NO_SESSION, TARGET, f"{name} is not predicted: {fault}"))
    notes = [f"No targets were named, so they are all numeric columns: {', '.join(targets) or 'none'}."]
    notes += [f"Constant or missing columns are no targets: {', '.join(empty)}."] if empty else []
    return targets, rows, [*notes, *(row.reason for row in rows)] if phenotypes.defaults else []


@cache
def measure_sets() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Shipped sets of measures by name: a description, and the columns."""
    path = Path(str(resources.files("fcpower_bids"))) / "data" / "measures.json"
    return {name: (str(entry["about"]), tuple(entry["columns"])) for name, entry in read_json(path).items()}


def name_columns(settings: Settings) -> tuple[str, ...]:
    """Targets with the columns of shipped sets that the tables have in the place of the sets. Raises DatasetError."""
    sets = measure_sets()
    if not set(sets) & {part.strip() for item in settings.group.targets for part in (item, item.partition("=")[2])}:
        return settings.group.targets
    known = [str(name) for name in load_phenotypes(settings, {}).frame.columns]
    targets: list[str] = []
    for name in settings.group.targets:
        composite, _, part = name.partition("=")
        if part.strip() in sets:
            targets.append(f"{composite}={','.join(_there(part.strip(), known, 2))}")
        else:
            targets += _there(name, known, 1) if name in sets and name not in known else [name]
    return tuple(dict.fromkeys(targets))


def _there(name: str, known: Sequence[str], fewest: int) -> list[str]:
    columns = measure_sets()[name][1]
    there = [column for column in columns if column in known]
    if len(there) < fewest:
        raise DatasetError(
            f"Of the {len(columns)} columns of '{name}' ({', '.join(columns[:3])}, ...) the phenotype tables have "
            f"{len(there)}, and {fewest} {'is' if fewest == 1 else 'are'} needed. Name the table that has them with "
            "--phenotypes."
        )
    return there


def describe_sets(settings: Group) -> Iterator[str]:
    """Say how many columns of a shipped set are there, and which are not."""
    used = {*settings.target_columns, *(part for parts in settings.composites.values() for part in parts)}
    for name, (about, columns) in measure_sets().items():
        there, missing = ([column for column in columns if (column in used) == is_there] for is_there in (True, False))
        if len(there) > 1:
            lacking = f"; missing: {', '.join(missing)}" if missing else ""
            yield f"{name}: {len(there)} of {len(columns)} columns are there{lacking} ({about})."
