"""Folds that a user brings: those of an earlier run, a published split, or a test set that was set aside."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.cohort.joining import match_ids
from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import GroupLevel

PERSON = "participant_id"
ROLES = ("test", "train", "excluded")
KEYS = ["repeat", "fold"]
LABELS = {key: f"{key}_label" for key in KEYS}
"""Columns of ``group/folds.tsv`` that keep what an earlier file called them."""
NOT_GIVEN = ("", "n/a")


def load_folds(settings: GroupLevel, people: Collection[str]) -> tuple[pd.DataFrame | None, list[str]]:
    """Read ``--folds-file`` or ``--test-people``. Raises DatasetError."""
    path = settings.folds_file or settings.test_people
    if path is None:
        return None, []
    table = _read(path)
    names = match_ids(table[PERSON].drop_duplicates().tolist(), people)
    table[PERSON] = table[PERSON].replace(names)
    if settings.test_people:
        frame = _set_aside(table, people)
    else:
        frame = _roles(table, path) if "role" in table.columns else _splits(table, path)
    _check(frame, path)
    absent = sorted(set(table[PERSON]) - set(people))
    if len(absent) == table[PERSON].nunique():
        raise DatasetError(f"{path} names no person with a scan here (it names {absent[0]}). Correct {PERSON} there.")
    notes = [f"{len(absent)} people of {path.name} have no scan here, such as {absent[0]}."] if absent else []
    if names:
        one = next(iter(names))
        notes.append(f"{len(names)} people of {path.name} are called otherwise than their scans ({one}, {names[one]}).")
    return frame, notes


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    except (OSError, ValueError, EOFError, zlib.error) as error:  # the latter two of a damaged .gz
        raise DatasetError(f"{path} cannot be read as a table with tabs: {error}") from error
    if PERSON not in table.columns or table.empty:
        raise DatasetError(f"{path} has no column {PERSON}, or no rows. Give a table with tabs and one row per person.")
    table[PERSON] = "sub-" + table[PERSON].str.strip().str.removeprefix("sub-")
    return table


def _roles(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """As ``group/folds.tsv`` has them."""
    lacking = [name for name in KEYS if name not in table.columns]
    if lacking:
        raise DatasetError(f"{path} has roles but no column {lacking[0]}. Give repeat, fold, {PERSON}, role.")
    wrong = table.loc[~table["role"].isin(ROLES), "role"]
    if len(wrong):
        raise DatasetError(f"{path} has the role '{wrong.iloc[0]}'. Roles are {', '.join(ROLES)}.")
    inner = pd.to_numeric(table["inner_fold"], errors="coerce") if "inner_fold" in table.columns else -1
    ranks = [table[key].map(_ranks(table[key])) for key in reversed(KEYS)]
    named = {key: table[label] for key, label in LABELS.items() if label in table.columns}
    frame = table.assign(inner_fold=inner, **named)[[*KEYS, PERSON, "role", "inner_fold"]]
    return frame.iloc[np.lexsort(ranks)].fillna({"inner_fold": -1}).astype({"inner_fold": int})


def _ranks(labels: pd.Series) -> dict[str, int]:
    """Place of every label, numbers in it by their size: fold 2 comes before fold 10."""
    pieces = {label: re.split(r"(\d+)", label) for label in set(labels)}
    keys = {label: [int(one) if at % 2 else one for at, one in enumerate(each)] for label, each in pieces.items()}
    return {label: rank for rank, label in enumerate(sorted(keys, key=lambda label: keys[label]))}


def _splits(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A person by split table: each further column is a repeat and names the fold that tests the person."""
    splits = [name for name in table.columns if name != PERSON]
    if not splits:
        raise DatasetError(f"{path} has no column of folds. Add one per repeat, with the fold that tests the person.")
    parts = []
    for split in splits:
        own = table.loc[~table[split].str.strip().isin(NOT_GIVEN)]
        labels = own[split].str.strip()
        for fold in _ranks(labels[labels != "train"]):
            role = labels.eq(fold).map({True: "test", False: "train"})
            parts.append(pd.DataFrame({"repeat": split, "fold": fold, PERSON: own[PERSON], "role": role}))
    if not parts:
        raise DatasetError(f"{path} has no test person: no fold is other than 'train'.")
    return pd.concat(parts, ignore_index=True).assign(inner_fold=-1)


def _set_aside(table: pd.DataFrame, people: Collection[str]) -> pd.DataFrame:
    tested = set(table[PERSON])
    everyone = sorted(set(people) | tested)
    role = ["test" if person in tested else "train" for person in everyone]
    return pd.DataFrame({"repeat": "0", "fold": "0", PERSON: everyone, "role": role, "inner_fold": -1})


def _check(frame: pd.DataFrame, path: Path) -> None:
    twice = frame[frame.duplicated([*KEYS, PERSON])]
    if len(twice):
        raise DatasetError(f"{path} names {twice[PERSON].iloc[0]} twice in one fold. Keep one row.")
    tested = frame[frame["role"] == "test"]
    again = tested[tested.duplicated(["repeat", PERSON])]
    if len(again):
        raise DatasetError(
            f"{path} tests {again[PERSON].iloc[0]} twice in one repeat; give each repeat a label of its own."
        )
