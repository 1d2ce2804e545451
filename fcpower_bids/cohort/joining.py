"""Matching of people between scans and phenotype tables."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Assembly, GroupLevel

FEWEST_MATCHED = 0.5
"""Share of the people with scans and phenotypes below which the tables are of others, or the names are wrong."""
WITH = "with "
"""Before the name of a target: how many of the people in both have it."""


def match_ids(there: Sequence[str], people: Collection[str]) -> dict[str, str]:
    """Name people of a table as the scans do where zeros, capitals or signs differ, if exactly one fits."""
    names: dict[str, str] = {}
    for key in (_without_zeros, _without_signs):
        names |= _unique(there, people, names, key)
    return names


def _unique(
    there: Sequence[str], people: Collection[str], known: Mapping[str, str], key: Callable[[str], str]
) -> dict[str, str]:
    here, taken = set(there), set(known.values())
    counts = Counter(map(key, people)), Counter(map(key, there))
    scanned = {key(name): name for name in people if name not in here and name not in taken and key(name)}
    found = {}
    for name in (one for one in there if one not in people and one not in known and key(one) in scanned):
        if all(each[key(name)] == 1 for each in counts):
            found[name] = scanned[key(name)]
    return found


def _without_zeros(name: str) -> str:
    """``sub-0012A`` and ``sub-12a`` alike."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", name.removeprefix("sub-")).casefold()


def _without_signs(name: str) -> str:
    return re.sub(r"[\W_]", "", _without_zeros(name))


def describe_matches(names: Mapping[str, str]) -> str:
    """Say which ids were taken for those of scans."""
    example = next(iter(names))
    return (
        f"{len(names)} participant_id of the phenotype tables match scans only without leading zeros, capitals or "
        f"underscores (such as {example} and {names[example]})."
    )


def count_people(tables: Collection[str], people: Collection[str], renamed: int, settings: Assembly) -> dict[str, int]:
    """Count the people with scans, in the tables, and in both. Raises DatasetError."""
    named = {str(name) for name in tables}
    matched = len(named & set(people))
    counts = {"scanned": len(people), "phenotypes": len(named), "matched": matched, "renamed": renamed}
    if named and matched < FEWEST_MATCHED * min(len(people), len(named)):
        raise DatasetError(
            f"{len(people)} people have scans and {len(named)} are in the phenotype tables, but only {matched} are in "
            f"both (scans such as {min(set(people) - named)}, tables such as {min(named - set(people))}). Correct "
            "the participant_id."
        )
    return counts


def count_values(frame: pd.DataFrame, targets: Collection[str]) -> dict[str, int]:
    """Count the people who have each target."""
    return {f"{WITH}{name}": int(frame[name].notna().sum()) for name in targets if name in frame}


def describe_join(counts: Mapping[str, int]) -> str:
    """``172 people with scans, 172 in the phenotype tables, 72 in both, 70 of them with age``."""
    known = {name: n for name, n in counts.items() if name.startswith(WITH)}
    fewer = [f"{n} of them {name}" for name, n in known.items() if n < counts["matched"]]
    some = fewer if len(fewer) <= 3 else [*fewer[:2], f"and fewer than all have {len(fewer) - 2} more"]
    return ", ".join(
        [
            f"{counts['scanned']} people with scans",
            f"{counts['phenotypes']} in the phenotype tables",
            f"{counts['matched']} in both",
            *some,
        ]
    )


PERSON = "participant_id"
ROLES = ("test", "train", "excluded")
KEYS = ["repeat", "fold"]
LABELS = {key: f"{key}_label" for key in KEYS}
"""Columns of ``group/folds.tsv`` that keep what an earlier file called them."""
NOT_GIVEN = ("", "n/a")


def load_folds(settings: GroupLevel, people: Collection[str]) -> tuple[pd.DataFrame | None, list[str]]:
    """Read ``--folds-file``. Raises DatasetError."""
    path = settings.folds_file
    if path is None:
        return None, []
    table = _read(path)
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
