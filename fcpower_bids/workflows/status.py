"""The exit code of the participant level."""

from __future__ import annotations

from collections.abc import Sequence

from fcpower_bids.outputs.status import FAILED, RUNNING, SKIPPED

SOME_FAILED, ALL_FAILED = 4, 5


def exit_code(states: Sequence[str]) -> int:
    """Return the documented exit code for the states of all recordings."""
    failed = sum(state in (FAILED, RUNNING) for state in states)
    if failed:  # what was skipped has no result either
        return ALL_FAILED if failed + list(states).count(SKIPPED) == len(states) else SOME_FAILED
    return 0
