"""nipype's pool of processes, told by its workers when to go on instead of asking them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, set_forkserver_preload
from traceback import format_exception
from typing import Any

from nipype.pipeline.plugins.multiproc import MultiProcPlugin, process_initializer

from fcpower_bids.workers import begin_worker, in_safe_folder

LONGEST_WAIT = 1.0
"""Seconds after which the pool is looked at again whatever happens."""
PRELOADED = (
    "fcpower_bids.interfaces.recording",
    "fcpower_bids.imaging.confounds.cleaning",
    "fcpower_bids.imaging.series.parcellation",
    "fcpower_bids.outputs.recording",
    "fcpower_bids.measures.quality",
    "fcpower_bids.transforms.power",
    "fcpower_bids.reports.person.page",
    "matplotlib.backends.backend_svg",
    "matplotlib.colorbar",
    "scipy.sparse",
    "scipy.signal",
)
"""Imported once by the server that workers are forked from; none of them starts threads."""


def start_server() -> None:
    """Let the server that workers are forked from begin its imports; it does so beside what comes next here."""
    set_forkserver_preload(list(PRELOADED))
    with in_safe_folder():
        forkserver.ensure_running()


class Pool(MultiProcPlugin):
    """Workers forked from a clean server, which is safe whatever threads this process has.

    Four things differ from nipype's pool. A recording that was begun is finished before another is begun, so that
    little is at work at any moment. The next step is sent as soon as one is finished; nipype looks around every few
    milliseconds, collecting garbage each time. A worker that is killed ends the run with an error; nipype waits for
    ever when it had the last step. If this process is killed, its workers end.

    Raises
    ------
    BrokenProcessPool
        While it runs, when a worker was killed.
    """

    def __init__(self, n_procs: int, memory_gb: float | None = None, **arguments: Any) -> None:
        set_forkserver_preload(list(PRELOADED))
        if memory_gb is not None:
            arguments["memory_gb"] = memory_gb
        arguments |= {"n_procs": n_procs, "mp_context": "forkserver", "raise_insufficient": False}
        super().__init__(plugin_args=arguments)
        # In the place of nipype's executor, which has started nothing yet and begins its workers in its own way.
        self.pool = ProcessPoolExecutor(self.processors, get_context("forkserver"), _begin, (self._cwd,))
        self._begun: set[str] = set()

    def run(self, graph: Any, config: Any, updatehash: bool = False) -> None:
        """Run all steps; whatever happens, no worker is left behind."""
        try:
            with _little_garbage():
                super().run(graph, config, updatehash=updatehash)
        finally:
            self.pool.shutdown(wait=True, cancel_futures=True)

    def _sort_jobs(self, jobids: Any, scheduler: str = "tsort") -> list[int]:
        return sorted(jobids, key=lambda job: (_recording(self.procs[job]) not in self._begun, job))

    def _submit_job(self, node: Any, updatehash: bool = False) -> int:
        self._begun.add(_recording(node))
        return super()._submit_job(node, updatehash=updatehash)

    def _async_callback(self, args: Future[Any]) -> None:
        if not args.cancelled() and args.exception() is None:
            super()._async_callback(args)

    def _send_procs_to_workers(self, updatehash: bool = False, graph: Any = None) -> None:
        super()._send_procs_to_workers(updatehash=updatehash, graph=graph)
        wait(self._task_obj.values(), timeout=LONGEST_WAIT, return_when=FIRST_COMPLETED)
        for task, future in self._task_obj.items():
            error = future.exception() if future.done() else None
            if isinstance(error, BrokenProcessPool):
                raise error
            if error is not None:
                self._taskresult[task] = {"result": None, "traceback": format_exception(error), "taskid": task}


def _begin(folder: str) -> None:
    process_initializer(folder)
    begin_worker()


def _recording(node: Any) -> str:
    """Return the name of the workflow that a step belongs to."""
    return str(node.fullname).rpartition(".")[0]


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Hide what exists already from nipype's many collections of garbage."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
