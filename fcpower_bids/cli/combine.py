"""``fcpower_bids combine``: outputs of single jobs, as folders or zips, put together in one folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli import status
from fcpower_bids.cli.parser import Parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids combine", description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for the outputs of all; it may hold some already")
    parser.add_argument(
        "sources", type=Path, nargs="+", help="outputs of a job: a folder, a zip, or a folder with one of these per job"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Put outputs together, make the table and the index of all, and return the exit code of `status`."""
    options = build_parser().parse_args(argv)
    from fcpower_bids.workflows.combining import combine_outputs  # no other word of the line needs it

    number, spread = combine_outputs(options.output_dir, options.sources)
    print(f"{number} recordings from {len(options.sources)} place(s)")  # noqa: T201
    if spread:
        print(  # noqa: T201
            f"{len(spread)} participants have no page, since their sessions came apart ({spread[0]}): "
            "participant --reports-only makes them"
        )
    return status.main([str(options.output_dir)])
