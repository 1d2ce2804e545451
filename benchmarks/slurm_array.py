"""The array script on a SLURM of two nodes, which is started here: 1,100 people, more than an array may have jobs.

Usage: ``python -m benchmarks.slurm_array`` as root, with SLURM and munge. Where one is missing it says so and
ends with 0. In the place of the program a script notes what it is started with. The exit status is 1 unless the script
chose the participants per job itself, everybody was processed once, and the group job began after the last of them with
its own cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.slurm import NEEDED, cluster

PEOPLE = 1_100
SCRIPT = Path(__file__).parents[1] / "docs" / "examples" / "slurm_array.sh"
PROGRAM = """\
#!/bin/bash
mkdir -p "$2/noted"; echo "${@:3}" > "$2/noted/$(printf %06d "${SLURM_ARRAY_TASK_ID:-0}")-$3-$SLURM_JOB_ID"
"""
SMALL = "--cpus-per-task=1 --mem=1M --time=5"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=PEOPLE)
    people = parser.parse_args().people
    missing = [name for name in (*NEEDED, "sbatch", "squeue") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"SKIPPED the array on SLURM: {', '.join(missing) + ' not found' if missing else 'needs root'}.")
        return 0
    with tempfile.TemporaryDirectory() as name, cluster(folder := Path(name)) as environment:
        for i in range(people):
            (folder / "bids" / f"sub-{i:04d}").mkdir(parents=True)
        program = folder / "program"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        asked = {"SBATCH": SMALL, "GROUP": "--targets age", "GROUP_SBATCH": "--cpus-per-task=1 --mem=1M --time=9"}
        words = ["bash", str(SCRIPT), str(folder / "bids"), str(folder / "out"), str(program), "--atlas", "toy"]
        started = time.monotonic()
        said = subprocess.run(words, env={**environment, **asked}, capture_output=True, text=True, check=True).stdout
        submitted = time.monotonic() - started
        while subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True).stdout.strip():
            time.sleep(2)
        notes = sorted((folder / "out" / "noted").iterdir())
        lines = [note.read_text().split() for note in notes]
        last, group = (
            max(notes, key=lambda note: note.stat().st_mtime_ns).name,
            [one for one in lines if one[0] == "group"],
        )
    found = Counter(word for one in lines if one[0] == "participant" for word in one if word.startswith("sub-"))
    print(said.strip())
    print(f"submitted in {submitted:.1f} s, done in {time.monotonic() - started:.0f} s: {len(lines) - len(group)} jobs")
    print(f"{len(found)} people, at most {max(found.values())} time(s); last to begin: {last}; group: {group}")
    once = len(found) == people and set(found.values()) == {1}
    return 0 if once and len(group) == 1 and "-group-" in last and "2 per job" in said else 1


if __name__ == "__main__":
    sys.exit(main())
