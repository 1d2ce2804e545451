"""The folds that a user brings: a ``folds.tsv``, or a table with a row per person and a column of folds per repeat."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.cohort.people import PERSON, match_ids, read_rows
from fcpower_bids.errors import DatasetError
from fcpower_bids.records import label_order
from fcpower_bids.settings import GroupLevel

ROLES = ("test", "train", "excluded")
KEYS = ["repeat", "fold"]
LABELS = {key: f"{key}_label" for key in KEYS}
"""Columns of ``group/folds.tsv`` that keep what an earlier file called them."""


def load_folds(settings: GroupLevel, people: Collection[str]) -> tuple[pd.DataFrame | None, list[str]]:
    """Read ``--folds-file``. Raises DatasetError."""
    path = settings.folds_file
    if path is None:
        return None, []
    table = read_rows(path).fillna("")
    if table.empty:
        raise DatasetError(f"{path} has a header and no people. Give one row per person.")
    names = match_ids(table[PERSON].drop_duplicates().tolist(), people)
    table[PERSON] = table[PERSON].replace(names)
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
    """Place of every label: fold 2 comes before fold 10."""
    return {label: rank for rank, label in enumerate(sorted(set(labels), key=label_order))}


def _splits(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A person by split table: each further column is a repeat and names the fold that tests the person."""
    splits = [name for name in table.columns if name != PERSON]
    if not splits:
        raise DatasetError(f"{path} has no column of folds. Add one per repeat, with the fold that tests the person.")
    parts = []
    for split in splits:
        own = table.loc[table[split] != ""]
        labels = own[split]
        for fold in _ranks(labels[labels != "train"]):
            role = labels.eq(fold).map({True: "test", False: "train"})
            parts.append(pd.DataFrame({"repeat": split, "fold": fold, PERSON: own[PERSON], "role": role}))
    if not parts:
        raise DatasetError(f"{path} has no test person: no fold is other than 'train'.")
    return pd.concat(parts, ignore_index=True).assign(inner_fold=-1)


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
