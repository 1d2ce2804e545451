"""``fcpower_bids predict``: apply saved models to the scans of an output folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fcpower_bids.cli.parser import Parser
from fcpower_bids.errors import UsageError
from fcpower_bids.settings.command import join_words


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids predict", description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="folders of OUTPUT_DIR/group/models, of --save-models")
    parser.add_argument("output_dir", type=Path, help="outputs of the participant level")
    parser.add_argument("--participant-label", nargs="+", default=[], help="participants [all]")
    parser.add_argument("--table", type=Path, help="where to write, for one model [OUTPUT_DIR/group/predicted]")
    parser.add_argument(
        "--phenotypes", type=Path, help="table with the age (and sex) of these people [participants.tsv of the dataset]"
    )
    parser.add_argument("--no-pages", action="store_true", help="only the tables, no page per person")
    parser.add_argument(
        "--accept-differences", action="store_true", help="predict scans that were cleaned otherwise than the model's"
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
    if options.table and len(options.models) > 1:
        raise UsageError("--table names one table, and there are several models. Leave it out.")
    if options.table and options.table.is_dir():
        raise UsageError(f"--table {options.table} is a folder. Name a file, such as {options.table / 'table.tsv'}.")
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.outputs.dataset import note_command
    from fcpower_bids.slices.clinic.predict import DONE, Request, predict_scans, say_predictions
    from fcpower_bids.store import may_write

    if not may_write(options.output_dir / "group") and not (options.table and options.no_pages):
        raise UsageError(
            f"{options.output_dir} is closed to you, so no table and no page can be written there. Write the table "
            "elsewhere: --table FILE --no-pages."
        )
    request = Request(
        options.output_dir,
        tuple(label.removeprefix("sub-") for label in options.participant_label),
        options.phenotypes,
        options.accept_differences,
        options.accept_no_skill,
        not options.no_pages,
        partial(_command, options),
    )
    states: list[str] = []
    broken: list[str] = []
    for model in options.models:
        found = predict_scans(model, request, options.table)
        say_predictions(found, print)
        states += found.frame["state"].tolist()
        broken += found.broken
    people = ["--participant-label", *options.participant_label] if options.participant_label else []
    note_command(options.output_dir, "predict", join_words([*_words(options), *people], whole=True))
    for sentence in broken:
        print(f"fcpower_bids: {sentence}", file=sys.stderr)  # noqa: T201
    done = states.count(DONE)
    return 5 if not done else 4 if broken or done < len(states) else 0


def _words(options: argparse.Namespace) -> list[str | Path]:
    """The command without the labels of its participants."""
    words: list[str | Path] = ["fcpower_bids", "predict", *options.models, options.output_dir]
    for name in ("phenotypes", "table"):
        value = getattr(options, name)
        words += [f"--{name}", value] if value else []
    flags = {"--no-pages": options.no_pages, "--accept-differences": options.accept_differences}
    flags["--accept-no-skill"] = options.accept_no_skill
    return [*words, *(flag for flag, given in flags.items() if given)]


def _command(options: argparse.Namespace, person: str) -> str:
    """The command in words, for the page of a person, which is passed on: it names no other."""
    people = ["--participant-label", person.removeprefix("sub-")] if options.participant_label else []
    return join_words([*_words(options), *people])
