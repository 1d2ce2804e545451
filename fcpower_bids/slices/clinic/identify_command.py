"""``fcpower_bids identify``: whether scans that bear one name are of one person, with error rates of this folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids identify", description=__doc__)
    parser.add_argument(
        "output_dir", type=Path, help="outputs of the participant level; all its people are the reference"
    )
    parser.add_argument("--participant-label", nargs="+", default=[], help="whose scans are reported [all]")
    parser.add_argument("--atlas", help="name of the atlas, where there are several")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, write the tables, and print what does not look like one person first."""
    options = build_parser().parse_args(argv)
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.slices.clinic.identify import identify_scans, sentences

    found = identify_scans(options.output_dir, tuple(options.participant_label), options.atlas)
    for line in sentences(found):
        print(line)  # noqa: T201
    return 0
