"""Train by the command on a corpus in the public layout: the same numbers as on our pack, and flat memory.

Usage: ``python benchmarks/windows.py [--windows 2000] [--parcels 450] [--steps 20]``

Recordings of one window of 80 volumes are packed, and the pack is written in the public layout, so that both hold the
same windows. Both are trained on, and so is a quarter of them, in two runs: the first also computes the teacher kernel
of a public corpus, in blocks of up to 1.7 GB; the second goes on, and its peak memory counts, with mapped files. Goals:
equal losses to 1e-6, and the size of the corpus is not in the memory: from a quarter to all of it, it grows by at most
a tenth of what the windows grow. The exit status is 1 where one is missed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.slices.pretraining.corpus.packing import pack_corpus
from fcpower_bids.slices.pretraining.corpus.public import write_public

WINDOW = 80
STUDENT = ("--architecture", "dropout=0.0", "--batch-size", "32", "--held-out", "0.01", "--accelerator", "cpu")


def series(number: int, parcels: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    return rng.standard_normal((WINDOW, 30)) @ rng.standard_normal((30, parcels)) + rng.standard_normal(
        (WINDOW, parcels)
    )


def recordings(n: int, parcels: int) -> Iterator[tuple[dict[str, Any], Any]]:
    names = [f"P{i}" for i in range(parcels)]
    for i in range(n):
        facts = {"id": f"many/sub-{i:05d}", "dataset": "many", "subject": f"{i:05d}"}
        yield {**facts, "repetition_time": 2.0, "parcel_names": names}, partial(series, i, parcels)


def train(folder: Path, corpus: Path, out: str, steps: int) -> tuple[pd.DataFrame, float]:
    """Run the command; its log, and its peak memory in MB."""
    command = [sys.executable, "-m", "fcpower_bids", folder / "bids", folder / out, "pretrain", "--corpus", corpus]
    command += [*STUDENT, "--steps", steps, "--checkpoint-every", "1000", "--nprocs", "1", "--quiet"]
    process, peak = subprocess.Popen([str(word) for word in command]), 0.0
    while process.poll() is None:  # what wait4 tells has the peak of this process in it
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = max([peak, *(float(kb) / 1000 for kb in re.findall(r"VmHWM:\s+(\d+) kB", status))])
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"training on {corpus} failed")
    log = pd.read_csv(folder / out / "encoder" / "log.tsv", sep="\t", na_values="n/a")
    return log.drop(columns=["steps_per_s", "mfu"]), peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=2000)
    parser.add_argument("--parcels", type=int, default=450)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    logs, peaks = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bids").mkdir()
        for n in (options.windows // 4, options.windows):
            pack_corpus(recordings(n, options.parcels), folder / f"pack-{n}")
            write_public(folder / f"pack-{n}", folder / f"public-{n}", WINDOW)
            for layout in ("pack", "public"):
                key = f"{layout}-{n}"
                train(folder, folder / key, f"out-{key}", 2)
                logs[key], peaks[key] = train(folder, folder / key, f"out-{key}", options.steps)
                print(f"{key}: peak {peaks[key]:.0f} MB", flush=True)
    difference = float((logs[key] - logs[f"pack-{n}"]).abs().max(axis=None))
    quarter = options.windows // 4
    size = (n - quarter) * WINDOW * options.parcels * 4 / 1e6
    grown = {layout: peaks[f"{layout}-{n}"] - peaks[f"{layout}-{quarter}"] for layout in ("pack", "public")}
    print(f"largest difference in the log, pack against public layout: {difference:.1e}")
    print(f"from {quarter} to {n} windows (+{size:.0f} MB in the public layout), peak memory grows by MB:", grown)
    return 0 if difference <= 1e-6 and grown["public"] <= 0.1 * size and grown["pack"] <= 0.1 * size else 1


if __name__ == "__main__":
    sys.exit(main())
