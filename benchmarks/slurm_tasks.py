"""Seconds of each task of an array of ten on a SLURM of two nodes, started here, for one or more installations.

Usage: ``python -m benchmarks.slurm_tasks [PROGRAM ...] [--rounds 2] [--atlas-from-files]`` as root, with SLURM and
munge. Where one is missing it says so and ends with 0. A ``PROGRAM`` is the console script of an installation, such as
that of an older commit; the default is this one.

``docs/examples/slurm_array.sh`` submits the array: one participant, one recording of the demo and its page per task,
two tasks at a time. The installations take turns. The seconds are those of the program inside its task, with all that
it started; the clock also counts what else the machine does, so the CPU seconds tell more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.overhead import Cost
from benchmarks.slurm import NEEDED, cluster
from fcpower_bids.demo import DemoDesign, make_dataset

TASKS = 10
ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "examples" / "slurm_array.sh"
MEASURED = """\
#!{python}
import ctypes, os, sys
sys.path.insert(0, {root!r})
from benchmarks.overhead import ADOPT_ORPHANS, measure
ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
cost, _ = measure({program!r}, *sys.argv[1:])
with open(os.path.join({costs!r}, os.environ["SLURM_ARRAY_TASK_ID"]), "w") as file:
    file.write(f"{{cost.wall}} {{cost.cpu}}")
"""


def costs_of(program: Path, atlas: str, folder: Path, environment: dict[str, str]) -> list[Cost]:
    """Cost of each task of one array; the program finds an empty output folder, and nothing in its current folder."""
    place = Path(tempfile.mkdtemp(dir=folder))
    for name in ("costs", "current"):
        (place / name).mkdir()
    measured = place / "measured"
    text = MEASURED.format(python=sys.executable, root=str(ROOT), program=str(program), costs=str(place / "costs"))
    measured.write_text(text)
    measured.chmod(0o755)
    words = ["bash", str(SCRIPT), str(folder / "bids"), str(place / "out"), str(measured), "--atlas", atlas]
    asked = {**environment, "SBATCH": "--cpus-per-task=1 --mem=1M --time=30"}
    subprocess.run([*words, "--quiet"], env=asked, cwd=place / "current", check=True, stdout=subprocess.DEVNULL)
    while subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True).stdout.strip():
        time.sleep(1)
    told = [Cost(*map(float, path.read_text().split())) for path in (place / "costs").iterdir()]
    if len(told) != TASKS or len(list((place / "out").glob("sub-*.html"))) != TASKS:
        said = [path.read_text()[-500:] for path in (place / "out" / "logs" / "slurm").glob("*_*.txt")]
        sys.exit("\n".join([f"{program}: {len(told)} of {TASKS} tasks ended well", *said]))
    return told


def spread(seconds: list[float]) -> str:
    return f"{min(seconds):.2f} / {statistics.median(seconds):.2f} / {max(seconds):.2f}"


def compare(programs: list[Path], rounds: int, from_files: bool) -> None:
    """Measure the programs in turns, and print a line for each array and one for all arrays of a program."""
    found: dict[Path, list[Cost]] = {program: [] for program in programs}
    with tempfile.TemporaryDirectory() as name, cluster(folder := Path(name)) as environment:
        make_dataset(folder / "bids", DemoDesign(subjects=TASKS, sessions=1, troubles=False))
        for program in programs:  # what Python compiles once per installation is no cost of a task
            warm = Path(tempfile.mkdtemp(dir=folder))
            words = [str(program), str(folder / "bids"), str(warm), "participant", "--participant-label", "01"]
            subprocess.run([*words, "--atlas", "builtin", "--quiet"], check=True, cwd=folder)
        image, table = sorted(warm.glob("work/atlases/*_dseg.*"))
        atlas = f"{image}:{table}" if from_files else "builtin"
        for number in range(rounds):
            for program in programs:
                costs = costs_of(program, atlas, folder, environment)
                found[program] += costs
                told = f"wall {spread([c.wall for c in costs])}, CPU {spread([c.cpu for c in costs])}"
                print(f"round {number + 1}, load {os.getloadavg()[0]:.1f}, {program}: {told}", flush=True)
    print("seconds per task, least / median / most")
    for program, costs in found.items():
        told = f"wall {spread([c.wall for c in costs])}, CPU {spread([c.cpu for c in costs])}"
        print(f"{program}: {len(costs)} tasks, {told}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", type=Path, default=[Path(sys.executable).with_name("fcpower_bids")])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--atlas-from-files", action="store_true", help="the built-in parcels, not made anew by each task"
    )
    given = parser.parse_args()
    missing = [name for name in (*NEEDED, "sbatch", "squeue") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"SKIPPED the array of ten: {', '.join(missing) + ' not found' if missing else 'needs root'}.")
        return 0
    compare([program.absolute() for program in given.programs], given.rounds, given.atlas_from_files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
