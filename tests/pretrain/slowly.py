"""Packing that does not come to an end; it imports little, as every process of it imports the same."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from fcpower_bids import parallel
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.settings import Run


def wait_long(folder: Path) -> None:
    """Say which process it is, and do not come to an end."""
    (folder / str(os.getpid())).touch()
    time.sleep(600)


def pack_slowly(folder: Path, recordings: list[dict]) -> None:
    """Pack series that never come, in two processes."""
    parallel.WORTH = 0  # no recording is tried here first
    with parallel.executing(Run(nprocs=2)):
        pack_corpus([(facts, partial(wait_long, folder)) for facts in recordings], folder / "corpus")
