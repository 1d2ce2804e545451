"""Locks of the kernel, so that two runs on one folder never do the same work twice; it frees those of the dead."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fcpower_bids.store import leftovers, make_folder, sweep, write_text

LOCKS = "logs/locks"
"""Where the locks of an output folder are."""
SHARED = ("logs", "sourcedata/atlases", "sourcedata/atlases/tpl-*")
"""Folders below that of the outputs whose files are written in turn, each under a lock of its name."""


@contextmanager
def lock(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is removed at the end; without `wait` say whether it was free.

    On a file system without locks work may be done twice; files stay whole all the same.
    """
    handle = _take(path, wait)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the handle too
            os.close(handle)
            with suppress(OSError):  # another process is there
                path.parent.rmdir()


def _take(path: Path, wait: bool) -> int | None:
    while True:
        make_folder(path.parent)
        try:
            handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        except FileNotFoundError:  # the last of the others has just removed the folder
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:  # a file system without locks
            return handle
        except BaseException:
            os.close(handle)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # the holder before has removed it


def write_shared(output_dir: Path, path: Path, make: str | Callable[[], str]) -> Path:
    """Write a file that many jobs write, in turn: only where it does not say so already.

    `make`: the text, or what makes it, which is asked again when the turn has come.
    """
    try:
        known = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        known = None
    if known == (make if isinstance(make, str) else make()):
        return path
    with lock(output_dir / LOCKS / path.name):
        return write_text(path, make if isinstance(make, str) else make())


def sweep_shared(output_dir: Path) -> None:
    """Remove what killed runs have left of files that are written in turn, but for those that are being written."""
    for folder in (output_dir, *(folder for place in SHARED for folder in output_dir.glob(place))):
        for name in leftovers(folder):
            with lock(output_dir / LOCKS / name, wait=False) as is_free:
                if is_free:
                    sweep([folder / name])
