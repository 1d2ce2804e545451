"""Kills, crowds and full disks, each compared byte by byte with an undisturbed run.

Usage: ``make faults``, or ``python benchmarks/faults.py [--kills 30] [--offsets 20] [--only NAME ...]
[--levels NAME ...]``

Every trial ends with the same command run once more where it was disturbed; then all files outside ``logs`` and
``work`` must be those of the undisturbed run, and nothing half-written may be left. Parts that need root or Linux say
SKIPPED.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

ENDED_PLAINLY = (2, 3, 4, 5)
ENDED_WELL = (0, 7)  # a model of few steps is not proven
PATIENCE = 600
FOOT = re.compile(rb"<footer>.*?</footer>")  # of pages: it tells the command, which names the folders
LEVELS = ("participant", "group", "pretrain")
TRAINING = """architecture = ["d=16", "layers=1", "heads=2"]
checkpoint_minutes = 1e-9
window = 20
held_out = 0.3
"""


class Command:
    """A command on a demo dataset, the folder that it begins with, and what undisturbed runs of it write."""

    def __init__(self, folder: Path, bids: Path, words: Sequence[object], base: Path | None = None) -> None:
        self.folder, self.bids, self.words, self.base = folder, bids, words, base
        started = time.monotonic()
        self.faults = [
            f"exit {code}: {told[-200:]}" for code, told in [self.run(self.begin("whole"))] if code not in ENDED_WELL
        ]
        self.seconds = time.monotonic() - started
        self.whole = contents(folder / "whole" / "out")
        if base:  # some files differ by their times, such as the seconds of a training
            self.run(self.begin("again"))
            again = contents(folder / "again" / "out")
            self.whole = {name: content for name, content in self.whole.items() if again.get(name) == content}

    def begin(self, name: str) -> Path:
        """Return an output folder as it is before the command, which may have none."""
        output = self.folder / name / "out"
        output.parent.mkdir(parents=True)
        return Path(shutil.copytree(self.base, output)) if self.base else output

    def start(self, output: Path, nprocs: int = 1) -> subprocess.Popen[str]:
        """Start it as a group of processes of its own."""
        words = [sys.executable, "-m", "fcpower_bids", self.bids, output, *self.words, "--nprocs", nprocs, "--quiet"]
        pipe = subprocess.PIPE
        return subprocess.Popen(list(map(str, words)), stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, output: Path) -> tuple[int, str]:
        """Run it to its end: exit code and what it said."""
        process = self.start(output)
        told = "".join(process.communicate(timeout=PATIENCE))
        return process.returncode, told

    def finish(self, output: Path) -> list[str]:
        """Finish a disturbed run, say what differs from an undisturbed one, and remove it."""
        code, told = self.run(output)
        wrong, found = [f"exit {code}: {told[-200:]}"] if code not in ENDED_WELL else [], contents(output)
        wrong += [name for name, content in sorted(self.whole.items()) if found.get(name) != content]
        wrong += [name for name in found if not self.base and name not in self.whole] + half_written(output)
        shutil.rmtree(output.parent)
        return wrong


def contents(output: Path) -> dict[str, bytes]:
    without = ("logs", "work", "dataset_description.json")  # its relative links differ by place
    named = {path.relative_to(output): path for path in output.rglob("*") if path.is_file()}
    return {
        str(name): FOOT.sub(b"", path.read_bytes())
        for name, path in named.items()
        if name.parts[0] not in without and name.name not in without
    }


def half_written(output: Path) -> list[str]:
    """What a killed process left, but in the work folder: there it is never read, and another run may be at it."""
    left = [*output.rglob(".*.part"), *output.rglob(".*.old")]
    return [str(path) for path in left if "work" not in path.relative_to(output).parts]


def commands(folder: Path, levels: list[str]) -> Iterator[Command]:
    """The participant level of six people, then the levels that begin with its outputs."""
    from fcpower_bids.demo import DemoDesign, make_dataset
    from fcpower_bids.imaging.atlas import builtin_atlas

    bids, choices = folder / "in", folder / "choices.toml"
    make_dataset(bids, DemoDesign.tiny(subjects=6, sessions=1, noise=0))
    choices.write_text(TRAINING)
    image = builtin_atlas("MNI152NLin2009cAsym", folder / "atlas").image
    atlas = f"{image}:{image.with_name(image.name.replace('.nii.gz', '.tsv'))}"
    first = Command(folder / "participant", bids, ["participant", "--atlas", atlas])
    words: dict[str, Sequence[object]] = {
        "group": ["group", "--targets", "age", "--analyses", "qc_fc", "spectrum_geometry"],
        "pretrain": ["pretrain", "--steps", 12, "--config-file", choices],
    }
    for level in levels:
        if level == "participant":
            yield first
        else:
            yield Command(folder / level, bids, words[level], folder / "participant" / "whole" / "out")


def kills(command: Command, given: argparse.Namespace) -> list[str]:
    """Kill everything at a random moment."""
    wrong = []
    for trial in range(given.kills):
        output = command.begin(f"killed{trial}")
        process = command.start(output)
        time.sleep(random.uniform(0, 1.1 * command.seconds))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        wrong += command.finish(output)
    return wrong


def workers(process: int) -> list[int]:
    """Return the processes below this one that do work: those without children, but the tracker of resources."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        tracks = b"resource_tracker" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return []
    below = [worker for child in children for worker in workers(int(child))]
    return below if children else [] if tracks else [process]


