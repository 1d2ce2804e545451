"""Who is at work on what: one claim per recording, so that two runs on one output folder never do the same work twice.

A run is known by a file of its own, ``logs/claims/RUN.run``, that it keeps locked and touches while it lives. A claim
is a file that holds the name of a run. It counts as long as that run lives:

- on this very machine (same boot) the kernel knows: the lock on the file of a dead process is free, whatever the
  process numbers of containers say;
- elsewhere the file must have been touched lately, by the clock of the file system, which is the only one that all see.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from fcpower_bids.store import ATTEMPTS, beside, boot, leftovers, make_folder, sweep, write_text

BEAT_SECONDS, STALE_SECONDS = 20.0, 300.0
"""How often a run says that it lives, and after what silence it counts as dead to other machines."""
POLL_SECONDS = 0.5
UNKNOWN = "unknown"
RUN = re.compile(r"\w+")
"""Names of runs: no other content of a claim becomes the name of a file."""
HEARTBEAT = """import os, select, sys
while not select.select([0], [], [], float(sys.argv[2]))[0]:
    try:
        os.utime(sys.argv[1])
    except OSError:
        pass
"""
"""Program of the process that touches the file of a run until its input is closed, which the end of the run does.

A thread would make it unsafe to fork this process."""
CLAIMS = "logs/claims"
"""Where the claims of an output folder are."""
SHARED = ("logs", "logs/asked", "sourcedata/atlases", "sourcedata/atlases/tpl-*")
"""Folders below that of the outputs whose files are written in turn, each under a claim of its name."""
COMBINE = "combine"
"""Claim of the command that puts outputs together: it writes into these folders without a claim for each file."""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        return str(os.getuid())


@dataclass
class Claims:
    """Claims of one run in one folder."""

    folder: Path
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    is_brief: bool = False
    """Whether all is over long before other machines take a silent run for dead: then nothing touches its file."""
    _held: set[str] = field(default_factory=set)
    _stream: Any = None
    _heart: subprocess.Popen[bytes] | None = None

    def acquire(self, names: Iterable[str]) -> set[str]:
        """Claim the names that no other run holds, and return them."""
        return {name for name in names if name in self._held or self._take(name)}

    def owner(self, name: str) -> str | None:
        """Owner of the claim on ``name``: ``user@host, process 12, since ...``; None without one."""
        self._live()
        run = self._holder(name)
        if run is None or not self._is_alive(run, name):
            return None
        facts = self._facts(run)
        who = f"{facts.get('user', '?')}@{facts.get('host', '?')}, process {facts.get('process', '?')}"
        return f"{who}, since {facts.get('since', '?')}"

    def release(self, names: Iterable[str] | None = None) -> None:
        """Give claims back; all of them when None."""
        for name in list(self._held) if names is None else [name for name in names if name in self._held]:
            self._held.discard(name)
            if self._holder(name) == self.run:
                self._path(name).unlink(missing_ok=True)

    def clear_stale(self) -> None:
        """Remove what killed runs have left: their claims, each taken over first, and then their own files."""
        names = [path.name.removesuffix(".claim") for path in self.folder.glob("*.claim")]
        self.release(self.acquire([name for name in names if name not in self._held]))
        for mark in self.folder.glob("*.run"):
            if not self._is_alive(mark.stem, ""):
                mark.unlink(missing_ok=True)

    def close(self) -> None:
        """Give everything back and say that this run is over."""
        self.release()
        if self._heart is not None:
            self._heart.kill()
            self._heart.communicate()
            self._heart = None
        if self._stream is not None:
            self._mark.unlink(missing_ok=True)
            self._stream.close()
            self._stream = None
        with suppress(OSError):
            self.folder.rmdir()  # only when no other process is there

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.claim"

    @property
    def _mark(self) -> Path:
        return self.folder / f"{self.run}.run"

    def _take(self, name: str) -> bool:
        self._live()
        if not self._create(self._path(name)) and not self._take_over(name):
            return False
        self._held.add(name)
        return True

    def _create(self, path: Path) -> bool:
        """Make a file with the name of this run, unless there is one: the system lets one of all succeed."""
        while True:
            try:
                handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                return False
            except FileNotFoundError:  # the last of the others has just removed the folder
                self._revive()
                continue
            try:
                with os.fdopen(handle, "w", encoding="ascii") as stream:
                    stream.write(self.run)
            except OSError:  # a full disk: a claim without a name would be waited for until it is stale
                path.unlink(missing_ok=True)
                raise
            return True

    def _take_over(self, name: str) -> bool:
        """Replace the claim of a dead run; of several that try, the maker of the marker does."""
        dead = self._holder(name)
        if dead is None:
            return self._create(self._path(name))
        if self._is_alive(dead, name):
            return False
        marker = self.folder / f"{name}.after-{dead}"
        if not self._create(marker):
            if self._age(marker) > STALE_SECONDS:
                marker.unlink(missing_ok=True)
            return False
        try:
            if self._holder(name) != dead:  # another process was quicker, and is done with the marker
                return False
            temporary = beside(self._path(name))
            temporary.write_text(self.run, encoding="ascii")
            os.replace(temporary, self._path(name))
            return True
        finally:
            marker.unlink(missing_ok=True)

    def _holder(self, name: str) -> str | None:
        """The run that a claim names; `UNKNOWN` where it names none, as while it is written; None without a claim."""
        try:
            found = self._path(name).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            return UNKNOWN
        return found if RUN.fullmatch(found) else UNKNOWN

    def _facts(self, run: str) -> dict[str, Any]:
        try:
            facts = json.loads((self.folder / f"{run}.run").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def _is_alive(self, run: str, name: str) -> bool:
        if run == self.run:
            return True
        if run == UNKNOWN:
            return self._age(self._path(name)) < STALE_SECONDS
        mark = self.folder / f"{run}.run"
        if self._facts(run).get("boot") == boot():
            with suppress(OSError), mark.open("rb") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
                except OSError:  # a file system without locks
                    return self._age(mark) < STALE_SECONDS
            return False
        return self._age(mark) < STALE_SECONDS

    def _age(self, path: Path) -> float:
        """Seconds since a file was touched, by the clock of the file system; for ever when it is not there."""
        try:
            os.utime(self._mark)
            return self._mark.stat().st_mtime - path.stat().st_mtime
        except OSError:
            return float("inf")

    def _live(self) -> None:
        """Say once that this run lives, and go on saying so."""
        if self._stream is not None:
            return
        self._revive()
        if not self.is_brief:  # in a session of its own: Ctrl-C in a terminal ends it with this run, not before
            program = [sys.executable, "-I", "-S", "-c", HEARTBEAT, str(self._mark.absolute()), str(BEAT_SECONDS)]
            null = subprocess.DEVNULL
            self._heart = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=null, stderr=null, cwd="/", start_new_session=True
            )

    def _revive(self) -> None:
        facts = {"user": _user(), "host": os.uname().nodename, "process": os.getpid(), "boot": boot()}
        facts["since"] = time.strftime("%Y-%m-%d %H:%M:%S")
        # Locked before it has its name, so that no process ever sees it free.
        temporary = beside(self._mark)
        stream = self._open(temporary)
        with suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        json.dump(facts, stream)
        stream.flush()
        os.replace(temporary, self._mark)
        if self._stream is not None:
            self._stream.close()
        self._stream = stream

    def _open(self, path: Path) -> TextIO:
        """Make a file in the folder, which the last of the others may remove at any moment before there is one."""
        for _ in range(ATTEMPTS):
            make_folder(self.folder)
            with suppress(FileNotFoundError):
                return path.open("w", encoding="utf-8")
        return path.open("w", encoding="utf-8")


@contextmanager
def claims_in(folder: Path, is_brief: bool = False) -> Iterator[Claims]:
    """Open the claims of a run on a folder, and give them back at the end whatever happens."""
    claims = Claims(folder, is_brief=is_brief)
    try:
        yield claims
    finally:
        claims.close()


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Do something that no other run does meanwhile: half-written files of its name are those of killed ones."""
    with claims_in(folder) as claims:
        while not claims.acquire([name]):
            time.sleep(POLL_SECONDS)
        claims.clear_stale()
        yield


@contextmanager
def turn(folder: Path, name: str, patience: float = 60.0) -> Iterator[None]:
    """Do something short one after the other, e.g. merge into a shared file; after ``patience`` seconds anyhow."""
    with claims_in(folder, is_brief=True) as claims:
        until = time.monotonic() + patience
        while not claims.acquire([name]) and time.monotonic() < until:
            time.sleep(POLL_SECONDS / 10)
        yield


def write_shared(output_dir: Path, path: Path, text: str) -> Path:
    """Write a file that many jobs write alike, in turn: only where it does not say so already."""
    try:
        known = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        known = None
    if known == text:
        return path
    with turn(output_dir / CLAIMS, path.name):
        return write_text(path, text)


def sweep_shared(output_dir: Path) -> None:
    """Remove what killed runs have left of files that are written in turn, but for those that are being written."""
    folders = [output_dir, *(folder for place in SHARED for folder in output_dir.glob(place))]
    left = [folder / name for folder in folders for name in leftovers(folder)]
    if left:
        with claims_in(output_dir / CLAIMS, is_brief=True) as claims:
            free = claims.acquire([COMBINE, *(path.name for path in left)])
            sweep(path for path in left if COMBINE in free and path.name in free)
