"""``fcpower_bids combine``: outputs of jobs, or of sites, put together in one folder."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli import status
from fcpower_bids.cli.parser import Parser

SITE = re.compile(r"([A-Za-z0-9]+)=(.+)")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids combine", description=__doc__)
    parser.add_argument("output_dir", type=Path, help="folder for the outputs of all; it may hold some already")
    parser.add_argument(
        "sources",
        type=site_and_path,
        nargs="+",
        metavar="[SITE=]PATH",
        help="outputs of a job: a folder, a zip, or a folder with one of these per job; SITE=PATH where sites have "
        "people of their own, whose labels get the site before them where two sites have the same",
    )
    return parser


def site_and_path(text: str) -> tuple[str, Path]:
    """Divide ``SITE=PATH``; a path that is there is one, whatever it is called."""
    found = None if Path(text).exists() else SITE.fullmatch(text)
    return (found[1], Path(found[2])) if found else ("", Path(text))


def main(argv: Sequence[str] | None = None) -> int:
    """Put outputs together, make the table and the index of all, and return the exit code of `status`."""
    options = build_parser().parse_args(argv)
    from fcpower_bids.workflows.merging.merge import merge_outputs  # no other word of the line needs it

    found = merge_outputs(options.output_dir, options.sources)
    print(f"{found.recordings} recordings from {len(options.sources)} place(s)")  # noqa: T201
    if found.renamed:
        old, new = next(iter(found.renamed.items()))
        print(  # noqa: T201
            f"{len(found.renamed)} participants have new labels, since another site has theirs ({old} is sub-{new}): "
            "logs/combined.tsv has all"
        )
    if found.copies:
        print(f"left out: {len(found.copies)} copies that are of no recording ({found.copies[0]})")  # noqa: T201
    if found.lost:
        print(  # noqa: T201
            f"left out: {len(found.lost)} links to input datasets that lead nowhere from here ({found.lost[0]}), and "
            "the tables of people there; name the outputs where they were made, or put participants.tsv into them"
        )
    if found.spread:
        print(  # noqa: T201
            f"{len(found.spread)} participants have no page, since their sessions came apart ({found.spread[0]}): "
            "participant --reports-only makes them. If these are different people of several sites, combine anew with "
            "SITE=PATH"
        )
    return status.main([str(options.output_dir)])
