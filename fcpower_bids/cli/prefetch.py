"""``fcpower_bids prefetch``: fill a folder with atlases and weights, so that everything then runs without network."""

from __future__ import annotations

import argparse
import csv
import shutil
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser
from fcpower_bids.errors import DatasetError
from fcpower_bids.store import digest_of, replace_folder, stored_path, write_text

SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
WEIGHT_FILES = ("config.json", "model.safetensors", "README.md")
CHECKSUMS = "checksums.tsv"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids prefetch", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where to put the files")
    parser.add_argument("--atlas", nargs="+", help="atlas names [Schaefer400, if no weights are asked for]")
    parser.add_argument("--space", nargs="+", default=list(SPACES), help=f"spaces [{' '.join(SPACES)}]")
    parser.add_argument("--weights", nargs="+", default=[], help="encoders (fbert-1m, fbert-8m) or hub ids OWNER/NAME")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch what was asked for and list it with checksums; return the exit code."""
    options = build_parser().parse_args(argv)
    atlases = options.atlas or ([] if options.weights else ["Schaefer400"])
    if atlases:
        # loads nibabel or nilearn, which are slow to load
        from fcpower_bids.imaging.atlas import prefetch_atlases

        table = prefetch_atlases(atlases, options.space, options.folder)
        _say(f"Fetched into {options.folder}; checksums: {table}. Use it with --atlas-dir {options.folder.absolute()}")
    for name in options.weights:
        folder = fetch_weights(name, options.folder / "weights" / name.rpartition("/")[2])
        _say(f"The weights of {name} are in {folder}: give them with --encoder-weights {folder.absolute()}")
    return 0


def fetch_weights(name: str, folder: Path) -> Path:
    """Fetch the checkpoint of an encoder into a folder, or verify it there. Raises CheckpointError, DatasetError."""
    from fcpower_bids.encoders import HUB_IDS, NOTICE
    from fcpower_bids.encoders.checkpoints import locate, read_config  # for encoders alone

    if (folder / CHECKSUMS).is_file():
        with (folder / CHECKSUMS).open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                path = stored_path(folder, row["file"])
                if not path.is_file() or digest_of(path) != row["sha256"]:
                    raise DatasetError(f"{path} is not what was fetched: delete {folder} and prefetch again.")
        return folder
    source = locate(HUB_IDS.get(name, name))
    if HUB_IDS.get(name, name) in HUB_IDS.values():
        _say(NOTICE)
    read_config(source)

    def write(target: Path) -> None:
        rows = ["file\tsha256\tbytes"]
        for file in (source / file for file in WEIGHT_FILES if (source / file).is_file()):
            shutil.copyfile(file, target / file.name)
            rows.append(f"{file.name}\t{digest_of(target / file.name)}\t{file.stat().st_size}")
        write_text(target / CHECKSUMS, "\n".join(rows) + "\n")

    folder.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(folder, write)
    return folder


def _say(text: str) -> None:
    print(text)  # noqa: T201
