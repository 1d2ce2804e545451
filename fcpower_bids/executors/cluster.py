"""Tasks in jobs of a cluster, by Dask: lost jobs are submitted again, arrays of all tasks are mapped from files."""

from __future__ import annotations

import asyncio
import io
import logging
import mmap
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from cloudpickle import CloudPickler
from dask import config
from distributed import CancelledError, Client, Future, KilledWorker
from distributed.comm import CommClosedError

from fcpower_bids.errors import UsageError
from fcpower_bids.executors.contract import Item, Result, WorkersLost, call_alone
from fcpower_bids.ondisk import hold_file, let_go
from fcpower_bids.store import naming

PATIENCE = 600.0
"""Seconds without a worker after which a run ends, where the file does not state ``patience``."""
QUEUE = ("squeue", "-h", "-o", "%i %T %r", "-j")
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "RESIZING", "SUSPENDED")
"""States of a job of SLURM that may still begin."""
NEVER = ("TimeLimit", "NodeLimit", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS")
"""Ends of reasons for which it never will."""


@dataclass
class Engine:
    """A cluster of Dask that was started here."""

    cluster: Any  # of ``distributed`` or ``dask_jobqueue``
    patience: float  # seconds without a worker after which a run ends; jobs that SLURM lists as waiting are waited for
    wanted: int = 0  # jobs that are kept submitted; 0 where the file states none, or where there is no queue
    # job ids by the names of the workers they were submitted for; the newest of each
    jobs: dict[str, str] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)  # the answers of the scheduler to submissions that failed

    def refuse_if_refused(self) -> None:
        """Raise a UsageError with the words of the scheduler where it has refused a job."""
        if self.refusals:
            raise UsageError(f"The scheduler refuses a job: {self.refusals[0]} Correct the options of --executor.")

    def keep(self, workers: int) -> None:
        """Submit lost jobs again: all of them where none is left in the queue, else as many as are missing."""
        listed = self._listed() if self.wanted and self.jobs else None
        if listed is None:
            return
        if not workers and not listed:
            self.jobs.clear()
            self.cluster.scale(jobs=0)
        # Dask forgets the job of a single lost worker and opens it anew; one of several workers it keeps in its plan.
        spec = self.cluster.worker_spec
        gone = [name for name, job in self.jobs.items() if job not in listed and len(spec[name].get("group", ())) > 1]
        self.cluster.scale(jobs=self.wanted + len(gone))

    def queue(self) -> tuple[str, bool]:
        """Return the state of the jobs in words, and whether one of them is waiting for its turn."""
        if not self.jobs:
            return "its jobs left the queue and are submitted again", False
        listed = self._listed()
        if listed is None:
            return f"{len(self.jobs)} jobs were submitted", False
        words = [f"{state.lower()} ({reason})" for state, reason in listed.values()]
        waiting = any(state in WAITING and not reason.endswith(NEVER) for state, reason in listed.values())
        return "; ".join(words) or "the queue holds none of its jobs", waiting

    def _listed(self) -> dict[str, tuple[str, str]] | None:
        """State and reason of every job that SLURM still lists; None where it cannot be asked."""
        if shutil.which(QUEUE[0]) is None:
            return None
        try:
            found = subprocess.run([*QUEUE, ",".join(self.jobs.values())], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if found.returncode and "Invalid job id" not in found.stderr:  # so it calls a job that ended some minutes ago
            return None
        rows = (line.split(maxsplit=2) for line in found.stdout.splitlines())
        return {job: (state, "".join(reason)) for job, state, *reason in rows}

    def close(self) -> None:
        """End the cluster and its jobs; Dask asserts that all of them began, which a refused one did not."""
        with suppress(*((AssertionError,) if self.refusals else ())):
            self.cluster.close()


def start_engine(path: Path) -> Engine:
    """Start the cluster that a file describes: ``cluster``, ``options``, ``jobs``, ``patience``. Raises UsageError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        name, options, jobs = str(content["cluster"]), dict(content.get("options") or {}), int(content.get("jobs") or 0)
        patience = float(content.get("patience") or PATIENCE)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path} must be YAML with 'cluster: NAME', and 'options:', 'jobs:' and 'patience:' where they are needed "
            f"({error})."
        ) from error
    made, of_queue = _class_of(name, path)
    engine = Engine(None, patience)
    try:  # nothing of ours: the answer of Dask to the options of the file
        with config.set({"distributed.worker.daemon": True}), keeping_handlers():
            engine.cluster = made(**options, **({"job_cls": _noting(made.job_cls, engine)} if of_queue else {}))
        if jobs and of_queue:
            engine.wanted = jobs
            engine.cluster.scale(jobs=jobs)
        elif jobs:
            engine.cluster.scale(jobs)
    except Exception as error:
        raise UsageError(f"{name} cannot be started as {path} says ({error}). Correct its options.") from error
    return engine


def _class_of(name: str, path: Path) -> tuple[Any, bool]:
    """Return the class of a cluster, and whether it submits jobs to a queue."""
    module = "distributed" if name == "LocalCluster" else "dask_jobqueue"
    try:
        with keeping_handlers():
            return getattr(import_module(module), name), module != "distributed"
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{path} names the cluster {name}, which {module} does not have here ({error}). "
            "Install 'fcpower_bids[cluster]', or correct the file."
        ) from error


@contextmanager
def keeping_handlers() -> Iterator[None]:
    """Put the handlers of signals back: dask_jobqueue replaces that of Ctrl-C by an exit with code 0 when imported."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _noting(job: Any, engine: Engine) -> Any:
    """Return the class of jobs that notes the number of each, or the answer to a submission that failed."""

    class NotedJob(job):  # type: ignore[misc]
        async def start(self) -> None:
            try:
                await super().start()
            except RuntimeError as error:
                engine.refusals.append(_words_of(str(error)))
                raise
            engine.jobs[str(self.name)] = str(self.job_id)

    for name in ("distributed.deploy", "tornado.application", "asyncio"):  # tracebacks of what becomes one sentence
        logging.getLogger(name).setLevel(logging.CRITICAL)
    NotedJob.__name__ = job.__name__
    return NotedJob


def _words_of(message: str) -> str:
    """The words of the scheduler in the message of dask-jobqueue, in one line."""
    said = re.search(r"stderr:\n(.*)", message, re.S)
    text = " ".join((said[1] if said else message).split())
    return text if text.endswith(".") else f"{text}."


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
    with naming(path), path.open("wb") as file:
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
TRANSFER = 30.0
"""Seconds that a result has to come over; twice as many at each further attempt."""
ANSWER = 30.0
"""Seconds in which a scheduler that is running answers."""
LOOK, REMIND, KEEP = 2.0, 60.0, 20.0
"""Seconds between two looks for workers where a result is missing, two lines about the queue, two submissions."""


class Cluster:
    """Workers of Dask; shared arrays are written once into a folder that all see, and mapped by each."""

    def __init__(self, where: str, folder: Path) -> None:
        self._engine = None if "://" in where else start_engine(Path(where))
        self._patience = self._engine.patience if self._engine else PATIENCE
        try:
            self.client = Client(self._engine.cluster if self._engine else where, timeout=ANSWER)
        except OSError as error:
            raise UsageError(f"No Dask scheduler answers at {where} ({error}). Correct --executor.") from error
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the function returns of every item, in the order of the items."""
        waiting, futures, watch = iter(items), deque[Any](), _Watch(self.client, self._engine, self._patience)
        handle, shared = hold_file(self.folder, "shared")
        try:
            mapped = write_arrays(function, shared)
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
            let_go(handle, shared)

    def _threads(self) -> int:
        """Count the threads of all workers, as if there were some: more may come at any time."""
        return max(LEAST_THREADS, sum(self.client.nthreads().values()))

    def close(self) -> None:
        """End what was started here."""
        self.client.close()
        if self._engine is not None:
            self._engine.close()


GO_ON = "The tables of finished analyses are kept; the same command goes on from there."


class _Watch:
    """Results as they come; while they do not: lines about the queue, lost jobs anew, an end where none will come."""

    def __init__(self, client: Client, engine: Engine | None, patience: float) -> None:
        self.client, self.engine, self.patience = client, engine, patience
        self.since = self.reminded = self.kept = time.monotonic()

    def result(self, future: Future) -> Any:
        """Wait for a result while there is hope for workers; one that is lost with its worker is computed again."""
        self._keep()
        transfer = TRANSFER
        while True:
            done = future.done()
            try:
                return future.result(timeout=transfer if done else LOOK)
            except (TimeoutError, asyncio.TimeoutError):  # two classes, in Python 3.10
                if future.status == "error":  # the task has raised it
                    raise
                transfer *= 2 if done else 1  # a large result takes long
                self._keep()
                self._look()

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
