"""People of the scans and people of the phenotype tables: who is whom, and how many match."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from fcpower_bids.cohort.phenotypes import Phenotypes
from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Assembly


def match_people(phenotypes: Phenotypes, people: Collection[str]) -> tuple[Phenotypes, int]:
    """Call people of the tables as the scans do where only leading zeros or capitals differ.

    Spreadsheets turn ``0012`` into ``12``. A name is changed only where it has no scan of its own, and where there is
    exactly one candidate on both sides.

    Parameters
    ----------
    phenotypes : Phenotypes
    people : collection of str
        ``sub-0012`` of the scans.

    Returns
    -------
    phenotypes : Phenotypes
    renamed : int
        How many names were changed.
    """
    there = [str(name) for name in phenotypes.frame.index]
    free = [name for name in people if name not in set(there)]
    scanned = {_bare(name): name for name in free}
    counts = Counter(map(_bare, people)), Counter(map(_bare, there))
    names = {
        name: scanned[_bare(name)]
        for name in there
        if name not in people and _bare(name) in scanned and all(each[_bare(name)] == 1 for each in counts)
    }
    if not names:
        return phenotypes, 0
    example = next(iter(names))
    note = (
        f"{len(names)} participant_id of the phenotype tables match scans only without leading zeros or capitals "
        f"(such as {example} and {names[example]})."
    )
    rows = tuple(
        row._replace(participant_id=names.get(row.participant_id, row.participant_id)) for row in phenotypes.rows
    )
    frame = phenotypes.frame.rename(index=names).sort_index()
    return replace(phenotypes, frame=frame, rows=rows, notes=(*phenotypes.notes, note)), len(names)


def _bare(name: str) -> str:
    """``sub-0012A`` and ``sub-12a`` alike."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", name.removeprefix("sub-")).casefold()


def count_people(phenotypes: Phenotypes, people: Collection[str], renamed: int, settings: Assembly) -> dict[str, int]:
    """Count the people with scans, in the tables, and in both.

    Raises
    ------
    DatasetError
        Fewer than ``min_matched`` of the smaller side match.
    """
    tables = {str(name) for name in phenotypes.frame.index}
    matched = len(tables & set(people))
    counts = {"scanned": len(people), "phenotypes": len(tables), "matched": matched, "renamed": renamed}
    if tables and matched < settings.min_matched * min(len(people), len(tables)):
        raise DatasetError(
            f"{len(people)} people have scans and {len(tables)} are in the phenotype tables, but only {matched} are in "
            f"both (scans such as {min(set(people) - tables)}, tables such as {min(tables - set(people))}). Correct "
            "the participant_id, or accept it with --min-matched 0."
        )
    return counts


def describe_join(counts: Mapping[str, int]) -> str:
    """``172 people with scans, 172 in the phenotype tables, 72 in both``."""
    return (
        f"{counts['scanned']} people with scans, {counts['phenotypes']} in the phenotype tables, "
        f"{counts['matched']} in both"
    )