def kills_of_workers(command: Command, given: argparse.Namespace) -> list[str] | None:
    """Kill the workers alone at a random moment, as the kernel does when memory runs out; the run goes on."""
    if not Path("/proc/self/task").is_dir() or command.base:
        return None
    wrong = []
    for trial in range(given.kills):
        output = command.begin(f"orphan{trial}")
        process = command.start(output, nprocs=2)
        time.sleep(random.uniform(0, 1.1 * command.seconds))
        for worker in set(workers(process.pid)) - {process.pid}:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        told = "".join(process.communicate(timeout=PATIENCE))
        plain = process.returncode in (*ENDED_WELL, 4) and "Traceback" not in told
        wrong += [] if plain else [f"exit {process.returncode}: {told[-300:]}"]
        wrong += [] if process.returncode not in ENDED_WELL else half_written(output)
        wrong += command.finish(output)
    return wrong


def two_runs(command: Command, given: argparse.Namespace) -> list[str] | None:
    """Begin a second run of the same people at every offset."""
    if command.base:
        return None
    wrong = []
    for trial in range(given.offsets):
        output = command.begin(f"two{trial}")
        first = command.start(output)
        time.sleep(command.seconds * trial / given.offsets)
        for process in (first, command.start(output)):
            told = "".join(process.communicate(timeout=PATIENCE))
            wrong += (
                [f"offset {trial}: exit {process.returncode}: {told[-200:]}"]
                if process.returncode not in ENDED_WELL
                else []
            )
        wrong += command.finish(output)
    return wrong


def full_disk(command: Command, given: argparse.Namespace) -> list[str] | None:
    """Give the outputs a disk that fills up at one point or another, then room."""
    wrong: list[str] = []
    for kilobytes in (64, 256, 640, 1024, 1536) if not command.base else ():
        disk = command.folder / f"disk{kilobytes}"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return None
        try:
            code, told = command.run(disk / "on" / "out")
            wrong += [f"{kilobytes} kB: exit {code}: {told[-300:]}"] if code not in ENDED_PLAINLY else []
            wrong += [f"{kilobytes} kB: {told[-300:]}"] if "Traceback" in told or "internal error" in told else []
            subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
            wrong += command.finish(disk / "on" / "out")
        finally:
            subprocess.run(["umount", str(disk)], check=False)
    return None if command.base else wrong


PARTS: dict[str, Callable[[Command, argparse.Namespace], list[str] | None]] = {
    "full disk": full_disk,
    "kills": kills,
    "kills of workers": kills_of_workers,
    "two runs": two_runs,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--offsets", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    random.seed(given.seed)
    print(f"seed {given.seed}, {given.kills} kills, {given.offsets} offsets", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(Path(folder), given.levels):
            for name in given.only:
                wrong = PARTS[name](command, given)
                wrong = wrong if wrong is None else command.faults + wrong
                failed += bool(wrong)
                end = "SKIPPED" if wrong is None else "as undisturbed" if not wrong else wrong[:5]
                print(f"{command.words[0]}, {name}: {end}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
