"""``fcpower_bids status``: the table of all recordings of an output folder, from whatever jobs have worked on it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser
from fcpower_bids.errors import DatasetError
from fcpower_bids.store import may_write


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids status", description=__doc__)
    parser.add_argument("output_dir", type=Path, help="outputs of the participant level")
    parser.add_argument("--no-index", action="store_true", help="leave index.html, which reads every quality table")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Renew table and index, print what is not done and why, and return the exit code of a run with these ends."""
    choices = build_parser().parse_args(argv)
    output_dir = choices.output_dir
    from fcpower_bids.workflows.status import survey  # loads pandas, which no other word of the line needs

    try:
        (output_dir / "logs" / "status").stat()  # is_dir() hides from Python 3.14 on that a folder is closed
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{output_dir} holds no outputs of the participant level. Give the folder that it wrote to."
        raise DatasetError(message) from error
    table, code = survey(output_dir)
    for row in table[table["state"] != "done"].itertuples():
        print(f"{row.state}: {row.recording}{f' at {row.stage}' * bool(row.stage)}: {row.reason}")  # noqa: T201
    counts = table["state"].value_counts()
    print(", ".join(f"{count} {state}" for state, count in counts.items()) or "nothing was done yet")  # noqa: T201
    if not may_write(output_dir) or not may_write(output_dir / "logs"):
        print(f"{output_dir} is closed to you, so logs/status.tsv and index.html stay as they are.")  # noqa: T201
    elif not choices.no_index:
        from fcpower_bids.reports.person.index import renew_index  # the table is printed before it loads

        renew_index(output_dir)
    return code
