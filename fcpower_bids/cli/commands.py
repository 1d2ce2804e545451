"""The commands beside the levels: ``predict`` applies saved models to scans, ``prefetch`` fills a folder."""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.cli.parser import Parser
from fcpower_bids.encoders import CHECKSUMS
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.settings import join_words
from fcpower_bids.store import digest_of, may_write, refuse_links, replace_folder, stored_path, write_text

SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
WEIGHT_FILES = ("config.json", "model.safetensors", "README.md")


def predict_parser() -> argparse.ArgumentParser:
    """Return the parser of ``predict``."""
    parser = Parser(prog="fcpower_bids predict", description="Apply saved models to the scans of an output folder.")
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


def predict(argv: Sequence[str] | None = None) -> int:
    """Predict new scans, a table per model; return 0 where all have a page, 4 where some have not, 5 where none."""
    options = predict_parser().parse_args(argv)
    # after the limits of threads are set, which numpy reads when it is loaded
    from fcpower_bids.clinic.predict import DONE, predict_scans, say_predictions
    from fcpower_bids.outputs.dataset import note_command

    refuse_links(options.output_dir)
    if not may_write(options.output_dir / "group"):
        raise UsageError(f"{options.output_dir} is closed to you, so nothing can be written there. Open it.")
    names = [path.resolve().name for path in options.models]  # by which tables and pages are called
    if alike := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"Two models are called {alike}, and so would their tables be: rename the folder of one.")
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
        predictions = predict_scans(model, *asked, command)
        say_predictions(predictions, print)
        states += predictions.frame["state"].tolist()
        broken += predictions.broken
    people = ["--participant-label", *labels] if labels else []
    note_command(options.output_dir, "predict", join_words([*words, *people], whole=True))
    for sentence in broken:
        print(f"fcpower_bids: {sentence}", file=sys.stderr)  # noqa: T201
    done = states.count(DONE)
    return 5 if not done else 4 if broken or done < len(states) else 0


def prefetch_parser() -> argparse.ArgumentParser:
    """Return the parser of ``prefetch``."""
    parser = Parser(
        prog="fcpower_bids prefetch", description="Fill a folder with atlases and weights for runs without network."
    )
    parser.add_argument("--folder", type=Path, required=True, help="where to put the files")
    parser.add_argument("--atlas", nargs="+", help="atlas names [Schaefer400, if no weights are asked for]")
    parser.add_argument("--space", nargs="+", default=list(SPACES), help=f"spaces [{' '.join(SPACES)}]")
    parser.add_argument("--weights", nargs="+", default=[], help="encoders (fbert-1m, fbert-8m) or hub ids OWNER/NAME")
    return parser


def prefetch(argv: Sequence[str] | None = None) -> int:
    """Fetch what was asked for and list it with checksums; return the exit code."""
    options = prefetch_parser().parse_args(argv)
    atlases = options.atlas or ([] if options.weights else ["Schaefer400"])
    if atlases:
        # loads nibabel or nilearn, which are slow to load
        from fcpower_bids.imaging.atlas import prefetch_atlases

        table = prefetch_atlases(atlases, options.space, options.folder)
        fetched = f"Fetched into {options.folder}; checksums: {table}."
        print(f"{fetched} Use it with --atlas-dir {options.folder.absolute()}")  # noqa: T201
    for name in options.weights:
        folder = fetch_weights(name, options.folder / "weights" / name.rpartition("/")[2])
        print(f"The weights of {name} are in {folder}: give them with --encoder-weights {folder.absolute()}")  # noqa: T201
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
        print(NOTICE)  # noqa: T201
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
