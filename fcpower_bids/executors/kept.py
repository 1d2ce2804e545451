"""Results of long computations that are kept in a folder, so that a run that was ended goes on where it was."""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids._version import __version__
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.executors.contract import Result
from fcpower_bids.store import atomic, leftovers, sweep

QUICK = 60.0
"""Seconds of work that are not worth a file: it is sooner done again."""

OURS = re.compile(r"[0-9a-f]{40}\.npz")
"""Names of files of kept results: their fingerprint."""

_FOLDER: ContextVar[Path | None] = ContextVar("folder of kept results", default=None)


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Let `keep_result` use a folder."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def forget_kept(folder: Path) -> None:
    """Remove the results that were kept, which a finished run has no need of, and nothing else that is there."""
    sweep(folder / name for name in leftovers(folder))
    for path in folder.glob("*.npz"):
        if OURS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()  # only when empty


def fingerprint(*parts: Any) -> str:
    """Return a digest of this version, and of arrays and other values: no function has one."""
    import joblib  # takes a fifth of a second, and only long runs need it

    return str(joblib.hash((__version__, *parts), hash_name="sha1", coerce_mmap=True))


def keep_result(
    key: Callable[[], str],
    compute: Callable[[], Result],
    write: Callable[[Result], Mapping[str, FloatArray]],
    read: Callable[[Mapping[str, FloatArray]], Result],
) -> Result:
    """Return what is kept under a key (a `fingerprint`), else compute it, and keep it where that took long."""
    folder = _FOLDER.get()
    if folder is None:
        return compute()
    if folder.is_dir() and (content := _read(folder / f"{key()}.npz")) is not None:
        return read(content)
    started = time.monotonic()
    result = compute()
    if time.monotonic() - started >= QUICK:
        # A full disk costs the way back, not the run.
        with suppress(OSError), atomic(folder / f"{key()}.npz") as temporary, temporary.open("wb") as stream:
            np.savez(stream, **write(result))  # type: ignore[arg-type]
    return result


def _read(path: Path) -> dict[str, FloatArray] | None:
    """Return the arrays of a file; None where there is none, or none that can be read."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
