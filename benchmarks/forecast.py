"""What the dry run of the group level forecasts against what the run then takes, in CPU seconds and peak memory.

    python -m benchmarks.forecast

Cohorts of several shapes; each line has forecast, truth and their ratio. Beyond 1,000 people a law is followed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.small_cohort import plant
from fcpower_bids.outputs.tables import write_table

SHAPES = (
    (300, 200, ()),
    (1000, 200, ("--covariates", "age", "--permutations", "100")),
    (1000, 400, ()),
    (2000, 100, ()),
)
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def main() -> None:
    for n, n_parcels, more in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            plant(out, n, n_parcels)
            people = pd.read_csv(out / "bids" / "participants.tsv", sep="\t")
            people["age"] = np.random.default_rng(0).normal(50, 10, n)
            write_table(out / "bids" / "participants.tsv", people)
            words = [sys.executable, "-m", "fcpower_bids", str(out / "bids"), folder, "group", "--targets", "score"]
            words += ["--nprocs", "1", *more]
            told = subprocess.run([*words, "--dry-run"], check=True, capture_output=True, text=True)
            found = re.search(r"Forecast: ([\d.]+) (\w+) of CPU .*?([\d.]+) GB", told.stdout + told.stderr)
            assert found, told
            shutil.rmtree(out / "work", ignore_errors=True)
            run = subprocess.Popen([*words, "--quiet"], stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(run.pid, 0)
            assert status == 0, status
            seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6
            forecast = float(found[1]) * UNITS[found[2]]
            print(f"{n} people, {n_parcels} parcels {' '.join(more)}: {forecast:.0f} of {seconds:.0f} CPU s", end=" ")
            print(f"({forecast / seconds:.2f}), {found[3]} of {peak:.1f} GB", flush=True)


if __name__ == "__main__":
    main()
