"""Findings of the check: their form, and those about joins and seen people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fcpower_bids.analyses.features import EMBEDDING, encoder_of, expand_names
from fcpower_bids.analyses.pretraining_overlap import mark_people
from fcpower_bids.cohort.inclusion import TARGET
from fcpower_bids.encoders.training_people import TRAINED, UNKNOWN
from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.records import Cohort, Table
from fcpower_bids.reports.kit.page import look_up
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Analysis

ALARM, LOOK, NOTE = "alarm", "look", "note"
"""The scores would mislead; a person should look; nothing wrong, but worth knowing."""

NAMED = 5
"""So many people or values are named in a sentence; the tables have all."""

CHECK = TABLES["check"]
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


def find(check: str, level: str, n: int, value: float, words: str = "", /, **gaps: Any) -> Finding:
    """Put a finding into the words of ``data/report/check.yml``, those of its own name unless others are named."""
    said = look_up("check", words or check)
    filled = (said[part].format(n=n, value=value, **gaps) for part in ("finding", "consequence", "remedy"))
    return Finding(check, level, int(n), float(value), *filled)


def tabulate_findings(findings: Sequence[Finding]) -> Table:
    """Return the findings as a table, alarms first."""
    ranked = sorted(findings, key=lambda each: (ALARM, LOOK, NOTE).index(each.level))
    return Table(pd.DataFrame([asdict(each) for each in ranked], columns=list(CHECK.columns)), CHECK, FACTS)


def name_some(names: Sequence[str], most: int = NAMED) -> str:
    """``a, b and 3 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def check_seen(cohort: Cohort, settings: Analysis) -> Iterator[Finding]:
    """Find embeddings whose encoder was trained on people of the cohort."""
    try:
        scored = {encoder_of(name) for name in expand_names(cohort, settings)}
    except (Unfit, UsageError):  # the analysis that needs them says it
        scored = set()
    name = "people seen in pretraining"
    for label in cohort.embeddings:
        marks = mark_people(cohort, f"{EMBEDDING}:{label}")
        trained, n = sorted(person for person, state in marks.items() if state == TRAINED), len(marks)
        if trained:
            about = {"label": label, "of": n, "named": name_some(trained)}
            yield find(name, ALARM if label in scored else NOTE, len(trained), len(trained) / n, **about)
        elif UNKNOWN in marks.values():
            yield find(name, NOTE, n, math.nan, "people unknown in pretraining", label=label)


def check_left_out(cohort: Cohort) -> Iterator[Finding]:
    """Columns that look like targets and are none."""
    for reason in cohort.excluded.loc[cohort.excluded["what"] == TARGET, "reason"].astype(str):
        said, _, remedy = reason.partition(". ")
        yield find("not predicted", LOOK, 1, math.nan, said=said, remedy=remedy)


def check_joins(cohort: Cohort) -> Iterator[Finding]:
    """People without phenotypes, and phenotypes without people."""
    counts = cohort.joined
    if not counts or not counts["phenotypes"]:
        return
    scanned, phenotypes, matched = (counts[name] for name in ("scanned", "phenotypes", "matched"))
    targets = [n for name, n in counts.items() if name.startswith("with ")]
    least, apart = min([matched, *targets]), scanned + phenotypes - 2 * matched
    if apart or least < matched:
        about = {"scanned": scanned, "phenotypes": phenotypes, "matched": matched, "least": least}
        more = " or more" * (len(set(targets)) > 1)
        yield find("scans and phenotypes", NOTE, apart, matched / scanned, **about, more=more)
    if counts.get("renamed"):
        yield find("participant_id", NOTE, counts["renamed"], math.nan)
