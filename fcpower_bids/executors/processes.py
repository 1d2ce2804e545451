"""Processes of this machine, by joblib."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from joblib import Parallel, delayed

from fcpower_bids.executors.contract import Item, Result, WorkersLost, call_alone

WORTH = 5.0
"""Seconds of work that is left from which on others are asked to help; starting one takes a second or two."""

ATTEMPTS = 3
"""How often workers may be lost without one more task being done."""


class Processes:
    """As many processes as are allowed, once there is work for them.

    The first tasks are done here and timed. When those that are left would take more than `WORTH` seconds, the
    processes share them, so a small cohort never waits for processes to start.
    """

    def __init__(self, number: int, folder: Path | None = None) -> None:
        self.number, self.folder = number, folder

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the function returns of every item, in the order of the items."""
        started = time.monotonic()
        for done, item in enumerate(items):
            left = len(items) - done
            if left > 1 and (time.monotonic() - started) / max(done, 1) * left >= WORTH:
                yield from self._share(function, items[done:])
                return
            yield call_alone(function, item)

    def _share(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Share the items; those that a lost worker leaves are shared again."""
        done = attempts = 0
        while done < len(items):
            work = Parallel(self.number, backend="loky", return_as="generator", temp_folder=self.folder)
            try:
                for result in work(delayed(call_alone)(function, item) for item in items[done:]):
                    done, attempts = done + 1, 0
                    yield result
            except BrokenProcessPool as error:
                attempts += 1
                if attempts == ATTEMPTS:
                    raise WorkersLost(
                        f"Processes that share the work were lost {ATTEMPTS} times at the same place; as a rule memory "
                        "ran out. Give more memory, or fewer --nprocs."
                    ) from error

    def close(self) -> None:
        """Nothing to end: joblib lets idle processes go."""
