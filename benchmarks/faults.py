"""Kills, crowds and full disks, each compared byte by byte with an undisturbed run.

Usage: ``make faults``, or ``python benchmarks/faults.py [--kills 30] [--offsets 20] [--only NAME ...]
[--jobs NAME ...]``

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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ENDED_PLAINLY = (0, 2, 3, 4, 5)
PATIENCE = 600


class Study:
    """A demo dataset, an undisturbed run of it, and what a disturbed run is compared with."""

    def __init__(self, folder: Path) -> None:
        from fcpower_bids.demo import DemoDesign, make_dataset
        from fcpower_bids.imaging.atlas.builtin import builtin_atlas

        self.folder, self.bids = folder, folder / "in"
        make_dataset(self.bids, DemoDesign.tiny(subjects=6, sessions=1, noise=0))
        self.atlas = builtin_atlas("MNI152NLin2009cAsym", folder / "atlas").image
        started = time.monotonic()
        code, told = self.run(folder / "whole")
        assert code == 0, told
        self.seconds = time.monotonic() - started
        self.whole = contents(folder / "whole")

    def start(self, output: Path, before: list[str] | None = None, nprocs: int = 1, **popen: Any) -> subprocess.Popen:
        """Start the participant level as a group of processes of its own."""
        table = self.atlas.with_name(self.atlas.name.replace(".nii.gz", ".tsv"))
        command = [*(before or []), sys.executable, "-m", "fcpower_bids", self.bids, output, "participant"]
        options = ["--atlas", f"{self.atlas}:{table}"]
        return subprocess.Popen(
            [*map(str, command), *options, "--nprocs", str(nprocs), "--quiet"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **popen,
        )

    def run(self, output: Path, **how: Any) -> tuple[int, str]:
        """Run it to its end: exit code and what it said."""
        process = self.start(output, **how)
        told, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, told

    def faults(self, output: Path) -> list[str]:
        """Finish a disturbed run, and say what differs from the undisturbed one."""
        code, told = self.run(output)
        found, wanted = contents(output), self.whole
        wrong = [f"exit {code}: {told[-200:]}"] if code else []
        wrong += [name for name in sorted(set(found) | set(wanted)) if found.get(name) != wanted.get(name)]
        return wrong + half_written(output)


FOOT = re.compile(rb"<footer>.*?</footer>")  # of pages: it tells the command, which names the folders
GROUP = ["--targets", "age", "--analyses", "qc_fc", "spectrum_geometry"]


def contents(output: Path) -> dict[str, bytes]:
    paths = [path for path in output.rglob("*") if path.is_file()]
    named = {path.relative_to(output): path for path in paths}
    without = ("logs", "work", "dataset_description.json")  # its relative links differ by place
    return {
        str(name): FOOT.sub(b"", path.read_bytes())
        for name, path in named.items()
        if name.parts[0] not in without and name.name not in without
    }


def half_written(output: Path) -> list[str]:
    """What a killed process left, but in the work folder: there it is never read, and another run may be at it."""
    left = [*output.rglob(".*.part"), *output.rglob(".*.old")]
    return [str(path) for path in left if "work" not in path.relative_to(output).parts]


def kills(study: Study, given: argparse.Namespace) -> list[str]:
    """Kill everything at a random moment."""
    wrong = []
    for trial in range(given.kills):
        output = study.folder / f"killed{trial}"
        process = study.start(output)
        time.sleep(random.uniform(0, 1.1 * study.seconds))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        wrong += study.faults(output)
        shutil.rmtree(output)
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


def kills_of_workers(study: Study, given: argparse.Namespace) -> list[str] | None:
    """Kill the workers alone at a random moment, as the kernel does when memory runs out; the run goes on."""
    if not Path("/proc/self/task").is_dir():
        return None
    wrong = []
    for trial in range(given.kills):
        output = study.folder / f"orphan{trial}"
        process = study.start(output, nprocs=2)
        time.sleep(random.uniform(0, 1.1 * study.seconds))
        for worker in set(workers(process.pid)) - {process.pid}:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        told, _ = process.communicate(timeout=PATIENCE)
        plain = process.returncode in (0, 4) and "Traceback" not in told
        wrong += [] if plain else [f"exit {process.returncode}: {told[-300:]}"]
        wrong += [] if process.returncode else half_written(output)
        wrong += study.faults(output)
        shutil.rmtree(output)
    return wrong


class Job:
    """Another command, the folder that it begins with, and what two undisturbed runs of it write alike."""

    command: list[object]

    def __init__(self, study: Study, folder: str, name: str) -> None:
        self.study, self.folder = study, study.folder / folder
        self.base = self.folder / "base"
        JOBS[name](self)
        first, second = self.folder / "first" / "out", self.folder / "second" / "out"
        started = time.monotonic()
        self.told = [f"exit {code}: {told[-200:]}" for code, told in map(self.run, (self.begin(first),)) if code]
        self.seconds = time.monotonic() - started
        self.run(self.begin(second))
        one, other = contents(first), contents(second)
        self.apart = {name for name in one if other.get(name) != one[name]}  # such as the seconds of a training
        self.whole = {name: content for name, content in one.items() if name not in self.apart}

    def begin(self, output: Path) -> Path:
        """Return a folder as it is before the command, which may have none."""
        output.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copytree(self.base, output)) if self.base.is_dir() else output

    def start(self, output: Path) -> subprocess.Popen:
        """Start the command as a group of processes of its own."""
        command = [sys.executable, "-m", "fcpower_bids", *(output if word == OUT else word for word in self.command)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*map(str, command)], start_new_session=True, **pipes)

    def run(self, output: Path) -> tuple[int, str]:
        """Run it to its end: exit code and what it said."""
        process = self.start(output)
        told, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, told

    def faults(self, output: Path) -> list[str]:
        """Finish a disturbed run, and say what differs from an undisturbed one."""
        code, told = self.run(output)
        wrong = [f"exit {code}: {told[-200:]}"] if code else []
        found = {name: content for name, content in contents(output).items() if name not in self.apart}
        wrong += [name for name in sorted(set(found) | set(self.whole)) if found.get(name) != self.whole.get(name)]
        return wrong + half_written(output.parent)


OUT = "OUTPUT"
TRAINING = """architecture = ["d=16", "layers=1", "heads=2"]
checkpoint_every = 4
window = 20
held_out = 0.3
accept_unproven = true
"""


def group_job(job: Job) -> None:
    shutil.copytree(job.study.folder / "whole", job.base)
    job.command = [job.study.bids, OUT, "group", *GROUP, "--nprocs", "1", "--quiet"]


def pretrain_job(job: Job) -> None:
    shutil.copytree(job.study.folder / "whole", job.base)
    choices = job.folder / "choices.toml"
    choices.write_text(TRAINING)
    job.command = [job.study.bids, OUT, "pretrain", "--steps", 12, "--config-file", choices, "--quiet"]


JOBS: dict[str, Callable[[Job], None]] = {
    "group": group_job,
    "pretrain": pretrain_job,
}


def kills_of_jobs(study: Study, given: argparse.Namespace) -> list[str]:
    """Kill every other command at a random moment, and let it go on."""
    wrong = []
    for name in given.jobs:
        job = Job(study, name, name)
        own = list(job.told)
        for trial in range(given.kills):
            output = job.begin(job.folder / f"killed{trial}" / "out")
            process = job.start(output)
            time.sleep(random.uniform(0, 1.1 * job.seconds))
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            own += job.faults(output)
            shutil.rmtree(output.parent)
        print(f"  {name}: {given.kills} kills in {job.seconds:.0f} s each, {own[:5] or 'as undisturbed'}", flush=True)
        wrong += own
    return wrong


def two_runs(study: Study, given: argparse.Namespace) -> list[str]:
    """Begin a second run of the same people at every offset."""
    wrong = []
    for trial in range(given.offsets):
        output = study.folder / f"two{trial}"
        first = study.start(output)
        time.sleep(study.seconds * trial / given.offsets)
        second = study.start(output)
        for process in (first, second):
            told, _ = process.communicate(timeout=PATIENCE)
            wrong += [f"offset {trial}: exit {process.returncode}: {told[-200:]}"] if process.returncode else []
        wrong += study.faults(output)
        shutil.rmtree(output)
    return wrong


def full_disk(study: Study, given: argparse.Namespace) -> list[str] | None:
    """Give the outputs a disk that fills up at one point or another, then room."""
    wrong: list[str] = []
    for kilobytes in (64, 256, 640, 1024, 1536):
        disk = study.folder / f"disk{kilobytes}"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return None
        try:
            code, told = study.run(disk / "out")
            wrong += [f"{kilobytes} kB: exit {code}: {told[-300:]}"] if code not in ENDED_PLAINLY[1:] else []
            wrong += [f"{kilobytes} kB: {told[-300:]}"] if "Traceback" in told or "internal error" in told else []
            subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
            wrong += study.faults(disk / "out")
        finally:
            subprocess.run(["umount", str(disk)], check=False)
    return wrong


PARTS: dict[str, Callable[[Study, argparse.Namespace], list[str] | None]] = {
    "full disk": full_disk,
    "kills": kills,
    "kills of workers": kills_of_workers,
    "kills of other commands": kills_of_jobs,
    "two runs": two_runs,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--offsets", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="other commands")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    random.seed(given.seed)
    print(f"seed {given.seed}, {given.kills} kills, {given.offsets} offsets", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder))
        for name in given.only:
            wrong = PARTS[name](study, given)
            failed += bool(wrong)
            print(f"{name}: {'SKIPPED' if wrong is None else 'as undisturbed' if not wrong else wrong[:5]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
