"""Findings of the check: their form, and those about damage, combined recordings and seen people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from fcpower_bids.analyses.features import EMBEDDING, encoder_of, expand_names
from fcpower_bids.analyses.pretraining_overlap import ENOUGH, mark_people
from fcpower_bids.encoders.training_people import TRAINED, UNKNOWN
from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.records import Cohort, Table
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


def tabulate_findings(findings: Sequence[Finding]) -> Table:
    """Return the findings as a table, alarms first."""
    order = {ALARM: 0, LOOK: 1, NOTE: 2}
    ranked = sorted(findings, key=lambda each: order[each.level])
    return Table(pd.DataFrame([asdict(each) for each in ranked], columns=list(CHECK.columns)), CHECK, FACTS)


def name_some(names: Sequence[str], most: int = NAMED) -> str:
    """``a, b and 3 more``."""
    said = ", ".join(names[:most])
    return said if len(names) <= most else f"{said} and {len(names) - most} more"


KINDS = {
    "volumes": ("volumes that are empty, copies or far from all others", "Left-out volumes shorten them."),
    "parcels": ("parcels that are constant for long or lose their level", "Parcels that one scan lacks drop for all."),
    "gain": ("a step of the level of the whole brain", "A step correlates all parcels with each other."),
    "table": (
        "a confounds table that disagrees with the series",
        "Their motion and regressors may be those of another scan, and with them all that is held against motion.",
    ),
    "halves": ("a half of the brain that is of another time than the rest", "Its correlations with the rest are lost."),
    "values": ("too few different values, or values that were clipped", "Changes below a step, or above, are lost."),
}
"""Parts of a recording: finding and effect."""
MANY = 0.25
"""Share of the scans from which on a caution is reported for the cohort, not for scans."""
FEWEST = 5
"""Least number of scans for such a share."""


def check_damage(cohort: Cohort) -> Iterator[Finding]:
    """Count the scans of each caution; many alike point to a common fault."""
    scans = cohort.scans
    if "damage" not in scans:
        return
    damage = scans["damage"].fillna("").astype(str).str.split(", ")
    names = scans["participant_id"].astype(str) + " " + scans["session"].astype(str)
    for kind, (what, consequence) in KINDS.items():
        which = damage.map(lambda parts, kind=kind: kind in parts)
        n, share = int(which.sum()), float(which.mean())
        if not n:
            continue
        of_all = share >= MANY and n >= FEWEST
        remedy = (
            "So many alike come from how they were copied or preprocessed: look at some pages before anything else."
            if of_all
            else "See their pages; leave them out with --exclude-file, or get them again."
        )
        named = name_some([name.removesuffix(" n/a") for name in names[which]])
        yield Finding(
            "damaged series",
            ALARM if of_all else LOOK,
            n,
            share,
            f"{n} of {len(scans)} scans have {what}: {named}.",
            consequence,
            remedy,
        )


def check_seen(cohort: Cohort, settings: Analysis) -> list[Finding]:
    """Find embeddings whose encoder was trained on people of the cohort."""
    try:
        scored = expand_names(cohort, settings)
    except (Unfit, UsageError):  # the analysis that needs them says it
        scored = ()
    found = []
    for label in cohort.embeddings:
        marks = mark_people(cohort, f"{EMBEDDING}:{label}")
        trained = sorted(person for person, state in marks.items() if state == TRAINED)
        if trained:
            level = ALARM if any(label == encoder_of(name) for name in scored) else NOTE
            found.append(_trained(label, trained, len(marks), level))
        elif UNKNOWN in marks.values():
            found.append(_unknown(label, len(marks)))
    return found


def _trained(label: str, people: list[str], n: int, level: str) -> Finding:
    left = n - len(people)
    rest = f"Read the scores of the {left} others, which are given with those of everyone, or train"
    return Finding(
        "people seen in pretraining",
        level,
        len(people),
        len(people) / n,
        f"The encoder of the embedding '{label}' was trained on {len(people)} of the {n} people of this cohort "
        f"({name_some(people)}).",
        "Its scores over them are not what new people would get, and no finding.",
        f"{rest if left >= ENOUGH else 'Train'} it on others: pretrain --participant-label, or another dataset.",
    )


def _unknown(label: str, n: int) -> Finding:
    return Finding(
        "people seen in pretraining",
        NOTE,
        n,
        float("nan"),
        f"The encoder of the embedding '{label}' does not say which people it was trained on.",
        "If it was trained on people of this cohort, its scores are not what new people would get.",
        "Look at where it comes from; an embedding made by an earlier version is made anew by the participant level.",
    )
