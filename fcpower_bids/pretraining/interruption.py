"""Signals that ask a run to save (SIGUSR1) or to save and stop (SIGTERM, SIGINT), as clusters send them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from fcpower_bids.errors import FcPowerError

SAVE, STOP = 1, 2
WISHES = {signal.SIGUSR1: SAVE, signal.SIGTERM: STOP, signal.SIGINT: STOP}


class Interrupted(FcPowerError):
    """The run was asked to stop and left a checkpoint."""

    exit_code = 130


class Wishes:
    """What signals have asked for since it was last read: nothing (0), `SAVE` or `STOP`."""

    def __init__(self) -> None:
        self.value = 0

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Note a signal."""
        self.value = max(self.value, WISHES[signal.Signals(number)])

    def take(self) -> int:
        """Read what is wished and forget it, but not a wish to stop."""
        value = self.value
        self.value = STOP if value == STOP else 0
        return value


@contextmanager
def heard() -> Iterator[Wishes]:
    """Hear signals instead of being ended by them."""
    wishes = Wishes()
    with _handled(wishes.hear):
        yield wishes


@contextmanager
def passed_on() -> Iterator[None]:
    """Hand signals to the processes that this one has started and waits for."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, number)

    with _handled(pass_on):
        yield


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it is interrupted
        return
    before = {number: signal.signal(number, handler) for number in WISHES}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
