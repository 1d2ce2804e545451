"""How much data there is: minutes per person."""

from __future__ import annotations

from fcpower_bids.errors import NotInCohort
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.settings import Analysis

MINUTES = TableSpec(
    "scan_minutes",
    "Minutes of cleaned series of every person.",
    join_columns(
        Column.text("participant_id", "Person"),
        Column.number("minutes", "Minutes over all sessions", digits=1, unit="min"),
    ),
    ("participant_id",),
)
TABLES = (MINUTES,)


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse a cohort without scans."""
    if cohort.scans.empty:
        raise NotInCohort("No scan is left, so there are no minutes to count.")


def analyse_minutes(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Return the table ``scan_minutes``, one row per person."""
    check_choices(cohort, settings)
    seconds = cohort.scans.groupby("participant_id", as_index=False)["seconds"].sum()
    frame = seconds.assign(minutes=seconds["seconds"] / 60)[list(MINUTES.columns)]
    return {MINUTES.name: Table(frame, MINUTES, {"Rule": "Sum over sessions."})}
