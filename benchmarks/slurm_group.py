"""The group level on workers that dask-jobqueue submits to a SLURM of two nodes, which is started here.

Usage: ``python -m benchmarks.slurm_group`` as root, with SLURM, munge and dask-jobqueue. Where one is missing it says
so in one line and ends with 0.

A demo cohort is analysed by one process, then by two jobs of SLURM of which one is cancelled while it works, and then
all. Every table has to be the same byte for byte. Then runs that used to wait for ever: a partition that is not there,
all jobs cancelled, nodes that are taken, wall time over, workers that never begin, SIGTERM and SIGINT. The exit status
is 1 where one ends otherwise.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.slurm import NEEDED, cluster
from fcpower_bids.demo import DemoDesign, make_dataset

ASKED = ("--analyses", "prediction", "--targets", "planted_score", "--covariates", "age", "--permutations", "200")
PROTOCOL = ("--folds", "5", "--inner-folds", "3", "--repeats", "20", "--quiet")
ENGINE = """\
cluster: SLURMCluster
jobs: 2
options:
  cores: 1
  processes: 1
  memory: 1GB
  job_directives_skip: ["--mem"]
  interface: lo
"""


def run(folder: Path, environment: dict[str, str], level: str, *options: str) -> float:
    """Run the application, and return the seconds that it took."""
    words = [sys.executable, "-m", "fcpower_bids", str(folder / "bids"), str(folder / "out"), level, *options]
    started = time.monotonic()
    subprocess.run(words, env=environment, cwd=folder, check=True)
    return time.monotonic() - started


def cancel(environment: dict[str, str], found: list[str]) -> None:
    """Cancel the first of two jobs a little after both have begun, and all a little later."""
    for _ in range(600):
        said = subprocess.run(
            ["squeue", "-h", "-t", "R", "-o", "%i %N"], env=environment, capture_output=True, text=True
        )
        jobs = said.stdout.splitlines()
        if len(jobs) > 1:
            time.sleep(4)
            subprocess.run(["scancel", jobs[0].split()[0]], env=environment, check=True)
            time.sleep(4)
            subprocess.run(["scancel", "-u", "root"], env=environment, check=True)
            found += jobs
            return
        time.sleep(0.2)


TASKS = """
import sys, time
from functools import partial
from pathlib import Path
from fcpower_bids.cli import run
from fcpower_bids.executors import executing, map_tasks
from fcpower_bids.settings import Resources

def work(seconds, number):
    time.sleep(seconds)
    return number

def level(settings):
    with executing(Resources(executor="engine.yml"), Path("work")):
        assert sum(map_tasks(partial(work, float(sys.argv[1])), range(60))) == 1770
    return 0

if __name__ == "__main__":
    run._level = lambda settings: level
    sys.exit(run.main(["bids", "out", "group"]))
"""


def without_end(folder: Path, environment: dict[str, str]) -> list[str]:
    """Runs whose workers do not come, and what each ended with; those that ended otherwise than stated."""
    (folder / "tasks.py").write_text(TASKS)
    here = {"env": environment, "cwd": folder}

    def begin(engine: str, seconds: float) -> subprocess.Popen[str]:
        (folder / "engine.yml").write_text(engine + "patience: 60\n")
        return subprocess.Popen([sys.executable, "tasks.py", str(seconds)], stderr=subprocess.PIPE, text=True, **here)

    def after(seconds: float, *command: str) -> subprocess.Popen[bytes]:
        time.sleep(seconds)
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, **here)

    wrong = []
    for name, code, words, engine in (
        ("wrong partition", 2, "invalid partition", ENGINE + "  queue: nowhere\n"),
        ("all jobs cancelled", 0, "", ENGINE),
        ("nodes taken for 50 s", 0, "pending", ENGINE),
        ("workers that never begin", 4, "No worker came", ENGINE + "  job_script_prologue: ['exit 1']\n"),
        ("wall time over", 0, "", ENGINE + "  walltime: '00:01:00'\n"),
        ("SIGTERM", 130, "interrupted", ENGINE),
        ("SIGINT", 130, "interrupted", ENGINE),
    ):
        if name.startswith("nodes"):
            after(0, "srun", "-N2", "-n2", "sleep", "50")
            time.sleep(3)
        run = begin(engine, 4.0 if name.startswith("wall") else 0.5)
        if name.startswith("all"):
            after(12, "scancel", "-u", "root")
        elif name.startswith("SIG"):
            time.sleep(12)
            run.send_signal(signal.Signals[name])
        said = run.communicate(timeout=400)[1]
        right = run.returncode == code and words in said
        print(f"{name}: exit code {run.returncode}, {'as stated' if right else said}", flush=True)
        wrong += [] if right else [name]
    return wrong


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    missing = [name for name in (*NEEDED, "sbatch", "squeue") if shutil.which(name) is None]
    missing += [] if importlib.util.find_spec("dask_jobqueue") else ["dask-jobqueue"]
    if missing or os.geteuid() != 0:
        print(f"SKIPPED the group level on SLURM: {', '.join(missing) + ' not found' if missing else 'needs root'}.")
        return 0
    with tempfile.TemporaryDirectory() as name, cluster(folder := Path(name)) as environment:
        make_dataset(folder / "bids", DemoDesign(subjects=12, volumes=100, troubles=False))
        run(folder, environment, "participant", "--atlas", "builtin", "--quiet")
        (folder / "engine.yml").write_text(ENGINE)
        alone = run(folder, environment, "group", *ASKED, *PROTOCOL, "--nprocs", "1", "--name", "alone")
        jobs: list[str] = []
        threading.Thread(target=cancel, args=(environment, jobs), daemon=True).start()
        options = ("--executor", str(folder / "engine.yml"), "--name", "slurm")
        spread = run(folder, environment, "group", *ASKED, *PROTOCOL, *options)
        tables = sorted((folder / "out" / "group" / "alone").glob("*.tsv"))
        same = [each.read_bytes() == (each.parents[1] / "slurm" / each.name).read_bytes() for each in tables]
        wrong = without_end(folder, environment)
    print(
        f"one process {alone:.0f} s; SLURM {spread:.0f} s; jobs and nodes: {'; '.join(jobs)}, of which the first was "
        "cancelled, and then all"
    )
    print(f"{sum(same)} of {len(same)} tables are the same byte for byte")
    return 0 if all(same) and len(same) > 8 and len(jobs) > 1 and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
