"""``fcpower_bids export``: a copy of the outputs to share, without names of people, places and machines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids export", description=__doc__)
    parser.add_argument("output_dir", type=Path, help="outputs of the participant and the group level")
    parser.add_argument("share", type=Path, help="a new folder for the copy, or an earlier copy, which is replaced")
    parser.add_argument("--tables", action="store_true", help="make the tables whose arrays --compact wrote instead")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the copy, and say what is not in it and what is personal nevertheless."""
    options = build_parser().parse_args(argv)
    from fcpower_bids.slices.sharing.export import share_outputs  # loads pandas, which no other word of the line needs

    number, left_out, ids = share_outputs(options.output_dir, options.share, options.tables)
    for one in left_out:
        print(f"left out: {one}")  # noqa: T201
    print(f"{number} files in {options.share}. Who is who: {ids}; keep it to yourself.")  # noqa: T201
    print("Series, FC and FC^alpha identify people whatever their names: share them as you would share the scans.")  # noqa: T201
    return 0
