"""Matching of people between scans and phenotype tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd

from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Assembly

LONG_NUMBER = 4
"""Digits from which on a number alone identifies a person, as the SUB_ID of ABIDE does."""
WITH = "with "
"""Before the name of a target: how many of the people in both have it."""


def match_ids(there: Sequence[str], people: Collection[str]) -> dict[str, str]:
    """Call people of a table as the scans do where only zeros, capitals, signs or the text before a number differ.

    Spreadsheets turn ``0012`` into ``12``; ABIDE has ``Pitt_0050003`` and ``50003`` for ``sub-Pitt0050003``. A name is
    changed only where it has no scan of its own, and where there is exactly one candidate on both sides.
    """
    names: dict[str, str] = {}
    for key in (_without_zeros, _without_signs, _number):
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
        scan, is_only = scanned[key(name)], all(each[key(name)] == 1 for each in counts)
        if is_only and (key is not _number or _bare(name).isdigit() or _bare(scan).isdigit()):
            found[name] = scan
    return found


def _bare(name: str) -> str:
    return name.removeprefix("sub-")


def _without_zeros(name: str) -> str:
    """``sub-0012A`` and ``sub-12a`` alike."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", _bare(name)).casefold()


def _without_signs(name: str) -> str:
    return re.sub(r"[\W_]", "", _without_zeros(name))


def _number(name: str) -> str:
    """The number that a name ends with, if it is long; nothing matches without."""
    found = re.search(rf"\d{{{LONG_NUMBER},}}$", _bare(name))
    return found[0].lstrip("0") if found else ""


def describe_matches(names: Mapping[str, str]) -> str:
    """Say which ids were taken for those of scans."""
    example = next(iter(names))
    return (
        f"{len(names)} participant_id of the phenotype tables match scans only without leading zeros, capitals, "
        f"underscores or what is before a number (such as {example} and {names[example]})."
    )


def count_people(tables: Collection[str], people: Collection[str], renamed: int, settings: Assembly) -> dict[str, int]:
    """Count the people with scans, in the tables, and in both. Raises DatasetError."""
    named = {str(name) for name in tables}
    matched = len(named & set(people))
    counts = {"scanned": len(people), "phenotypes": len(named), "matched": matched, "renamed": renamed}
    if named and matched < settings.min_matched * min(len(people), len(named)):
        raise DatasetError(
            f"{len(people)} people have scans and {len(named)} are in the phenotype tables, but only {matched} are in "
            f"both (scans such as {min(set(people) - named)}, tables such as {min(named - set(people))}). Correct "
            "the participant_id, or accept it with --min-matched 0."
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
