"""What every worker process does first, whoever started it."""

from __future__ import annotations

import gc
import os
from multiprocessing import parent_process
from threading import Thread


def begin_worker() -> None:
    """Leave what was imported out of the searches for garbage, and do not outlive the process that waits for results.

    A process that is killed cannot end its workers; they would wait for work for ever.
    """
    gc.freeze()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
