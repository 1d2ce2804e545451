"""Resources of a run: the cores of this process, the memory of the request, and imports without searches."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MEGA = 2**20
SHARE = 4
"""A large array may take this part of the memory: features, what is made of them, and kernels are there together."""

USUAL = 2_000_000_000
"""Bytes that a large array may take unless memory was given: a quarter of 8 GB."""
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


@contextmanager
def unsearched() -> Iterator[None]:
    """Import without searches for garbage: there is none, and they take a tenth of the time of a start."""
    before = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()  # nor look through what was imported later
        gc.enable()
