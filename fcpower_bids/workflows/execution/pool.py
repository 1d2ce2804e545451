"""Processes of this machine: as many calls at a time as there are processes, whatever their number."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from itertools import islice
from multiprocessing import active_children, forkserver, get_context, set_forkserver_preload
from multiprocessing.process import BaseProcess
from typing import Any

from fcpower_bids.settings import Settings
from fcpower_bids.workers import begin_worker, in_safe_folder
from fcpower_bids.workflows.execution.endings import WorkerDied, cause_of_death, memory_kills

PRELOADED = (
    "fcpower_bids.workflows.execution.job",
    "fcpower_bids.imaging.confounds.cleaning",
    "fcpower_bids.imaging.series.parcellation",
    "fcpower_bids.measures.coverage",
    "fcpower_bids.measures.quality",
    "fcpower_bids.measures.spectrum",
    "fcpower_bids.transforms.power",
    "fcpower_bids.reports.person.page",
    "matplotlib.backends.backend_svg",
    "matplotlib.colorbar",
    "scipy.sparse",
    "scipy.signal",
)
"""Imported once by the server that workers are forked from; none of them starts threads."""
MEMORY_GB, MEMORY_GB_ENCODER = 0.5, 1.5
"""What a recording needs at most at 450 parcels and 5,000 volumes; measured, rounded up."""


def start_server() -> None:
    """Let the server that workers are forked from begin its imports; it does so beside what comes next here."""
    set_forkserver_preload(list(PRELOADED))
    with in_safe_folder():
        forkserver.ensure_running()


def processes(settings: Settings) -> int:
    """Return how many recordings are worked on at a time."""
    if settings.low_mem:
        return 1
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = (settings.nprocs or available) // settings.omp_nthreads
    if settings.mem_mb:
        need = MEMORY_GB_ENCODER if settings.encoder is not None else MEMORY_GB
        wanted = min(wanted, int(settings.mem_mb / 1024 / need))
    return max(1, wanted)


def run_calls(function: str, calls: Iterable[tuple[Any, ...]], n_processes: int) -> Generator[Any, None, None]:
    """Call a function in processes forked from a clean server, and yield what it returns, in the order of the ends.

    No more calls are begun than there are processes, so the next one is made when one has ended; closing the iterator
    ends the processes at once, and if this process is killed they end too.

    Parameters
    ----------
    function : str
        ``module:function``, imported by the worker alone.
    calls : iterable of tuple
        Arguments.
    n_processes : int
        At a time.

    Raises
    ------
    WorkerDied
        A worker ended without a word.
    """
    start_server()
    waiting = iter(calls)
    pool = ProcessPoolExecutor(n_processes, get_context("forkserver"), _begin, (os.getcwd(),))
    before, workers, kills = set(active_children()), set[BaseProcess](), memory_kills()
    try:
        running = {pool.submit(_call, function, arguments) for arguments in islice(waiting, n_processes)}
        while running:
            workers |= set(active_children()) - before
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
                running |= {pool.submit(_call, function, arguments) for arguments in islice(waiting, 1)}
    except BrokenProcessPool:
        pool.shutdown(wait=True, cancel_futures=True)
        raise WorkerDied(cause_of_death(workers, kills)) from None
    except BaseException:
        for worker in set(active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the process that waits ends the others
    os.chdir(folder)
    begin_worker()


def _call(function: str, arguments: tuple[Any, ...]) -> Any:
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)(*arguments)
