"""What a run may use: the cores of this process, and the memory that it was given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MEGA = 2**20
SHARE = 4
"""A large array may take this part of the memory: features, what is made of them, and kernels are there together."""

USUAL = 2_000_000_000
"""Bytes that a large array may take unless memory was given: a quarter of 8 GB."""

_GIVEN: ContextVar[float] = ContextVar("memory in MB", default=0)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def giving(mem_mb: float) -> Iterator[None]:
    """Let a run have this memory in MB; 0 leaves it at the usual."""
    token = _GIVEN.set(mem_mb)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def room() -> int:
    """Bytes that one large array may take: a quarter of what was given, else 2 GB.

    What the machine has is not asked: some rows and the precision of very large features follow from this number, and
    the same command must give the same tables everywhere.
    """
    given = _GIVEN.get()
    return int(given * MEGA) // SHARE if given else USUAL
