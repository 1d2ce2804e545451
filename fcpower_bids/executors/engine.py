"""The cluster that a file describes: its jobs are submitted, and submitted again when they are lost."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from dask import config

from fcpower_bids.errors import UsageError

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
    """Start the cluster that a file describes.

    ``cluster: SLURMCluster`` (of dask-jobqueue; ``LocalCluster`` is of Dask itself), ``options:`` what it is made with,
    ``jobs:`` how many jobs it keeps submitted, ``patience:`` seconds without a worker after which the run ends.

    Raises UsageError.
    """
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
