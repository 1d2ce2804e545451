"""Causes of the death of a worker process, as far as the system records them."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Kernel counters of processes killed for want of memory in this container or job: cgroups of version 2, and 1."""


class WorkerDied(BrokenProcessPool):
    """A worker ended without a word. `cause`: the cause, as the beginning of a sentence: "The process was ..."."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def memory_kills() -> int:
    """Return how often the kernel has killed a process of this container or job for want of memory; 0 if unknown."""
    for counter in COUNTERS:
        with suppress(OSError, ValueError):
            for line in Path(counter).read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def cause_of_death(workers: Iterable[BaseProcess], kills_before: int) -> str:
    """Say how the first of some workers ended; those that a broken pool ends itself got SIGTERM after it."""
    codes = [code for worker in workers if (code := worker.exitcode) is not None and code < 0]
    ordered = sorted(codes, key=lambda code: -code == signal.SIGTERM)
    number = -ordered[0] if ordered else 0
    if number == signal.SIGKILL and memory_kills() > kills_before:
        return "The process was killed by the kernel because memory ran out"
    if number in (signal.SIGKILL, 0):
        return "The process was killed from outside; as a rule memory ran out, or a scheduler's limit was reached"
    if number == signal.SIGTERM:
        return "The process received SIGTERM, as from a scheduler at its limit of time"
    return f"The process crashed ({signal.Signals(number).name}), which no input should make it do: please report it"
