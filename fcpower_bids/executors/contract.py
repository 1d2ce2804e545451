"""Contract of executors, and the one that runs tasks in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fcpower_bids.errors import Incomplete

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Someone who calls a function for every item."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the function of each item, in order; arrays bound to it are shared, not changed. Raises WorkersLost."""

    def close(self) -> None:
        """End the workers and remove what was shared."""


class WorkersLost(Incomplete):
    """Workers were lost at the same tasks until there was no sense in trying again."""


def call_alone(function: Callable[[Any], Any], item: Any) -> Any:
    """Call with one thread of BLAS: with more, the last bits would depend on the machine's load and number of cores."""
    with _threads().limit(limits=1):
        return function(item)


@lru_cache(maxsize=1)
def _threads() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController  # the participant level has no need of it

    return ThreadpoolController()  # looks through all libraries, which takes longer than many a task


class Serial:
    """Run tasks in this process."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the function returns of every item."""
        return map(partial(call_alone, function), items)

    def close(self) -> None:
        """Nothing to end."""
