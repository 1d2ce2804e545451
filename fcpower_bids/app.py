"""From the command line to an exit code."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from fcpower_bids.errors import CLOSED, FcPowerError, UsageError
from fcpower_bids.resources import unsearched
from fcpower_bids.settings import Settings, describe_unread
from fcpower_bids.store import explain_no_room, place_of, refuse_links

INTERRUPTED, UNREAD = 130, 141
"""Exit codes of a program that is ended by SIGINT, and by SIGPIPE."""
LONG = re.compile(r"[^\s/]{300,}")
"""What is longer than any name of a file: a cell of a table, of which the beginning says enough."""
COMMANDS = ("predict", "prefetch")
"""Words that may stand in place of ``bids_dir output_dir level``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the application and return its exit code; errors for people go to the standard error, one per line."""
    argv = list(sys.argv[1:] if argv is None else argv)
    leave_surroundings()
    try:
        _limit_threads(1)  # before what is asked for is imported: numpy reads it when it is loaded
        if argv[:1] == ["predict"]:
            from fcpower_bids.cli.commands import predict

            code = predict(argv[1:])
        elif argv[:1] == ["prefetch"]:
            from fcpower_bids.cli.commands import prefetch

            code = prefetch(argv[1:])
        else:
            from fcpower_bids.cli.parser import parse_settings  # the commands have no need of it

            settings = parse_settings(argv)
            refuse_links(settings.output_dir)
            _limit_threads(settings.run.omp_nthreads)
            code = _run(settings)
        sys.stdout.flush()
        return code
    except FcPowerError as error:
        if "--debug" in argv:
            traceback.print_exc()
        refused = _closed(argv, str(error))
        shown = LONG.sub(lambda match: f"{match[0][:60]}... ({len(match[0])} characters)", refused or str(error))
        print("\n".join(f"fcpower_bids: {line}" for line in shown.splitlines()), file=sys.stderr)  # noqa: T201
        return UsageError.exit_code if refused else error.exit_code
    except BrokenPipeError:  # who reads the output, as head does, has enough
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return UNREAD
    except KeyboardInterrupt:
        print("fcpower_bids: interrupted; run the same command again to go on.", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except Exception as error:
        if (refused := _refused(error)) is not None:
            print(f"fcpower_bids: {refused}", file=sys.stderr)  # noqa: T201
            return UsageError.exit_code
        traceback.print_exc()
        print(f"fcpower_bids: internal error ({error!r}); please report it with the lines above.", file=sys.stderr)  # noqa: T201
        return 1


def leave_surroundings() -> None:
    """Import nothing from the current folder, which ``-m`` puts first, and go on without a home or a name."""
    os.environ["PYTHONSAFEPATH"] = "1"  # for all processes that are started from this one, from Python 3.11 on
    try:
        home = Path.home()
        known = home.is_dir() and os.access(home, os.W_OK | os.X_OK)
    except (RuntimeError, OSError):
        known = False
    if not known:
        folder = tempfile.mkdtemp(prefix="fcpower-home-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["HOME"] = folder
    # getpass asks the variable first, and fails for a number without a name.
    os.environ.setdefault("LOGNAME", os.environ.get("USER") or str(os.getuid()))


def _run(settings: Settings) -> int:
    """Say which choices nothing reads, and run the level."""
    from fcpower_bids.analyses import analyses_to_run  # the commands have no need of them
    from fcpower_bids.parallel import say

    for line in describe_unread(settings, analyses_to_run(settings)):
        say(line, settings)
    try:
        return level_of(settings)(settings)
    except SystemExit as error:
        if error.code:  # of a process that leaves the words to the first one
            raise
        raise RuntimeError(
            "the run was ended from within, with exit code 0: by a library, and not as a success"
        ) from error


def level_of(settings: Settings) -> Callable[[Settings], int]:
    """Return the function of a level, which gives the exit code."""
    with unsearched():
        if settings.level == "participant":
            from fcpower_bids.workflows.participant import run_participants

            return run_participants
        if settings.level == "group":
            from fcpower_bids.workflows.group import run_group

            return run_group
        from fcpower_bids.workflows.pretraining import run_pretrain

        return run_pretrain


def _limit_threads(number: int) -> None:
    """Limit the threads of BLAS, on which the last bits depend."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[variable] = str(number)
    os.environ.setdefault("NO_ET", "1")  # nipype's version check


def _closed(argv: Sequence[str], sentence: str) -> str | None:
    """Name a closed folder of the command line that a sentence is about: Python 3.14 hides that it is there at all."""
    for word in argv:
        path = word.rpartition("=")[2]
        try:
            os.stat(os.path.join(path, os.curdir))
        except PermissionError as error:
            if path in sentence or os.path.abspath(path) in sentence:
                return _refused(PermissionError(error.errno, error.strerror, path))
        except (OSError, ValueError):
            continue
    return None


def _refused(error: Exception) -> str | None:
    """Sentence and remedy for a refusal of the operating system; None for anything else."""
    if isinstance(error, OSError) and error.errno in CLOSED and error.filename:
        place = place_of(error)
        if place.name != Path(os.fsdecode(error.filename)).name:
            folder = place.parent
            return f"{folder} is closed to you, so {place.name} cannot be written. Open it, or choose another folder."
        return f"{place} is closed to you. Open it, or choose another folder."
    return explain_no_room(error)


def entry_point() -> None:
    """Console script."""
    gc.set_threshold(100_000)  # garbage of the imports is not searched a thousand times
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = main()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.freeze()  # else the interpreter looks twice through all that was imported for garbage: half a second
    sys.exit(code)
