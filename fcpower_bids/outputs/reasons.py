"""Thousands of recordings with one problem are one line: a count, an example, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fcpower_bids.outputs.status import Status

MOST_ALIKE = 5
"""Recordings with the same problem that are still listed one by one."""
OWN = re.compile(r"\S*/\S*|\bsub-\S+|\d+(?:\.\d+)?")
"""Differences between two recordings with one problem: paths, names and numbers."""

Reason = TypeVar("Reason")


def group_alike(reasons: Sequence[Reason], text: Callable[[Reason], str], most: int = MOST_ALIKE) -> list[list[Reason]]:
    """Put together what says the same but for paths, names and numbers."""
    groups: dict[str, list[Reason]] = {}
    for one in reasons:
        groups.setdefault(OWN.sub("*", text(one)), []).append(one)
    return [part for group in groups.values() for part in ([[one] for one in group] if len(group) <= most else [group])]


def describe_reasons(statuses: Iterable[Status], every_one: bool = False) -> list[str]:
    """Return one line per recording, or per many with the same problem."""
    given = list(statuses)
    groups = group_alike(
        given, lambda one: f"{one.state} {one.stage} {one.reason}", len(given) if every_one else MOST_ALIKE
    )
    return [_line(group) for group in groups]


def _line(group: Sequence[Status]) -> str:
    first, count = group[0], len(group)
    who = first.recording if count == 1 else f"{count} recordings, the first is {first.recording}"
    return f"{first.state}: {who} at {first.stage}: {first.reason}"
