"""What a run says: a live line for loops that take longer than a few seconds; in a log, a line now and then."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

from fcpower_bids.settings import Settings

Item = TypeVar("Item")

PATIENCE = 3.0
"""Seconds of silence before a loop is announced."""
BETWEEN_LINES = 30.0
"""Seconds between two lines in the log of a job."""


def say(text: str, settings: Settings) -> None:
    """Write one line to the standard error, above a live line if there is one; nothing where settings are quiet."""
    if not settings.run.quiet:
        tqdm.write(text, file=sys.stderr)


def track(items: Iterable[Item], label: str, settings: Settings, total: int | None = None) -> Iterator[Item]:
    """Yield the items; a loop that outlasts `PATIENCE` shows on stderr how far it is and how long it will take."""
    total = len(items) if isinstance(items, Sized) else total
    watched = sys.stderr.isatty()
    yield from tqdm(
        items,
        total=total,
        desc=label,
        delay=PATIENCE,
        mininterval=0.1 if watched else max(BETWEEN_LINES, PATIENCE),
        maxinterval=10.0 if watched else max(BETWEEN_LINES, PATIENCE),
        disable=settings.run.quiet or total == 1,
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
    )
