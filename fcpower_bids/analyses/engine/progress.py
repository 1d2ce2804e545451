"""A live line for loops that take longer than a few seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

from fcpower_bids.settings import Messages

Item = TypeVar("Item")

PATIENCE = 3.0
"""Seconds of silence before a loop is announced."""


def track(items: Iterable[Item], label: str, settings: Messages, total: int | None = None) -> Iterator[Item]:
    """Yield the items; a loop that outlasts `PATIENCE` shows on stderr how far it is and how long it will take.

    Parameters
    ----------
    items : iterable
        What to go through.
    label : str
        What is done to them.
    settings : Messages
        ``quiet`` keeps it silent.
    total : int, optional
        How many items there are, where they cannot be counted.
    """
    total = len(items) if isinstance(items, Sized) else total
    hidden = settings.quiet or total == 1
    yield from tqdm(
        items, total=total, desc=label, delay=PATIENCE, disable=hidden, file=sys.stderr, leave=False, dynamic_ncols=True
    )
