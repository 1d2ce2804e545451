"""``fcpower_bids predict``: apply a saved model to the scans of an output folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids predict", description=__doc__)
    parser.add_argument("model", type=Path, help="a file of OUTPUT_DIR/group/models, made with --save-models")
    parser.add_argument("output_dir", type=Path, help="outputs of the participant level")
    parser.add_argument("--participant-label", nargs="+", default=[], help="participants [all]")
    parser.add_argument("--table", type=Path, help="where to write [OUTPUT_DIR/group/predicted]")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Predict a phenotype of new scans, write a table, say what is outside the range of the training people."""
    options = build_parser().parse_args(argv)
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.workflows.prediction import predict_scans

    labels = tuple(label.removeprefix("sub-") for label in options.participant_label)
    table, path = predict_scans(options.model, options.output_dir, labels, options.table)
    for row in table[table["warning"] != ""].itertuples():
        print(f"{row.scan}: {row.warning}")  # noqa: T201
    print(f"{len(table)} scans predicted: {path}. Research use only: a prediction is not a diagnosis.")  # noqa: T201
    return 0
