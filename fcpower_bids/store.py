"""The one place that writes files: flushed, whole or not at all, and never under a name that another process has."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from fcpower_bids.errors import CLOSED, NO_ROOM, DatasetError

TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.(?:part|old)")
"""Pattern of names that a killed process leaves behind."""
ATTEMPTS = 100
"""How often a folder is made anew that another process has just removed."""


def beside(path: Path, kind: str = "part") -> Path:
    """Return a hidden name in the folder of ``path`` that no other process on any host uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{kind}")


def is_inner(name: Any) -> bool:
    """Whether a name that a file states is relative and has no ``..``: only a link can lead out of the folder."""
    if not isinstance(name, str) or not name.strip("./") or "\0" in name:
        return False
    return name[0] not in "/\\" and name[1:2] != ":" and ".." not in re.split(r"[/\\]", name)  # on Windows too


def stored_path(folder: Path, name: Any) -> Path:
    """Path below a folder of a name that was read from a file, the one way to make it. Raises DatasetError."""
    if is_inner(name):
        path, parts = folder / name, name.split("/")
        # whether a part is a link is quicker to see than where a path leads
        if not any(os.path.islink(f"{folder}/{'/'.join(parts[:n])}") for n in range(1, len(parts) + 1)):
            return path
        place, home = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
        annexes = (above / ".git" / "annex" / "objects" for above in (home, *home.parents))
        if any(place.is_relative_to(allowed) for allowed in (home, *annexes)):
            return path
    raise DatasetError(
        f"{name!r} is named as a file of {folder} and leads out of that folder. Find out who changed the folder, "
        "and remove the name or the link."
    )


WRITTEN = re.compile(r"sub-.*|group|logs|encoder|corpus")
"""Folders of an output folder that are written to."""


def refuse_links(output: Path) -> None:
    """Refuse an output folder of which a folder that is written to leads elsewhere. Raises DatasetError."""
    entries = [entry for entry in os.scandir(output) if WRITTEN.fullmatch(entry.name)] if output.is_dir() else []
    while entries:
        entry = entries.pop()
        name = os.path.relpath(entry.path, output)
        if not entry.is_dir():
            continue
        if entry.is_symlink():
            stored_path(output, name)
        elif name.count(os.sep) < 2:  # sub-X/ses-Y/func is the deepest
            entries += os.scandir(entry.path)


def nearest(folder: Path) -> Path:
    """Return a folder, or the nearest above it that is there."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def may_write(folder: Path) -> bool:
    """Whether files can be made in a folder that is there, or in the one in which it would be."""
    there = nearest(folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def make_folder(path: Path) -> Path:
    """Make a folder that another process may remove at the same moment, which `exist_ok` does not bear."""
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError, FileExistsError):
            path.mkdir(parents=True, exist_ok=True)
            return path
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def atomic(path: Path, *, flush: bool = True) -> Iterator[Path]:
    """Yield a temporary path that takes the place of ``path`` at the end, with the umask's rights. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = beside(path)
    try:
        temporary.touch()
        allowed = temporary.stat().st_mode
        yield temporary
        if temporary.stat().st_mode != allowed:
            temporary.chmod(allowed)
        if flush:
            flush_file(temporary)
        os.replace(temporary, path)
    except Exception as error:
        if (number := _number(error)) is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _number(error: Exception) -> int | None:
    """Number of a system's error that names no file: of a full disk, or as libraries in Rust (safetensors) write it."""
    if isinstance(error, OSError):
        return error.errno if error.errno in NO_ROOM and error.filename is None else None
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def explain_refusal(error: Exception) -> str | None:
    """Sentence for a disk that takes nothing more and for a place that is closed; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in (*NO_ROOM, *CLOSED):
        return None
    place = Path(os.fsdecode(error.filename or ""))
    unfinished = TEMPORARY.fullmatch(place.name)
    place = place.with_name(unfinished[1]) if unfinished else place  # the name of the file, not of its temporary one
    if error.errno in NO_ROOM:
        remedy = "choose a folder that can be written" if error.errno == errno.EROFS else "make room"
        where = f" to {place}" if error.filename else ""
        return f"{error.strerror} while writing{where}: {remedy}, and run the same command again."
    if not error.filename:
        return None
    if unfinished:
        return f"{place.parent} is closed to you, so {place.name} cannot be written. Open it, or choose another folder."
    return f"{place} is closed to you. Open it, or choose another folder."


def flush_file(path: Path) -> None:
    """Wait until the bytes of a file are on the disk: a rename may otherwise outlive a power cut that they do not."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def parse_json(text: str) -> Any:
    """Return the content of a JSON text, which may come from anyone. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_text(path: Path, text: str, *, flush: bool = True) -> Path:
    """Write a text file in one step; the same text gives the same bytes."""
    with atomic(path, flush=flush) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file in one step."""
    with atomic(path) as temporary:
        temporary.write_bytes(content)
    return path


def load_json(path: Path) -> Any:
    """Read a JSON file, with a byte-order mark or without. Raises OSError; ValueError, of too deep a nesting too."""
    return parse_json(path.read_text(encoding="utf-8-sig"))


BLOCK = 2**20
"""Bytes of a file that are digested at a time."""


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def known_digest(path: Path) -> str:
    """Return the SHA-256 of a file that is read once by a process, as long as its size and time stay."""
    stat = path.stat()
    return _known_digest(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2**16)
def _known_digest(path: Path, size: int, changed: int) -> str:
    return digest_of(path)


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a new folder, then put it in the place of ``folder``. Raises OSError."""
    part, old = beside(folder, "part"), beside(folder, "old")
    part.mkdir(parents=True)
    try:
        write(part)
        for file in (path for path in part.rglob("*") if path.is_file()):
            flush_file(file)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def leftovers(folder: Path) -> set[str]:
    """Return the names of files in a folder of which something half-written is there, being written or left behind."""
    matches = (TEMPORARY.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return {match[1] for match in matches if match is not None}


def sweep(folder: Path, wanted: Callable[[str], object] = bool) -> None:
    """Remove what killed processes left of files of a folder, by their names. Call only while holding the claim."""
    for path in folder.iterdir() if folder.is_dir() else ():
        match = TEMPORARY.fullmatch(path.name)
        if match is not None and wanted(match[1]):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


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
                    sweep(folder, name.__eq__)
