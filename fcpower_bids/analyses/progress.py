"""A live line for loops that take longer than a few seconds."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import TypeVar

from tqdm import tqdm

from fcpower_bids.settings import Settings

Item = TypeVar("Item")

PATIENCE = 3.0
"""Seconds of silence before a loop is announced."""


def track(items: Collection[Item], label: str, settings: Settings) -> Iterator[Item]:
    """Yield the items; a loop that outlasts `PATIENCE` shows on stderr how far it is and how long it will take.

    Parameters
    ----------
    items : collection
        What to go through.
    label : str
        What is done to them.
    settings : Settings
        ``quiet`` keeps it silent.
    """
    hidden = settings.quiet or len(items) < 2
    yield from tqdm(items, desc=label, delay=PATIENCE, disable=hidden, file=sys.stderr, leave=False, dynamic_ncols=True)
