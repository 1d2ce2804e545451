"""From the command line to an exit code: the levels, and the commands beside them."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser, parse_settings
from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.resources import unsearched
from fcpower_bids.settings import Settings
from fcpower_bids.store import explain_refusal, may_write, refuse_links

INTERRUPTED, UNREAD = 130, 141
"""Exit codes of a program that is ended by SIGINT, and by SIGPIPE."""
LONG = re.compile(r"[^\s/]{300,}")
"""What is longer than any name of a file: a cell of a table, of which the beginning says enough."""
SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the application and return its exit code; errors for people go to the standard error, one per line."""
    argv = list(sys.argv[1:] if argv is None else argv)
    leave_surroundings()
    try:
        _limit_threads(1)  # before what is asked for is imported: numpy reads it when it is loaded
        if argv and argv[0] in COMMANDS:
            code = COMMANDS[argv[0]](argv[1:])
        else:
            settings = parse_settings(argv)
            refuse_links(settings.output_dir)
            _limit_threads(settings.run.omp_nthreads)
            try:
                code = level_of(settings)(settings)
            except SystemExit as error:
                if error.code:  # of a process that leaves the words to the first one
                    raise
                raise RuntimeError("the run was ended from within, with exit code 0: no success") from error
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
        if (refused := explain_refusal(error)) is not None:
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
                return explain_refusal(PermissionError(error.errno, error.strerror, path))
        except (OSError, ValueError):
            continue
    return None


def predict_parser() -> argparse.ArgumentParser:
    """Return the parser of ``predict``."""
    parser = Parser(prog="fcpower_bids predict", description="Apply saved models to the scans of an output folder.")
    parser.add_argument("models", type=Path, nargs="+", help="folders of OUTPUT_DIR/group/models, of --save-models")
    parser.add_argument("output_dir", type=Path, help="outputs of the participant level")
    parser.add_argument(
        "--phenotypes", type=Path, help="table with the age of these people [participants.tsv of the dataset]"
    )
    return parser


def predict(argv: Sequence[str]) -> int:
    """Predict new scans, a table per model; return 0 where all have a page, 4 where some have not, 5 where none."""
    options = predict_parser().parse_args(argv)
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.clinic.predict import DONE, predict_scans, say_predictions

    refuse_links(options.output_dir)
    if not may_write(options.output_dir / "group"):
        raise UsageError(f"{options.output_dir} is closed to you, so nothing can be written there. Open it.")
    names = [path.resolve().name for path in options.models]  # by which tables and pages are called
    if alike := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"Two models are called {alike}, and so would their tables be: rename the folder of one.")
    states: list[str] = []
    broken: list[str] = []
    for model in options.models:
        predictions = predict_scans(model, options.output_dir, options.phenotypes)
        say_predictions(predictions, print)
        states += predictions.frame["state"].tolist()
        broken += predictions.broken
    for sentence in broken:
        print(f"fcpower_bids: {sentence}", file=sys.stderr)  # noqa: T201
    done = states.count(DONE)
    return 5 if not done else 4 if broken or done < len(states) else 0


def prefetch_parser() -> argparse.ArgumentParser:
    """Return the parser of ``prefetch``."""
    parser = Parser(prog="fcpower_bids prefetch", description="Fill a folder with atlases for runs without network.")
    parser.add_argument("--folder", type=Path, required=True, help="where to put the files")
    parser.add_argument("--atlas", nargs="+", default=["Schaefer400"], help="atlas names [Schaefer400]")
    parser.add_argument("--space", nargs="+", default=list(SPACES), help=f"spaces [{' '.join(SPACES)}]")
    return parser


def prefetch(argv: Sequence[str]) -> int:
    """Fetch what was asked for and list it with checksums; return the exit code."""
    options = prefetch_parser().parse_args(argv)
    # loads nibabel or nilearn, which are slow to load
    from fcpower_bids.imaging.atlas import prefetch_atlases

    table = prefetch_atlases(options.atlas, options.space, options.folder)
    fetched = f"Fetched into {options.folder}; checksums: {table}."
    print(f"{fetched} Use it with --atlas-dir {options.folder.absolute()}")  # noqa: T201
    return 0


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {"predict": predict, "prefetch": prefetch}
"""What may stand in place of ``bids_dir output_dir level``."""


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
