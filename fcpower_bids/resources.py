"""Resources of a run: the cores of this process, and the memory of the request."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

MEGA = 2**20
SHARE = 4
"""A large array may take this part of the memory: features, what is made of them, and kernels are there together."""

USUAL = 2_000_000_000
"""Bytes that a large array may take unless memory was given: a quarter of 8 GB."""
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files in which Linux states the memory of a container, in bytes."""
JOB = "SLURM_MEM_PER_NODE"
"""Variable in which SLURM states the memory of a job, in MB."""
_GIVEN: ContextVar[float] = ContextVar("memory in MB", default=0)


def peak_megabytes() -> float:
    """Return the largest resident memory of this process so far, in MB; macOS states it in bytes, Linux in kB."""
    unit = MEGA if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def memory_limit(mem_mb: float) -> Iterator[None]:
    """Let a run have this memory in MB, 0 for the usual."""
    token = _GIVEN.set(mem_mb)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def given_bytes() -> float:
    """Bytes of memory that the request gives to all processes; infinite where it names none."""
    return _GIVEN.get() * MEGA or float("inf")


def machine_bytes() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int:
    """Bytes that one array may take: a quarter of what was given, else 2 GB, so that tables do not vary by machine."""
    given = _GIVEN.get()
    return int(given * MEGA) // SHARE if given else USUAL


def describe_memory(mem_mb: float) -> str:
    """Say where a container or a job of SLURM allows less than a run will take; empty where it does not."""
    stated = [int(os.environ[JOB])] if os.environ.get(JOB, "").isdigit() else []
    for path in LIMITS:
        try:
            stated.append(int(path.read_text()) // MEGA)
        except (OSError, ValueError):  # no such file, or "max"
            continue
    taken, allowed = mem_mb or SHARE * USUAL / MEGA, min((each for each in stated if each), default=float("inf"))
    if allowed >= taken:
        return ""
    how = f"--mem-mb {mem_mb:g}" if mem_mb else f"the {taken:,.0f} MB that a run takes without --mem-mb"
    return f"This container or job allows {allowed:,.0f} MB of memory, less than {how}. Give --mem-mb {allowed:.0f}."
