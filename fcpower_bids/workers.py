"""First steps of every process: independence from the current folder and from a home."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path
from threading import Thread


def leave_surroundings() -> None:
    """Import nothing from the current folder, which ``-m`` puts first, and go on without a home or a name."""
    os.environ["PYTHONSAFEPATH"] = "1"  # for all processes that are started from this one, from Python 3.11 on
    try:
        home = Path.home()
        known = home.is_dir() and os.access(home, os.W_OK | os.X_OK)
    except (RuntimeError, OSError):
        known = False
    if not known:
        folder = tempfile.mkdtemp(prefix="fcpower-home-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["HOME"] = folder
    # getpass asks the variable first, and fails for a number without a name.
    os.environ.setdefault("LOGNAME", os.environ.get("USER") or str(os.getuid()))


@contextmanager
def in_safe_folder() -> Iterator[None]:
    """Start a server of workers in a folder without modules: Python 3.10 knows no safe path."""
    if sys.version_info >= (3, 11):
        yield
        return
    here = os.getcwd()
    os.chdir(os.sep)
    try:
        yield
    finally:
        os.chdir(here)


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


def begin_worker() -> None:
    """Leave what was imported out of garbage collection, and do not outlive the process that waits for results."""
    sys.path[:] = [place for place in sys.path if place]
    gc.freeze()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
