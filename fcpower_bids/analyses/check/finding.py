"""What a skeptic has found: one thing, its consequence for the scores, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from fcpower_bids.records import Table
from fcpower_bids.schema import Column, TableSpec, join_columns

ALARM, LOOK, NOTE = "alarm", "look", "note"
"""The scores would mislead; a person should look; nothing wrong, but worth knowing."""

NAMED = 5
"""So many people or values are named in a sentence; the tables have all."""

CHECK = TableSpec(
    "check",
    "What a skeptic found before the first model: each with its consequence and remedy.",
    join_columns(
        Column.text("check", "What was looked at", "Check"),
        Column.text(
            "level",
            "alarm (scores would mislead), look (somebody should look), note (worth knowing)",
            "Level",
        ),
        Column.number("n", "How many: pairs, people, values or scans", "How many", digits=0),
        Column.number("value", "The figure behind the finding, named in it; n/a where there is none"),
        Column.text("finding", "What was found", "What was found"),
        Column.text("consequence", "What it does to the scores", "What it does to the scores"),
        Column.text("remedy", "What to do", "What to do"),
    ),
)
FACTS = {
    "Rule": (
        "Every target is held against the site (one-way analysis of variance), minutes, degrees of freedom, number of "
        "scans and mean FD (Spearman); p below 0.005 divided by the number of such tests is reported. Pairs of scans: "
        "see check_pairs."
    )
}


@dataclass(frozen=True)
class Finding:
    """One row of ``check.tsv``; the attributes are its columns."""

    check: str
    level: str
    n: int
    value: float
    finding: str
    consequence: str
    remedy: str


def tabulate_findings(findings: Sequence[Finding]) -> Table:
    """Return the findings as a table, alarms first."""
    order = {ALARM: 0, LOOK: 1, NOTE: 2}
    ranked = sorted(findings, key=lambda each: order[each.level])
    return Table(pd.DataFrame([asdict(each) for each in ranked], columns=list(CHECK.columns)), CHECK, FACTS)


def name_some(names: Sequence[str], most: int = NAMED) -> str:
    """``a, b and 3 more``."""
    said = ", ".join(names[:most])
    return said if len(names) <= most else f"{said} and {len(names) - most} more"
