"""``fcpower_bids predict``: apply saved models to the scans of an output folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser
from fcpower_bids.errors import UsageError
from fcpower_bids.settings import join_words


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids predict", description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="folders of OUTPUT_DIR/group/models, of --save-models")
    parser.add_argument("output_dir", type=Path, help="outputs of the participant level")
    parser.add_argument("--participant-label", nargs="+", default=[], help="participants [all]")
    parser.add_argument(
        "--phenotypes", type=Path, help="table with the age (and sex) of these people [participants.tsv of the dataset]"
    )
    parser.add_argument(
        "--accept-no-skill",
        action="store_true",
        help="use models, too, that do no better than a guess; every page then says so",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Predict new scans, a table per model; return 0 where all have a page, 4 where some have not, 5 where none."""
    options = build_parser().parse_args(argv)
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.clinic.predict import DONE, predict_scans, say_predictions
    from fcpower_bids.outputs.dataset import note_command
    from fcpower_bids.store import may_write, refuse_links

    refuse_links(options.output_dir)
    if not may_write(options.output_dir / "group"):
        raise UsageError(f"{options.output_dir} is closed to you, so nothing can be written there. Open it.")
    asked = (options.output_dir, options.participant_label, options.phenotypes, options.accept_no_skill)
    words: list[str | Path] = ["fcpower_bids", "predict", *options.models, options.output_dir]
    words += ["--phenotypes", options.phenotypes] if options.phenotypes else []
    words += ["--accept-no-skill"] if options.accept_no_skill else []
    labels = options.participant_label

    def command(person: str) -> str:  # for the page of a person, which is passed on: it names no other
        return join_words([*words, *(["--participant-label", person.removeprefix("sub-")] if labels else [])])

    states: list[str] = []
    broken: list[str] = []
    for model in options.models:
        found = predict_scans(model, *asked, command)
        say_predictions(found, print)
        states += found.frame["state"].tolist()
        broken += found.broken
    people = ["--participant-label", *labels] if labels else []
    note_command(options.output_dir, "predict", join_words([*words, *people], whole=True))
    for sentence in broken:
        print(f"fcpower_bids: {sentence}", file=sys.stderr)  # noqa: T201
    done = states.count(DONE)
    return 5 if not done else 4 if broken or done < len(states) else 0
