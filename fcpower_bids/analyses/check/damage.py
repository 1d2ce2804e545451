"""Scans whose data got a caution as they were read, and whether it is the scans or the preprocessing of all."""

from __future__ import annotations

from collections.abc import Iterator

from fcpower_bids.analyses.check.finding import ALARM, LOOK, Finding, name_some
from fcpower_bids.records import Cohort

KINDS = {
    "volumes": ("volumes that are empty, copies or far from all others", "What is left out shortens them."),
    "parcels": ("parcels that are constant for long or lose their level", "What one scan lacks, all lose."),
    "gain": ("a step of the level of the whole brain", "A step correlates all parcels with each other."),
    "table": (
        "a confounds table that disagrees with the series",
        "Their motion and regressors may be those of another scan, and with them all that is held against motion.",
    ),
}
"""Parts of a recording: what was found, and what it does."""
MANY = 0.25
"""Share of the scans from which on a caution is told of the cohort, not of scans."""
FEWEST = 5
"""Scans, at least, that a share is told of."""


def check_damage(cohort: Cohort) -> list[Finding]:
    """Tell how many scans have which caution; many alike are a fault of how all were made."""
    if "damage" not in cohort.scans:
        return []
    return list(_tell(cohort))


def _tell(cohort: Cohort) -> Iterator[Finding]:
    scans = cohort.scans
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
