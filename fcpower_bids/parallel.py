"""Work in processes: tasks of the group level here or on a Dask scheduler, calls in workers, and what a run says of it.

A task touches nothing else, so whoever executes it, the numbers are the same to the last bit.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from importlib import import_module
from itertools import islice
from multiprocessing import active_children, forkserver, get_context, set_forkserver_preload
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any, TypeVar

from tqdm import tqdm

from fcpower_bids.errors import Incomplete, UsageError
from fcpower_bids.resources import cores, memory_limit, unsearched
from fcpower_bids.settings import Run, Settings

Item = TypeVar("Item")
Result = TypeVar("Result")
WORTH = 5.0
"""Seconds of work that is left from which on others are asked to help; starting one takes a second or two."""
ANSWER = 30.0
"""Seconds in which a scheduler that is running answers."""
ATTEMPTS = 3
"""How often workers may be lost without one more task being done."""
MEMORY_GB, MEMORY_GB_ENCODER = 0.5, 1.5
"""Largest memory of a recording at 450 parcels and 5,000 volumes; measured, rounded up."""


def processes(settings: Settings) -> int:
    """Return how many recordings at a time the settings allow, by cores and memory."""
    run, memory_gb = settings.run, MEMORY_GB if settings.method.encoder is None else MEMORY_GB_ENCODER
    wanted = (run.nprocs or cores()) // run.omp_nthreads
    return max(1, min(wanted, int(run.mem_mb / 1024 / memory_gb)) if run.mem_mb else wanted)


class WorkersLost(Incomplete):
    """Workers were lost at the same tasks until there was no sense in trying again."""


@lru_cache(maxsize=1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController  # the participant level has no need of it

    return ThreadpoolController()  # looks through all libraries, which takes longer than many a task


def call_alone(function: Callable[..., Result], item: Any, *bound: Any, **named: Any) -> Result:
    """Call with one thread of BLAS: with more, the last bits would depend on the machine's load and number of cores."""
    with _blas().limit(limits=1):
        return function(*bound, item, **named)


