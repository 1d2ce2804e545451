"""A live line in a terminal, plain lines in a log, nothing with --quiet; a summary at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import pandas as pd
from tqdm import tqdm

from fcpower_bids.errors import DatasetError, FcPowerError, Incomplete, Unfit
from fcpower_bids.outputs.status import FAILED, Status, describe_reasons, explain
from fcpower_bids.settings import Settings

FINISHED = "finished"
"""Done or excluded: the summary distinguishes them."""
ELSEWHERE = "elsewhere"
"""In the place of a node: another run is at work on the recording."""


def say(text: str, settings: Settings) -> None:
    """Write one line to the standard error, above a live line if there is one; nothing with ``--quiet``."""
    if not settings.quiet:
        tqdm.write(text, file=sys.stderr)


class Outcome(NamedTuple):
    """How a recording ended."""

    recording: str  # its name
    failed_at: str = ""  # the node that failed; empty when none did


class Progress:
    """Progress of the recordings."""

    def __init__(self, total: int, settings: Settings) -> None:
        self.total = total
        self.settings = settings
        self.started = time.monotonic()
        self._bar: tqdm | None = None
        self._count = 0

    def say(self, text: str) -> None:
        """Write one line."""
        say(text, self.settings)

    def begin(self, already_done: int) -> None:
        """Start counting."""
        self._count = already_done
        again = f", {already_done} of them finished before" if already_done else ""
        self.say(f"{self.total} recording{'s' * (self.total != 1)}{again}")
        if sys.stderr.isatty() and not self.settings.quiet:
            tqdm.monitor_interval = 0  # no thread: processes are forked from this one
            self._bar = tqdm(total=self.total, initial=already_done, unit="rec", file=sys.stderr, dynamic_ncols=True)

    def finished(self, outcome: Outcome) -> None:
        """Count a recording that has ended."""
        self._step(outcome.recording, f"failed at {outcome.failed_at}" if outcome.failed_at else FINISHED)

    def failed(self, recording: str) -> None:
        """Note a recording whose process was killed."""
        self._step(recording, "failed")

    def _step(self, recording: str, what: str) -> None:
        self._count += 1
        if self._bar is not None:
            self._bar.update(1)
            if what == FINISHED and not self.settings.verbose:
                return
        elapsed = time.monotonic() - self.started
        self.say(f"[{self._count}/{self.total}] {recording}: {what} ({elapsed:.0f} s)")

    def end(self) -> None:
        """Stop the live line."""
        if self._bar is not None:
            self._bar.close()

    def summarise(self, table: pd.DataFrame, output_dir: Path) -> None:
        """Print the status of the recordings, with the reason of each that is not done."""
        rows = table[table["state"] != "done"].itertuples()
        statuses = [Status(str(row.recording), str(row.state), str(row.stage), str(row.reason)) for row in rows]
        for line in describe_reasons([one for one in statuses if one.state != FAILED], self.settings.verbose):
            self.say(line)
        for line in describe_reasons([one for one in statuses if one.state == FAILED], self.settings.verbose):
            tqdm.write(line, file=sys.stderr)  # an error is printed with --quiet too
        counts = table["state"].value_counts()
        self.say(", ".join(f"{count} {state}" for state, count in counts.items()) or "nothing to do")
        self.say(f"Outputs: {output_dir}  Pages: {output_dir}/sub-*.html  Status: {output_dir}/logs/status.tsv")


Result = TypeVar("Result")
PAGE, INDEX, CHECK = "page", "index", "check"
"""The page and the check count where nothing else was asked for; the index of the recordings is never asked for."""


class Attempts:
    """Run steps and note those that are done, left out (the data do not allow), refused or failed, with reasons."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.done: list[str] = []
        self.left_out: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._causes: list[Exception] = []
        asked = (PAGE,) * settings.reports_only + (CHECK,) * settings.check
        self._apart = {INDEX, PAGE, CHECK}.difference(asked)

    def run(
        self, name: str, work: Callable[[], Result], may_leave_out: Callable[[Unfit], bool] = lambda error: False
    ) -> Result | None:
        """Do the work and return what it returns; None where it could not be done."""
        try:
            found = work()
        except Unfit as error:
            (self.left_out if may_leave_out(error) else self.refused)[name] = str(error)
            say(f"{name}: left out. {error}", self.settings)
        except Incomplete as error:
            self.fail(name, str(error), error)
            self.finish(name)
        except FcPowerError as error:
            self.refused[name] = str(error)
            say(f"{name}: left out. {error}", self.settings)
        except Exception as error:
            self.fail(name, explain(error, self.settings.output_dir, f"group_{name}"), error)
        else:
            self.finish(name)
            return found
        return None

    def finish(self, name: str) -> None:
        """Count what was asked for."""
        if name not in self._apart:
            self.done.append(name)

    def fail(self, name: str, sentence: str, error: Exception) -> None:
        """Note a failure that the caller has met."""
        self.failed[name] = sentence
        self._causes.append(error)
        say(f"{name}: failed. {sentence}", self.settings)

    def describe_if_nothing_can_be_done(self) -> None:
        """Raise when the data or the choices allow nothing of all that was asked for."""
        reasons = self.left_out | self.refused
        if reasons and not self.done and not self.failed:
            raise DatasetError(_lines(reasons))

    def tell(self) -> None:
        """Raise one error for everything that was asked for and is not there. Raises Incomplete, DatasetError."""
        if self.failed:
            raise Incomplete(_lines(self.refused | self.failed), everything=not self.done) from self._causes[0]
        if self.refused:
            raise DatasetError(_lines(self.refused))


def _lines(reasons: dict[str, str]) -> str:
    return "\n".join(f"{name}: {reason}" for name, reason in reasons.items())
