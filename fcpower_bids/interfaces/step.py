"""Base of all nodes."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from nipype.interfaces.base import SimpleInterface, isdefined


class Step(SimpleInterface):
    """A node that works in its own folder and keeps the error that ended it; nipype would keep its text only."""

    error: BaseException | None = None

    def _run_interface(self, runtime: Any) -> Any:
        self.error = None
        try:
            self.work(Path(runtime.cwd))
        except BaseException as error:
            self.error = error
            raise
        runtime.peak_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
        return runtime

    def work(self, folder: Path) -> None:
        """Read ``self.inputs``, write into ``folder``, set ``self._results``."""
        raise AssertionError("each node says what it does")

    def given(self, name: str) -> Any:
        """Return an input, or None where it was not given."""
        value = getattr(self.inputs, name)
        return value if isdefined(value) else None

    def path(self, name: str) -> Path | None:
        """Return an input that is a file or folder, or None where it was not given."""
        value = self.given(name)
        return None if value is None else Path(value)
