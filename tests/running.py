"""Run the application as a user does, and read what it wrote."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tests.command import main

PLAIN = ("--strategy", "none", "--high-pass", "0", "--low-pass", "0", "--fd-thresh", "0", "--dummy-scans", "0")
"""No cleaning at all, but the z-score."""
LINKS = "dataset_description.json"
"""Its links to the inputs are relative, so they differ between outputs in different places."""
NUMBER = re.compile(r"[+-](\d+\.?\d*(e[+-]?\d+)?|inf|nan)", re.IGNORECASE)
FOOT = re.compile(rb"<footer>.*?</footer>")
PATIENCE = 500
"""Seconds that anything may take before it counts as hung: more than a busy machine needs, less than a test has."""


@dataclass(frozen=True)
class Finished:
    """What a run left behind."""

    code: int
    err: str
    out: str
    output: Path = Path()

    def status(self) -> pd.DataFrame:
        """The table that the run has written."""
        return pd.read_csv(self.output / "logs" / "status.tsv", sep="\t", index_col="recording", keep_default_na=False)

    def states(self) -> dict[str, str]:
        return self.status()["state"].to_dict()

    def reason(self, recording: str) -> str:
        table = self.status()
        return str(table.loc[[name for name in table.index if name.startswith(recording)], "reason"].iloc[0])

    def files(self, pattern: str) -> list[Path]:
        return sorted(self.output.rglob(pattern))

    def file(self, recording: str, ending: str) -> Path:
        (found,) = self.output.rglob(f"{recording}_*{ending}")
        return found


def run(*words: object, output: Path = Path(), code: int | None = None) -> Finished:
    """Run a command in this process (its workers are processes of their own), which has to end with this exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = main(list(map(str, words)))
    assert code in (None, found), f"exit code {found}: {err.getvalue()}"
    return Finished(found, err.getvalue(), out.getvalue(), output)


def run_app(bids_dir: Path, output: Path, *options: object, code: int | None = None) -> Finished:
    """Run the participant level in this process."""
    return run(bids_dir, output, "participant", *options, output=output, code=code)


def start_app(
    bids_dir: Path,
    output: Path,
    *options: object,
    before: Sequence[str] = (),
    program: Sequence[object] = ("-m", "fcpower_bids"),
    **popen: object,
) -> subprocess.Popen[str]:
    """Start the participant level as a process group of its own; ``before`` is a command that starts commands."""
    environment = {**os.environ, **popen.pop("env", {})}  # type: ignore[dict-item]
    command = [*before, sys.executable, *program, bids_dir, output, "participant", *options]
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
        **popen,  # type: ignore[call-overload]
    )


def contents(folder: Path, *without: str) -> dict[str, bytes]:
    """Every file below a folder and its bytes, but those below some of its folders.

    The foot of pages is left out: it tells date, version of Python, and the command with the names of the folders.
    """
    return {
        str(path.relative_to(folder)): FOOT.sub(b"", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in without
    }


def run_group(bids_dir: Path, output: Path, *options: object, code: int = 0) -> Finished:
    """Run the group level in this process."""
    return run(bids_dir, output, "group", *options, output=output, code=code)


def is_alive(process: int) -> bool:
    """Whether a process is there, and not merely its entry that nobody has asked for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so; it fails where that takes too long."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen within {PATIENCE} s"
        time.sleep(0.02)


def run_by_spreadsheet(folder: Path) -> list[str]:
    """Cells of tables that begin as formulas do, and are no numbers."""
    found = []
    for path in folder.rglob("*.tsv"):
        cells = re.split(r"[\t\n]", path.read_text(encoding="utf-8"))
        found += [cell for cell in cells if re.match("[=+@-].", cell) and not NUMBER.fullmatch(cell)]
    return found
