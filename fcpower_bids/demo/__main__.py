"""``python -m fcpower_bids.demo OUTPUT_DIR``: write the demo dataset and say what to do with it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.demo.dataset import make_dataset, paint_series
from fcpower_bids.demo.signals import DemoDesign
from fcpower_bids.errors import FcPowerError

WORDS = {
    "subjects": "participants",
    "sessions": "sessions of each participant",
    "volumes": "volumes of each run",
    "seed": "same seed, same bytes",
}


def build_parser() -> argparse.ArgumentParser:
    """Build the command line from the design's fields and defaults."""
    parser = argparse.ArgumentParser(
        prog="python -m fcpower_bids.demo",
        description="Write a small synthetic BIDS dataset with fMRIPrep-style derivatives whose truth is known.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("output_dir", type=Path, help="new or empty folder for the dataset")
    for name, words in WORDS.items():
        parser.add_argument(f"--{name}", type=int, default=getattr(DemoDesign, name), help=words)
    without = "leave out the additional run, the incomplete field of view and the moving participants"
    parser.add_argument("--no-troubles", dest="troubles", action="store_false", help=without)
    parser.add_argument(
        "--series", type=Path, help="paint the series of real people in this folder, such as examples/stages, instead"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the dataset; return the exit code."""
    chosen = vars(build_parser().parse_args(argv))
    folder, series = chosen.pop("output_dir"), chosen.pop("series")
    try:
        if series is None:
            n, atlas = len(make_dataset(folder, DemoDesign(**chosen)).recordings), "builtin"
        else:
            scans, path = paint_series(folder, series, chosen["subjects"], chosen["seed"], chosen["sessions"])
            n, atlas = len(scans), str(path)
    except FcPowerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    out = folder.parent / f"{folder.name}_out"
    print(f"Wrote {n} recordings to {folder}. Next: fcpower_bids {folder} {out} participant --atlas {atlas}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
