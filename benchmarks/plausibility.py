"""How often sound recordings are accused: the command on synthetic recordings of fresh seeds.

Usage: ``python benchmarks/plausibility.py [--recordings 200] [--seed SEED] [--volumes 160]``

Counts what the quality tables say, and prints how far the sound recordings stay from the limits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from fcpower_bids.demo import DemoDesign, make_dataset

COUNTS = ["empty_volumes", "copied_volumes", "stray_volumes", "stray_parcels", "table_lag"]
AGREEMENT = ["table_global_signal", "table_dvars"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time, so another each time")
    parser.add_argument("--volumes", type=int, default=160)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bids, out = Path(folder, "in"), Path(folder, "out")
        design = DemoDesign(
            subjects=given.recordings, sessions=1, volumes=given.volumes, troubles=False, seed=given.seed
        )
        make_dataset(bids, design, save_truth=False)
        command = [sys.executable, "-m", "fcpower_bids", bids, out, "participant", "--atlas", "builtin", "--quiet"]
        done = subprocess.run([*map(str, command), "--nprocs", "1"], check=False)
        tables = [pd.read_csv(path, sep="\t") for path in sorted(out.rglob("*desc-fcpower_qc.tsv"))]
        sidecars = [json.loads(path.read_text()) for path in sorted(out.rglob("*stat-mean_timeseries.json"))]
    found = pd.concat(tables)
    accused = (found[COUNTS] != 0).any(axis=1) | (found["state"] != "done")
    cautions = sum(bool(sidecar["Notes"]) for sidecar in sidecars)
    print(
        f"seed {given.seed}: {len(found)} recordings, {int(accused.sum())} accused, {cautions} cautions, "
        f"exit {done.returncode}"
    )
    for name in AGREEMENT:
        print(f"{name}: {found[name].min():.3f} to {found[name].max():.3f}")
    print(f"gain_step: at most {found['gain_step'].max():.3f}")


if __name__ == "__main__":
    main()
