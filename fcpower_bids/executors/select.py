"""The executor of a run: chosen by its settings, used by whoever has tasks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

from fcpower_bids.errors import UsageError
from fcpower_bids.executors.contract import Executor, Item, Result, Serial
from fcpower_bids.resources import cores, memory_limit
from fcpower_bids.settings import Resources

if TYPE_CHECKING:
    from fcpower_bids.core.regression.dense import Dense

_CHOSEN: ContextVar[Executor | None] = ContextVar("executor", default=None)


def map_tasks(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Map a function over items, in their order; this process computes unless an executor is active."""
    return (_CHOSEN.get() or Serial()).map(function, items)


@contextmanager
def executing(settings: Resources, folder: Path | None = None) -> Iterator[Executor]:
    """Let the executor of the settings do the work, in the memory that they give. Raises UsageError."""
    from fcpower_bids.core.regression.dense import solving_with  # loads scipy, which a recording has no need of

    executor = make_executor(settings, folder)
    token = _CHOSEN.set(executor)
    try:
        with memory_limit(settings.mem_mb, folder), solving_with(make_dense(settings.solver_device)), _ending_workers():
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


def make_dense(device: str) -> Dense:
    """Return who does the dense operations on a device of PyTorch; numpy and scipy where none is named.

    Raises UsageError.
    """
    if not device:
        from fcpower_bids.core.regression.dense import HOST  # loads scipy

        return HOST
    try:
        # an extra, and takes seconds
        from fcpower_bids.executors.torch_dense import TorchDense
    except ImportError as error:
        raise UsageError(f"--solver-device needs torch ({error}): pip install 'fcpower_bids[encoder]'.") from error
    return TorchDense(device)


def make_executor(settings: Resources, folder: Path | None) -> Executor:
    """Return the executor of the settings; its libraries are imported only now."""
    if settings.executor:
        try:
            # Dask is an extra, and takes a second
            from fcpower_bids.executors.cluster import Cluster
        except ImportError as error:
            raise UsageError(f"--executor needs Dask ({error}): pip install 'fcpower_bids[cluster]'.") from error
        return Cluster(settings.executor, folder or Path.cwd())
    number = 1 if settings.low_mem else settings.nprocs or cores()
    if number == 1:
        return Serial()
    # joblib takes a fifth of a second
    from fcpower_bids.executors.processes import Processes

    return Processes(number, folder)
