"""``fcpower_bids combine``: outputs of jobs, or of sites, put together in one folder."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fcpower_bids.cli import status
from fcpower_bids.cli.parser import Parser

if TYPE_CHECKING:
    from fcpower_bids.slices.sharing.merge import Merged

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
    from fcpower_bids.slices.sharing.merge import merge_outputs  # no other word of the line needs it

    found = merge_outputs(options.output_dir, options.sources)
    for line in _describe(found):
        print(line)  # noqa: T201
    return status.main([str(options.output_dir)])


def _describe(found: Merged) -> Iterator[str]:
    """Summary of combined and refused recordings."""
    yield f"{_count(found.recordings, 'recording')} from {_count(found.places, 'place')}"
    if found.renamed:
        old, new = next(iter(found.renamed.items()))
        yield (
            f"new labels: {_count(len(found.renamed), 'participant')} whose label another site has ({old} is "
            f"sub-{new}): logs/combined.tsv has all"
        )
    if found.copies:
        yield f"left out: {_count(len(found.copies), 'file')} of no recording, such as copies ({found.copies[0]})"
    if found.lost:
        yield (
            f"left out: {_count(len(found.lost), 'link')} to input datasets that cannot be followed from here "
            f"({found.lost[0]}), and the tables of people there; name the outputs where they were made, or put "
            "participants.tsv into them"
        )
    if found.early:
        yield (
            f"left out: decisions of exclude.tsv about {_count(len(found.early), 'participant')} without a recording "
            f"here ({found.early[0]}): name the site again when it has one"
        )
    if found.spread:
        yield (
            f"no page: {_count(len(found.spread), 'participant')} whose sessions came apart ({found.spread[0]}): "
            "participant --reports-only makes pages. If these are different people of several sites, combine anew with "
            "SITE=PATH"
        )


def _count(number: int, one: str) -> str:
    return f"{number} {one}{'s' * (number != 1)}"
