"""``fcpower_bids selftest``: a recording with known answers through every step of the installed program."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fcpower_bids.cli.parser import Parser
from fcpower_bids.errors import UsageError

if TYPE_CHECKING:
    from fcpower_bids.workflows.selftest import Outcome


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids selftest", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="new folder for the files and the record [temporary]")
    parser.add_argument("--against", type=Path, help="selftest.json of an earlier test, to see which numbers moved")
    parser.add_argument(
        "--encoder-weights", type=Path, nargs="+", default=(), help="folders of encoders, each to be tested as well"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the test, print the table and the digest of the record; 0 where all is as stored, else 1."""
    options = build_parser().parse_args(argv)
    if options.folder is not None and options.folder.exists() and any(options.folder.iterdir()):
        raise UsageError(f"{options.folder} is not empty. Name a new folder.")
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.workflows.selftest import run_selftest

    if options.folder is not None:
        outcome = run_selftest(options.folder.resolve(), options.against, _say, options.encoder_weights)
        _write(outcome, options.folder)
    else:
        with tempfile.TemporaryDirectory(prefix="fcpower_selftest_") as folder:
            outcome = run_selftest(Path(folder), options.against, _say, options.encoder_weights)
    return _tell(outcome)


def _write(outcome: Outcome, folder: Path) -> None:
    # these load numpy
    from fcpower_bids.outputs.tables import json_text, write_declared
    from fcpower_bids.store import write_text
    from fcpower_bids.workflows.selftest import SELFTEST

    write_declared(folder / "selftest.tsv", outcome.table, SELFTEST)
    write_text(folder / "selftest.json", json_text(outcome.record))


def _tell(outcome: Outcome) -> int:
    width = max(14, outcome.table["step"].str.len().max() + 2)
    for row in outcome.table.to_dict("records"):
        difference = f"{row['difference']:.1e}" if row["difference"] == row["difference"] else ""
        _say(f"{row['step']:<{width}}{row['verdict']:<12}{difference:<10}(allowed {row['tolerance']:.0e})")
    _say(", ".join(f"{name} {number}" for name, number in outcome.record["packages"].items()))
    _say(f"record SHA-256 {outcome.digest}")
    fault = outcome.first_fault
    if fault is None:
        _say(f"fcpower_bids {outcome.record['version']} computes what it should.")
        return 0
    _say(f"FAILED: the first step that differs is '{fault}'. Do not use this installation.")
    return 1


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201
