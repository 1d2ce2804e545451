"""Several things one after the other, of which one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fcpower_bids import plugins
from fcpower_bids.errors import DatasetError, FcPowerError, Incomplete, Unfit
from fcpower_bids.outputs.status import explain
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.run_progress import say

Result = TypeVar("Result")
PAGE, INDEX, CHECK = "page", "index", "check"
"""The page and the check count where nothing else was asked for; the index of the recordings is never asked for."""
BEFORE = "before_analyses"
"""Steps of slices ahead of the analyses; of these only the check can be asked for."""


class Attempts:
    """Run steps, note their states, and report at the end.

    `done`: requested steps that are finished, now or before. `left_out`: steps that the data do not allow and need not,
    with the reason. `refused`: requested steps that are impossible, with the reason: the data or the choices have to be
    changed. `failed`: steps that a mistake of the program or the system has stopped.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.done: list[str] = []
        self.left_out: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._causes: list[Exception] = []
        asked = (PAGE,) * settings.reports_only + (CHECK,) * settings.checks_only
        self._apart = {INDEX, PAGE, CHECK, *plugins.places(BEFORE)}.difference(asked)

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
