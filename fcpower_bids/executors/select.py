"""The executor of a run: chosen by its settings, used by whoever has tasks."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from fcpower_bids.errors import UsageError
from fcpower_bids.executors.contract import Executor, Item, Result, Serial, WorkersLost, call_alone
from fcpower_bids.resources import cores, memory_limit
from fcpower_bids.settings import Resources

_CHOSEN: ContextVar[Executor | None] = ContextVar("executor", default=None)


def map_tasks(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Map a function over items, in their order; this process computes unless an executor is active."""
    return (_CHOSEN.get() or Serial()).map(function, items)


@contextmanager
def executing(settings: Resources, folder: Path | None = None) -> Iterator[Executor]:
    """Let the executor of the settings do the work, in the memory that they give. Raises UsageError."""
    executor = make_executor(settings, folder)
    token = _CHOSEN.set(executor)
    try:
        with memory_limit(settings.mem_mb, folder), _ending_workers():
            yield executor
    finally:
        _CHOSEN.reset(token)
        executor.close()


@contextmanager
def _ending_workers() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: workers end and jobs are cancelled instead of outliving it."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def processes(settings: Resources) -> int:
    """Return how many processes of this machine share the work."""
    return settings.nprocs or cores()


def make_executor(settings: Resources, folder: Path | None) -> Executor:
    """Return the executor of the settings; its libraries are imported only now."""
    if settings.executor:
        return Dask(settings.executor)
    number = processes(settings)
    return Serial() if number == 1 else Processes(number, folder)


WORTH = 5.0
"""Seconds of work that is left from which on others are asked to help; starting one takes a second or two."""

ANSWER = 30.0
"""Seconds in which a scheduler that is running answers."""

ATTEMPTS = 3
"""How often workers may be lost without one more task being done."""


class Processes:
    """Processes of this machine, by joblib, once the tasks that are left would take more than `WORTH` seconds here."""

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
        from concurrent.futures.process import BrokenProcessPool

        from joblib import Parallel, delayed  # takes a fifth of a second

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


class Dask:
    """Workers of a Dask scheduler, which get what is bound to a function once.

    Not by joblib: where one worker is left, that computes in this process.
    """

    def __init__(self, address: str) -> None:
        try:  # an extra, and takes a second
            from distributed import Client
        except ImportError as error:
            raise UsageError(f"--executor needs Dask ({error}): pip install 'fcpower_bids[cluster]'.") from error
        try:
            self.client = Client(address, timeout=ANSWER)
        except (OSError, ValueError) as error:
            raise UsageError(f"No Dask scheduler answers at {address} ({error}). Correct --executor.") from error

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the function returns of every item, in the order of the items."""
        from distributed import CancelledError, KilledWorker
        from distributed.comm import CommClosedError

        plain, bound = (function.func, function.args) if type(function) is partial else (function, ())
        more = function.keywords if type(function) is partial else {}
        arrays, futures = [*bound, *more.values()], deque[Any]()
        done = attempts = 0
        while done < len(items):
            try:
                shared = self.client.scatter(arrays, hash=False) if arrays else []
                named = dict(zip(more, shared[len(bound) :], strict=True))
                for item in items[done:]:
                    call = self.client.submit(_call_alone, plain, item, *shared[: len(bound)], **named, pure=False)
                    futures.append(call)
                while futures:
                    result = futures.popleft().result()
                    done, attempts = done + 1, 0
                    yield result
            except KilledWorker as error:
                raise WorkersLost(
                    "Workers of the Dask scheduler were lost again and again at the same task; as a rule memory ran "
                    "out. Give each of them more."
                ) from error
            except (CancelledError, CommClosedError) as error:
                attempts += 1  # what is bound is lost with the only worker that has it: it is shared again
                if attempts == ATTEMPTS or self.client.status != "running":
                    raise WorkersLost(
                        f"The Dask scheduler ended during the run ({error}). The tables of finished analyses are kept; "
                        "the same command goes on from there."
                    ) from error
            finally:
                self.client.cancel(list(futures))
                futures.clear()

    def close(self) -> None:
        """Leave the scheduler, which goes on."""
        self.client.close()


def _call_alone(function: Callable[..., Result], item: Any, *bound: Any, **more: Any) -> Result:
    return call_alone(partial(function, *bound, **more), item)
