"""``fcpower_bids push``: publish a pretrained model on the Hugging Face hub, after asking."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser
from fcpower_bids.errors import UsageError


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids push", description=__doc__)
    parser.add_argument("model", type=Path, help="folder of the model: OUTPUT_DIR/encoder/model")
    parser.add_argument("name", help="OWNER/NAME on the hub")
    parser.add_argument("--public", action="store_true", help="make a new repository visible to everyone [only to you]")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Check the model, ask, upload; return the exit code."""
    options = build_parser().parse_args(argv)
    from fcpower_bids.slices.pretraining.publishing import check_model, publish, require_token  # loads torch

    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", options.name):
        raise UsageError(f"'{options.name}' is not a name on the hub; give OWNER/NAME.")
    files = check_model(options.model)
    token = require_token()
    seen = "everyone" if options.public else "you, if it is made now; one that exists stays as visible as it is"
    _say(f"To {options.name} on the hub, for {seen}:")
    for file in files:
        _say(f"  {file} ({file.stat().st_size / 1e6:.2f} MB)")
    _say("config.json lists the people of the training as digests: who can guess labels can check them.")
    if not options.yes and not _agreed():
        _say("Nothing was published.")
        return 0
    _say(f"Published: {publish(files, options.name, token, public=options.public)}")
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("There is no terminal to confirm the publication; give --yes if it is meant.")
    return input("Publish? [y/N] ").strip().lower() in ("y", "yes")


def _say(text: str) -> None:
    print(text)  # noqa: T201
