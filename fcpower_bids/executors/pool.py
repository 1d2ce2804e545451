"""Processes of this machine: as many calls at a time as there are processes, whatever their number."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Collection, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from importlib import import_module
from itertools import islice
from multiprocessing import active_children, forkserver, get_context, set_forkserver_preload
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fcpower_bids.resources import MEGA, SHARE, USUAL
from fcpower_bids.workers import begin_worker, in_safe_folder, unsearched

COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Kernel counters of processes killed for want of memory in this container or job: cgroups of version 2, and 1."""
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files in which Linux states the memory of a container, in bytes."""
JOB = "SLURM_MEM_PER_NODE"
"""Variable in which SLURM states the memory of a job, in MB."""


class WorkerDied(BrokenProcessPool):
    """A worker ended without a word. `cause`: the beginning of a sentence ("The process was ..."); `processes`: who."""

    def __init__(self, cause: str, processes: Collection[int] = ()) -> None:
        super().__init__(cause)
        self.cause, self.processes = cause, processes


def memory_kills() -> int:
    """Return how often the kernel has killed a process of this container or job for want of memory; 0 if unknown."""
    for counter in COUNTERS:
        with suppress(OSError, ValueError):
            for line in Path(counter).read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def first_to_die(workers: Collection[BaseProcess]) -> tuple[int, list[int]]:
    """Signal that ended the first of some workers, and whom; those that a broken pool ends itself got SIGTERM after."""
    codes = [code for worker in workers if (code := worker.exitcode) is not None and code < 0]
    code = min(codes, key=lambda code: -code == signal.SIGTERM, default=0)
    return -code, [worker.pid for worker in workers if worker.pid and worker.exitcode == code < 0]


def cause_of_death(number: int, kills_before: int) -> str:
    """Say what a signal that ends a worker means."""
    if number == signal.SIGKILL and memory_kills() > kills_before:
        return "The process was killed by the kernel because memory ran out"
    if number in (signal.SIGKILL, 0):
        return "The process was killed from outside; as a rule memory ran out, or a scheduler's limit was reached"
    if number == signal.SIGTERM:
        return "The process received SIGTERM, as from a scheduler at its limit of time"
    return f"The process crashed ({signal.Signals(number).name}), which no input should make it do: please report it"


def _prepare(function: str, modules: Iterable[str], later: Iterable[str]) -> BaseContext:
    """Import what workers need; fork them from here, or from a server where other threads could hold a lock."""
    if _is_forkable():
        with unsearched():
            for module in (function.partition(":")[0], *modules):
                import_module(module)
        gc.freeze()  # memory without writes stays shared
        return get_context("fork")
    set_forkserver_preload([*modules, *later])
    with in_safe_folder():
        forkserver.ensure_running()
    return get_context("forkserver")


def _is_forkable() -> bool:
    """Whether this process has one thread; known on Linux alone."""
    for _ in range(20):  # those of a pool before this one are not gone at once for the system
        try:
            if len(os.listdir("/proc/self/task")) == 1:
                return True
        except OSError:
            return False
        if len(sys._current_frames()) > 1:  # threads that Python runs stay
            return False
        time.sleep(0.005)
    return False


def run_calls(
    function: str,
    calls: Iterable[tuple[Any, ...]],
    n_processes: int,
    modules: Iterable[str] = (),
    later: Iterable[str] = (),
) -> Generator[Any, None, None]:
    """Yield what calls in processes of their own return, in the order of the ends. Raises WorkerDied."""
    waiting = iter(calls)
    first = list(islice(waiting, n_processes))
    if not first:
        return
    context = _prepare(function, modules, later)
    pool = ProcessPoolExecutor(len(first), context, _begin, (os.getcwd(),))
    before, workers, kills = set(active_children()), set[BaseProcess](), memory_kills()
    try:
        running = {_submit(pool, function, arguments) for arguments in first}
        while running:
            workers |= set(active_children()) - before
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
                running |= {_submit(pool, function, arguments) for arguments in islice(waiting, 1)}
    except BrokenProcessPool:
        pool.shutdown(wait=True, cancel_futures=True)
        number, dead = first_to_die(workers)
        raise WorkerDied(cause_of_death(number, kills), dead) from None
    except BaseException:
        for worker in set(active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, function: str, arguments: tuple[Any, ...]) -> Future[Any]:
    """Begin a call; a server of workers that was killed is known from its silence, and the pool is as if broken."""
    try:
        return pool.submit(_call, function, arguments)
    except (EOFError, ConnectionError) as error:
        raise BrokenProcessPool("The server of the workers ended.") from error


def _begin(folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the process that waits ends the others
    os.chdir(folder)
    begin_worker()


def _call(function: str, arguments: tuple[Any, ...]) -> Any:
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)(*arguments)


def allowed_mb() -> float:
    """Memory that a container or a job of SLURM allows, in MB; infinite where neither states a number."""
    stated = [int(os.environ[JOB])] if os.environ.get(JOB, "").isdigit() else []
    for path in LIMITS:
        try:
            stated.append(int(path.read_text()) // MEGA)
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min((each for each in stated if each), default=float("inf"))


def describe_memory(mem_mb: float) -> str:
    """Say where a container or job allows less than a run will take; empty where it does not."""
    taken, allowed = mem_mb or SHARE * USUAL / MEGA, allowed_mb()
    if allowed >= taken:
        return ""
    how = f"--mem-mb {mem_mb:g}" if mem_mb else f"the {taken:,.0f} MB that a run takes without --mem-mb"
    return f"This container or job allows {allowed:,.0f} MB of memory, less than {how}. Give --mem-mb {allowed:.0f}."
