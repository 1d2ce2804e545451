"""The status of all recordings of an output folder, those included that another process is at work on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fcpower_bids.claims import CLAIMS, claims_in
from fcpower_bids.outputs.status import EXCLUDED, FAILED, RUNNING, SKIPPED, write_status_table
from fcpower_bids.store import may_write

ABANDONED = "The run that worked on it has ended before it was finished: run the participant level again."
SOME_FAILED, ALL_FAILED, QUALITY_EXCLUDED = 4, 5, 6


def survey(output_dir: Path) -> tuple[pd.DataFrame, int]:
    """Renew ``logs/status.tsv``, and return its rows and exit code; those of living runs have their owner."""
    table = write_status_table(output_dir)
    assert table is not None  # it is when all may be read
    running = table["state"] == RUNNING
    owners = _owners(output_dir, table.loc[running, "recording"].tolist())
    table.loc[running, "reason"] = [f"At work: {who}." if who else ABANDONED for who in owners]
    settled = table["state"].mask(table["reason"].eq(ABANDONED), FAILED)
    return table, exit_code(settled[settled != RUNNING].tolist(), strict=False)


def _owners(output_dir: Path, recordings: list[str]) -> list[str | None]:
    if not recordings:
        return []
    if not may_write(output_dir / CLAIMS):
        return [f"perhaps, since {output_dir / 'logs'} is closed to you"] * len(recordings)
    with claims_in(output_dir / CLAIMS) as claims:
        return [claims.owner(recording) for recording in recordings]


def exit_code(states: Sequence[str], strict: bool) -> int:
    """Return the documented exit code for the states of all recordings."""
    failed = sum(state in (FAILED, RUNNING) for state in states)
    if failed:  # what was skipped, as the combination of runs that all failed, has no result either
        return ALL_FAILED if failed + list(states).count(SKIPPED) == len(states) else SOME_FAILED
    return QUALITY_EXCLUDED if strict and EXCLUDED in states else 0
