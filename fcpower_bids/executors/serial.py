"""No worker but this process: one task after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fcpower_bids.executors.contract import Item, Result, call_alone


class Serial:
    """Run tasks in this process."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the function returns of every item."""
        return map(partial(call_alone, function), items)

    def close(self) -> None:
        """Nothing to end."""
