"""Mistakes of the program: their traceback goes to ``logs/crashes``, and a sentence says where it is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from traceback import format_exception

from fcpower_bids.errors import NO_ROOM, FcPowerError
from fcpower_bids.store import write_text


def explain(error: Exception, output_dir: Path, name: str) -> str:
    """Describe an error in a sentence; only errors made for people, and the system's, are quoted as they are."""
    if isinstance(error, FcPowerError):
        return str(error)
    if isinstance(error, MemoryError):
        return "There was not enough memory. Give more, or --low-mem."
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"{error.strerror} while writing: make room, and run the same command again."
    if isinstance(error, IsADirectoryError) and (taken := error.filename2 or error.filename):
        return (
            f"{taken} is a folder, and the run keeps a file of that name. Move it away, and run the same command again."
        )
    path = output_dir / "logs" / "crashes" / f"{name}.txt"
    with suppress(OSError):  # the sentence matters more
        write_text(path, "".join(format_exception(error)))
    where = path.relative_to(output_dir).as_posix()
    last = (str(error).strip().splitlines() or [""])[-1]  # nipype puts a whole traceback into its message
    what = " ".join(f"{type(error).__name__}: {last}".split())
    if isinstance(error, OSError) and error.errno is not None:
        return f"The system refused to read or write ({what}). Mend that, and run the same command again; see {where}."
    return f"Internal error, please report it with {where} ({what})."


def explain_step(output_dir: Path, workflow: str) -> str:
    """Say what nipype noted of a step that failed outside our own code; nothing where it noted nothing."""
    notes = sorted((output_dir / "logs" / "crashes").glob("crash-*.txt"), reverse=True)
    for path in notes:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if not lines or f".{workflow}." not in lines[0]:
            continue
        if any(f"[Errno {number}]" in lines[-1] for number in NO_ROOM):
            return f"Nothing more could be written ({lines[-1]}): make room, and run the same command again."
        return f"Internal error, please report it with {path.relative_to(output_dir).as_posix()} ({lines[-1]})."
    return ""
