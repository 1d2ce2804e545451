"""``fcpower_bids identify``: whether scans that bear one name are of one person, with error rates of this folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fcpower_bids.cli.parser import Parser
from fcpower_bids.settings.command import join_words


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
    """Compare, write tables and pages, print what does not look like one person; return 0, or 4 without a page."""
    options = build_parser().parse_args(argv)
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.outputs.dataset import note_command
    from fcpower_bids.slices.clinic.identify import identify_scans, sentences

    found = identify_scans(
        options.output_dir, tuple(options.participant_label), options.atlas, partial(_command, options)
    )
    note_command(options.output_dir, "identify", join_words(_words(options, options.participant_label), whole=True))
    for line in sentences(found):
        print(line)  # noqa: T201
    for sentence in found.broken:
        print(f"fcpower_bids: {sentence}", file=sys.stderr)  # noqa: T201
    return 4 if found.broken else 0


def _words(options: argparse.Namespace, labels: Sequence[str]) -> list[str | Path]:
    people = ["--participant-label", *labels] if labels else []
    atlas = ["--atlas", options.atlas] if options.atlas else []
    return ["fcpower_bids", "identify", options.output_dir, *people, *atlas]


def _command(options: argparse.Namespace, person: str) -> str:
    """The command in words, for the page of a person, which is passed on: it names no other."""
    return join_words(_words(options, [person.removeprefix("sub-")] if options.participant_label else []))
