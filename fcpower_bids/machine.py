"""What this machine, container or job gives to a run: cores and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

MEGA = 2**20
SHARE = 4
"""A large array may take this part of the memory: features, what is made of them, and kernels are there together."""

USUAL = 2_000_000_000
"""Bytes that a large array may always take unless less memory was given."""

_GIVEN: ContextVar[float] = ContextVar("memory in MB", default=0)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of this machine, or of its container or job where that has less.

    Parameters
    ----------
    root : Path
        Where cgroups are; those of version 1 have a folder of their own for memory.
    own : Path
        The names of the cgroups of this process; a limit of one above holds too.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    names = ["/"]
    with suppress(OSError):
        names += [line.rpartition(":")[2] for line in own.read_text(encoding="utf-8").splitlines()]
    for name in names:
        place = Path(name.lstrip("/"))
        for part in (place, *place.parents):
            for limit in (root / part / "memory.max", root / "memory" / part / "memory.limit_in_bytes"):
                with suppress(OSError, ValueError):  # "max" is no number, and most are not there
                    limits.append(int(limit.read_text(encoding="ascii")))
    return min(limits)


@contextmanager
def giving(mem_mb: float) -> Iterator[None]:
    """Let a run have this memory in MB; 0 is what there is."""
    token = _GIVEN.set(mem_mb)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def room() -> int:
    """Bytes that one large array may take: a quarter of what was given, else of what there is and 2 GB at least."""
    given = _GIVEN.get()
    return int(given * MEGA) // SHARE if given else max(USUAL, memory() // SHARE)
