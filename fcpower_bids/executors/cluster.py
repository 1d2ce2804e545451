"""Workers of a Dask scheduler: one that runs somewhere, or one that is started as a file says, here or on a cluster."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import Any

import yaml
from dask import config
from distributed import Client, KilledWorker

from fcpower_bids.errors import UsageError
from fcpower_bids.executors.contract import Item, Result, WorkersLost, call_alone
from fcpower_bids.executors.mapped import Mapped, map_arrays, write_arrays

ENGINES = ("distributed", "dask_jobqueue")
"""Packages whose clusters a file may name."""

AHEAD, LEAST_THREADS = 4, 4
"""Tasks in hand for each thread of the workers, where results wait until they are asked for; and threads at least."""

PATIENCE = 600
"""Seconds that the first worker may take to appear: jobs wait in queues."""


class Cluster:
    """Workers of Dask.

    What tasks share is written once into a folder that all workers see, and mapped by each: workers of one node have it
    in memory once, and one that is lost takes nothing with it. Dask gives the tasks of a lost worker to another.

    Parameters
    ----------
    where : str
        Address of a scheduler (``tcp://...``), or a YAML file, see `start_engine`.
    folder : Path
        Seen by all workers under the same name.
    """

    def __init__(self, where: str, folder: Path) -> None:
        self._engine = None if "://" in where else start_engine(Path(where))
        try:
            self.client = Client(where if self._engine is None else self._engine, timeout=PATIENCE)
        except OSError as error:
            raise UsageError(f"No Dask scheduler answers at {where} ({error}). Correct --executor.") from error
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._number = Path(tempfile.mkdtemp(prefix="shared-", dir=folder)), count()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the function returns of every item, in the order of the items."""
        mapped = write_arrays(function, self.folder / str(next(self._number)))
        waiting, futures = iter(items), deque[Any]()
        try:
            while True:
                if len(futures) <= AHEAD // 2 * self._threads():
                    some = list(islice(waiting, AHEAD * self._threads() - len(futures)))
                    futures.extend(self.client.map(_call, [mapped] * len(some), some, pure=False))
                if not futures:
                    return
                yield futures.popleft().result()
        except KilledWorker as error:
            raise WorkersLost(
                "Workers of the cluster were lost again and again at the same task; as a rule memory ran out. Give "
                "each of them more in the file of --executor."
            ) from error
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


def _call(mapped: Mapped, item: Any) -> Any:
    return call_alone(map_arrays(mapped), item)


def start_engine(path: Path) -> Any:
    """Start the cluster that a file describes.

    ``cluster: SLURMCluster`` (of dask-jobqueue; ``LocalCluster`` is of Dask itself), ``options:`` what it is made with,
    ``jobs:`` how many jobs it submits.

    Raises
    ------
    UsageError
        The file cannot be read, names no such cluster, or dask-jobqueue is not installed.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        name, options, jobs = str(content["cluster"]), dict(content.get("options") or {}), int(content.get("jobs") or 0)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path} must be YAML with 'cluster: NAME', and 'options:' and 'jobs:' where they are needed ({error})."
        ) from error
    module = "distributed" if name == "LocalCluster" else "dask_jobqueue"
    try:
        made = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{path} names the cluster {name}, which {module} does not have here ({error}). "
            "Install 'fcpower_bids[cluster]', or correct the file."
        ) from error
    try:  # nothing of ours: what Dask says of the options of the file
        with config.set({"distributed.worker.daemon": True}):
            engine = made(**options)
        if jobs:
            engine.scale(jobs=jobs) if module == "dask_jobqueue" else engine.scale(jobs)
    except Exception as error:
        raise UsageError(f"{name} cannot be started as {path} says ({error}). Correct its options.") from error
    return engine
