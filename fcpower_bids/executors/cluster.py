"""Tasks in jobs of a cluster, by Dask; arrays that all tasks share are mapped from files."""

from __future__ import annotations

import io
import mmap
import pickle
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from cloudpickle import CloudPickler
from distributed import CancelledError, Client, Future, KilledWorker
from distributed.comm import CommClosedError

from fcpower_bids.errors import UsageError
from fcpower_bids.executors import engine as engines
from fcpower_bids.executors.contract import Item, Result, WorkersLost, call_alone
from fcpower_bids.executors.engine import Engine, start_engine

ALIGNMENT = 64
"""Alignment in bytes, as BLAS prefers it."""


@dataclass(frozen=True)
class Mapped:
    """A function without its arrays."""

    code: bytes  # as Dask itself sends functions
    arrays: Path  # their numbers, one array after the other
    places: tuple[tuple[int, int], ...]  # where each starts, and its size in bytes


class _Pickler(CloudPickler):
    """Leaves arrays that are mapped from a file where they are."""

    def reducer_override(self, obj: Any) -> Any:
        """Name the file of a whole memory map in the place of its numbers."""
        if isinstance(obj, np.memmap) and obj.filename is not None and isinstance(obj.base, mmap.mmap):
            order = "F" if obj.flags.fnc else "C"
            return np.memmap, (str(obj.filename), obj.dtype, "r", obj.offset, obj.shape, order)
        return super().reducer_override(obj)


def write_arrays(function: Callable[..., Any], path: Path) -> Mapped:
    """Write the arrays that are bound to a function into a file."""
    buffers: list[pickle.PickleBuffer] = []
    code = io.BytesIO()
    _Pickler(code, protocol=5, buffer_callback=buffers.append).dump(function)
    places = []
    with path.open("wb") as file:
        for buffer in buffers:
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            raw = buffer.raw()
            places.append((file.tell(), raw.nbytes))
            file.write(raw)
        file.write(b"\0")  # nothing at all cannot be mapped
    return Mapped(code.getvalue(), path, tuple(places))


@lru_cache(maxsize=1)
def map_arrays(mapped: Mapped) -> Callable[..., Any]:
    """Return the function, its arrays mapped and not to be written; the latest is kept."""
    with mapped.arrays.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    buffers = [view[start : start + size] for start, size in mapped.places]
    function: Callable[..., Any] = pickle.loads(mapped.code, buffers=buffers)  # noqa: S301 -- sent by this very run
    return function


AHEAD, LEAST_THREADS = 4, 4
"""Tasks in hand for each thread of the workers, where results wait until they are asked for; and threads at least."""
LOOK, REMIND, KEEP = 2.0, 60.0, 20.0
"""Seconds between two looks for workers where a result is missing, two lines about the queue, two submissions."""


class Cluster:
    """Workers of Dask.

    Shared arrays are written once into a folder that all workers see, and mapped by each: workers of one node have it
    in memory once, and one that is lost takes nothing with it. Dask gives the tasks of a lost worker to another.
    """

    def __init__(self, where: str, folder: Path) -> None:
        self._engine = None if "://" in where else start_engine(Path(where))
        self._patience = self._engine.patience if self._engine else engines.PATIENCE
        try:
            self.client = Client(self._engine.cluster if self._engine else where, timeout=self._patience)
        except OSError as error:
            raise UsageError(f"No Dask scheduler answers at {where} ({error}). Correct --executor.") from error
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._number = Path(tempfile.mkdtemp(prefix="shared-", dir=folder)), count()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the function returns of every item, in the order of the items."""
        mapped = write_arrays(function, self.folder / str(next(self._number)))
        waiting, futures, watch = iter(items), deque[Any](), _Watch(self.client, self._engine, self._patience)
        try:
            while True:
                if len(futures) <= AHEAD // 2 * self._threads():
                    some = list(islice(waiting, AHEAD * self._threads() - len(futures)))
                    futures.extend(self.client.map(_call, [mapped] * len(some), some, pure=False))
                if not futures:
                    return
                yield watch.result(futures.popleft())
        except KilledWorker as error:
            raise WorkersLost(
                "Workers of the cluster were lost again and again at the same task; as a rule memory ran out. Give "
                "each of them more in the file of --executor."
            ) from error
        except (CancelledError, CommClosedError) as error:
            raise WorkersLost(f"The Dask scheduler ended during the run ({error}). {GO_ON}") from error
        finally:
            self.client.cancel(list(futures))
            mapped.arrays.unlink(missing_ok=True)

    def _threads(self) -> int:
        """Count the threads of all workers, as if there were some: more may come at any time."""
        return max(LEAST_THREADS, sum(self.client.nthreads().values()))

    def close(self) -> None:
        """End what was started here and remove what was shared."""
        self.client.close()
        if self._engine is not None:
            self._engine.close()
        shutil.rmtree(self.folder, ignore_errors=True)


GO_ON = "The tables of finished analyses are kept; the same command goes on from there."


class _Watch:
    """Results as they come; while they do not: lines about the queue, lost jobs anew, an end where none will come."""

    def __init__(self, client: Client, engine: Engine | None, patience: float) -> None:
        self.client, self.engine, self.patience = client, engine, patience
        self.since = self.reminded = self.kept = time.monotonic()

    def result(self, future: Future) -> Any:
        """Wait for a result while there are workers, or while there is hope for some."""
        self._keep()
        while not future.done():
            try:
                return future.result(timeout=LOOK)
            except TimeoutError:
                if not future.done():
                    self._keep()
                    self._look()
        return future.result()

    def _keep(self) -> None:
        """Let lost jobs be submitted again, now and then."""
        if self.engine is not None and time.monotonic() - self.kept >= KEEP:
            self.kept = time.monotonic()
            self.engine.keep(len(self.client.nthreads()))

    def _look(self) -> None:
        """Take note of the workers that are there. Raises WorkersLost, UsageError."""
        now = time.monotonic()
        if self.client.nthreads():
            self.since = self.reminded = now
            return
        if self.engine is not None:
            self.engine.refuse_if_refused()
        if now - self.reminded < min(REMIND, self.patience / 2) and now - self.since < self.patience:
            return
        state, waiting = self.engine.queue() if self.engine else ("the scheduler has no workers", False)
        self.reminded = now
        sys.stderr.write(f"fcpower_bids: waiting for workers: {state}\n")
        if waiting:
            self.since = now
        elif now - self.since >= self.patience:
            raise WorkersLost(f"No worker came for {self.patience:.0f} s: {state}. {GO_ON}")


def _call(mapped: Mapped, item: Any) -> Any:
    return call_alone(map_arrays(mapped), item)
