"""``fcpower_bids prefetch``: fill a folder with atlases and weights, so that everything then runs without network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch what was asked for and list it with checksums; return the exit code."""
    from fcpower_bids.cli.parser import Parser

    parser = Parser(prog="fcpower_bids prefetch", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where to put the files")
    parser.add_argument("--atlas", nargs="+", default=["Schaefer400"], help="atlas names [Schaefer400]")
    parser.add_argument("--space", nargs="+", default=list(SPACES), help=f"spaces [{' '.join(SPACES)}]")
    options = parser.parse_args(argv)
    from fcpower_bids.imaging.atlases import prefetch_atlases

    table = prefetch_atlases(options.atlas, options.space, options.folder)
    print(f"Fetched into {options.folder}; checksums: {table}. Use it with --atlas-dir {options.folder}.")  # noqa: T201
    return 0