def _here(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    return map(partial(call_alone, function), items)


_EXECUTOR: ContextVar[Callable[..., Iterator[Any]]] = ContextVar("who does the tasks", default=_here)


def map_tasks(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the function of each item, in order; arrays bound to it are shared, not changed. Raises WorkersLost."""
    return _EXECUTOR.get()(function, items)


@contextmanager
def executing(settings: Run, folder: Path | None = None) -> Iterator[None]:
    """Let processes or the Dask scheduler of the settings do the tasks, in the memory that is given. Raises UsageError.

    SIGTERM ends a run as Ctrl-C does: workers end and jobs are cancelled instead of outliving it.
    """
    number = settings.nprocs or cores()
    with ExitStack() as opened:
        executor: Callable[..., Iterator[Any]] = _here if number == 1 else partial(_by_processes, number, folder)
        if settings.executor:
            try:  # an extra, and takes a second
                from distributed import Client

                client = opened.enter_context(Client(settings.executor, timeout=ANSWER))
            except ImportError as error:
                raise UsageError(f"--executor needs Dask ({error}): pip install 'fcpower_bids[cluster]'.") from error
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"No Dask scheduler answers at {settings.executor} ({error}). Correct --executor."
                ) from error
            executor = partial(_by_dask, client)
        opened.callback(_EXECUTOR.reset, _EXECUTOR.set(executor))
        opened.enter_context(memory_limit(settings.mem_mb))
        if current_thread() is main_thread():
            opened.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        yield


def _by_processes(
    number: int, folder: Path | None, function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[Result]:
    """Share the tasks, once those that are left would take more than `WORTH` here; again what a lost worker leaves."""
    started, done, attempts = time.monotonic(), 0, 0
    while done < len(items) and (
        len(items) - done < 2 or (time.monotonic() - started) / max(done, 1) * (len(items) - done) < WORTH
    ):
        yield call_alone(function, items[done])
        done += 1
    if done == len(items):
        return
    from joblib import Parallel, delayed  # takes a fifth of a second

    while done < len(items):
        work = Parallel(number, backend="loky", return_as="generator", temp_folder=folder, initializer=begin_worker)
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


def _by_dask(client: Any, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Share the tasks among workers that get what is bound once.

    Not by joblib's backend: where one worker is left, that computes in this process.
    """
    from asyncio import TimeoutError as NoWorker  # another class than the built-in one in Python 3.10

    from distributed import CancelledError, KilledWorker
    from distributed.comm import CommClosedError

    call: Any = function
    plain, bound, named = (call.func, call.args, call.keywords) if type(call) is partial else (call, (), {})
    futures, done, attempts = deque[Any](), 0, 0
    while done < len(items):
        try:
            try:
                shared = client.scatter([*bound, *named.values()], hash=False) if bound or named else []
            except NoWorker as error:
                raise WorkersLost(
                    f"The Dask scheduler had no worker for {ANSWER:g} seconds. Start some and give the command again: "
                    "the tables of finished analyses are kept."
                ) from error
            by_name = dict(zip(named, shared[len(bound) :], strict=True))
            for item in items[done:]:
                futures.append(client.submit(call_alone, plain, item, *shared[: len(bound)], **by_name, pure=False))
            while futures:
                result = futures.popleft().result()
                done, attempts = done + 1, 0
                yield result
        except KilledWorker as error:
            raise WorkersLost(
                "Workers of the Dask scheduler were lost again and again at the same task; as a rule memory ran out. "
                "Give each of them more."
            ) from error
        except (CancelledError, CommClosedError) as error:
            attempts += 1  # what is bound is lost with the only worker that has it: it is shared again
            if attempts == ATTEMPTS or client.status != "running":
                raise WorkersLost(
                    f"The Dask scheduler ended during the run ({error}). The tables of finished analyses are kept; "
                    "the same command goes on from there."
                ) from error
        finally:
            client.cancel(list(futures))
            futures.clear()


class WorkerDied(BrokenProcessPool):
    """A worker ended without a word. `cause`: the beginning of a sentence ("The process was ..."); `processes`: who."""

    def __init__(self, cause: str, processes: Collection[int] = ()) -> None:
        super().__init__(cause)
        self.cause, self.processes = cause, processes


def run_calls(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], n_processes: int, modules: Iterable[str] = ()
) -> Generator[Result, None, None]:
    """Yield what calls in workers of this machine return, in the order of their ends. Raises WorkerDied.

    Modules that a function imports when it needs them are imported once, before the workers are forked. Workers are
    forked from here, or from a server where another thread of this process could hold a lock.
    """
    waiting = iter(calls)
    first = list(islice(waiting, n_processes))
    if not first:
        return
    if _is_forkable():
        context: BaseContext = get_context("fork")
        with unsearched():
            for module in modules:
                import_module(module)
        gc.freeze()  # memory without writes stays shared
    else:
        context = get_context("forkserver")
        set_forkserver_preload([function.__module__, *modules])
        here = os.getcwd()
        try:  # started in a folder without modules: Python 3.10 knows no safe path
            os.chdir(here if sys.version_info >= (3, 11) else os.sep)
            forkserver.ensure_running()
        finally:
            os.chdir(here)
    pool = ProcessPoolExecutor(len(first), context, _begin, (os.getcwd(),))
    before, workers = set(active_children()), set[BaseProcess]()

    def submit(arguments: tuple[Any, ...]) -> Future[Result]:
        try:
            return pool.submit(function, *arguments)
        except (EOFError, ConnectionError) as error:  # silence of a server that was killed
            raise BrokenProcessPool("The server of the workers ended.") from error

    try:
        running = set(map(submit, first))
        while running:
            workers |= set(active_children()) - before
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
                running |= set(map(submit, islice(waiting, 1)))
    except BrokenProcessPool:
        pool.shutdown(wait=True, cancel_futures=True)
        number, dead = first_to_die(workers)
        raise WorkerDied(cause_of_death(number), dead) from None
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


def begin_worker() -> None:
    """Leave what was imported out of garbage collection, and do not outlive the process that waits for results."""
    sys.path[:] = [place for place in sys.path if place]
    gc.freeze()

    waiting = os.getppid()

    def end_with_parent() -> None:
        while os.getppid() == waiting:
            time.sleep(0.5)
        os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()


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


def first_to_die(workers: Collection[BaseProcess]) -> tuple[int, list[int]]:
    """Signal that ended the first of some workers, and whom; those that a broken pool ends itself got SIGTERM after."""
    codes = [code for worker in workers if (code := worker.exitcode) is not None and code < 0]
    code = min(codes, key=lambda code: -code == signal.SIGTERM, default=0)
    return -code, [worker.pid for worker in workers if worker.pid and worker.exitcode == code < 0]


def cause_of_death(number: int) -> str:
    """Say what a signal that ends a worker means."""
    if number in (signal.SIGKILL, 0):
        return "The process was killed from outside; as a rule memory ran out, or a scheduler's limit was reached"
    if number == signal.SIGTERM:
        return "The process received SIGTERM, as from a scheduler at its limit of time"
    return f"The process crashed ({signal.Signals(number).name}), which no input should make it do: please report it"


PATIENCE = 3.0
"""Seconds of silence before a loop is announced."""
BETWEEN_LINES = 30.0
"""Seconds between two lines in the log of a job."""
tqdm.monitor_interval = 0  # no thread: processes are forked from this one


def say(text: str, settings: Settings) -> None:
    """Write one line to the standard error, above a live line if there is one; nothing where settings are quiet."""
    if not settings.run.quiet:
        tqdm.write(text, file=sys.stderr)


def track(items: Iterable[Item], label: str, settings: Settings, total: int | None = None) -> Iterator[Item]:
    """Yield the items; a loop that outlasts `PATIENCE` shows on stderr how far it is and how long it will take."""
    total = len(items) if isinstance(items, Sized) else total
    watched = sys.stderr.isatty()
    yield from tqdm(
        items,
        total=total,
        desc=label,
        delay=PATIENCE,
        mininterval=0.1 if watched else max(BETWEEN_LINES, PATIENCE),
        maxinterval=10.0 if watched else max(BETWEEN_LINES, PATIENCE),
        disable=settings.run.quiet or total == 1,
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
        miniters=1,
    )
