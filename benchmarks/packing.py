"""Pack many recordings through the command: what each costs, and what a killed run leaves to the next.

Usage: ``python benchmarks/packing.py [--recordings 2000] [--parcels 100] [--volumes 200]``

The series tables are planted as the participant level writes them (a hundred different ones, each under many names).
They are packed once without disturbance, and once by a run that is killed after a third and started again. Goals: the
last hundred recordings cost at most 1.3 times the first, the second run prepares none that the first had stored, and
both packs are equal to the byte. The exit status is 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

ENDING = "task-rest_space-MNI_atlas-Toy_scale-100_stat-mean_timeseries"
DIFFERENT = 100


def plant(folder: Path, recordings: int, volumes: int, parcels: int) -> None:
    """Write series tables and their JSON, one per person."""
    (folder / "bids").mkdir(parents=True)
    (folder / "bids" / "dataset_description.json").write_text('{"Name": "many", "BIDSVersion": "1.9.0"}')
    rng = np.random.default_rng(0)
    names = [f"P{i}" for i in range(parcels)]
    series = [rng.standard_normal((volumes, parcels)).astype(np.float32) for _ in range(DIFFERENT)]
    texts = [pd.DataFrame(one, columns=names).to_csv(sep="\t", index=False) for one in series]
    for i in range(recordings):
        path = folder / "out" / f"sub-{i:05d}" / "func" / f"sub-{i:05d}_{ENDING}.tsv"
        path.parent.mkdir(parents=True)
        path.write_text(texts[i % DIFFERENT])
        path.with_suffix(".json").write_text(json.dumps({"RepetitionTime": 2.0}))


def start(folder: Path, corpus: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fcpower_bids", folder / "bids", folder / "out", "pack", "--corpus", corpus]
    words = [str(word) for word in (*command, "--nprocs", "1")]
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def stored(corpus: Path) -> int:
    """Recordings that a killed run would leave, counted by their numbers, which only grow."""
    names = [path.stem for path in (corpus / "parts").glob("[0-9]*.safetensors")] if corpus.is_dir() else []
    return 1 + max(map(int, names), default=-1)


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """Of user and system, as the kernel counted them so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cost_of_each(folder: Path, corpus: Path) -> np.ndarray:
    """Pack without disturbance; rows of (recordings stored, CPU seconds)."""
    process, seen = start(folder, corpus), [(0, 0.0)]
    while process.poll() is None:
        if (count := stored(corpus)) > seen[-1][0]:
            seen.append((count, cpu_seconds(process)))
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"packing failed: {process.communicate()[0]}")
    return np.array(seen[1:])


def killed_and_resumed(folder: Path, corpus: Path, recordings: int) -> tuple[int, int]:
    """Recordings that the killed run had stored, and those that the next one took over."""
    process = start(folder, corpus)
    while stored(corpus) < recordings / 3:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    left = stored(corpus)
    told = start(folder, corpus).communicate()[0]
    match = re.search(r"(\d+) recordings of an interrupted run are taken over", told)
    return left, int(match[1]) if match else 0


def same_bytes(one: Path, other: Path) -> bool:
    files = sorted(path.name for path in one.iterdir())
    return files == sorted(path.name for path in other.iterdir()) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in files
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=2000)
    parser.add_argument("--volumes", type=int, default=200)
    parser.add_argument("--parcels", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant(folder, options.recordings, options.volumes, options.parcels)
        seen = cost_of_each(folder, folder / "undisturbed")
        at = np.interp([1, 101, options.recordings - 100, options.recordings], *seen.T)
        first, last = (at[1] - at[0]) / 100, (at[3] - at[2]) / 100
        left, taken = killed_and_resumed(folder, folder / "killed", options.recordings)
        equal = same_bytes(folder / "undisturbed", folder / "killed")
    print(f"CPU per recording: first hundred {1000 * first:.1f} ms, last hundred {1000 * last:.1f} ms")
    print(f"killed with {left} of {options.recordings} stored, {taken} taken over; equal to the byte: {equal}")
    return 0 if last <= 1.3 * first and taken == left and equal else 1


if __name__ == "__main__":
    sys.exit(main())
