"""CPU of a default run of the group level on a synthetic cohort: the check, QC-FC, the prediction and its permutations.

    python -m benchmarks.whole_group --n 862 --parcels 400 --permutations 0 default 1000

The figures of `docs/check.md`. Loading and the page are not in them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.group import synthetic_cohort
from fcpower_bids.analyses.prediction.prediction import analyse_prediction
from fcpower_bids.analyses.quality.qc_fc import analyse_qc_fc
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from fcpower_bids.slices.check.check import check_cohort
from fcpower_bids.slices.check.pairs import build_similarity


def cohort_in_memory(n: int, n_parcels: int) -> Cohort:
    """One scan each of n people, three targets that follow their connectomes a little, five sites."""
    drawn = synthetic_cohort(n, n_parcels)
    rng = np.random.default_rng(1)
    names = [f"sub-{number:04d}" for number in range(n)]
    scans = pd.DataFrame(
        {
            "participant_id": names,
            "session": "n/a",
            "seconds": 600.0,
            "mean_fd": rng.uniform(0.05, 0.4, n),
            "n_runs": 1,
            "combination": "none",
        }
    )
    table = pd.DataFrame(drawn.targets[:, :3], columns=["one", "two", "three"], index=names)
    edges = np.stack([vectorise_edges(each, weighted=False) for each in drawn.connectomes])
    return Cohort(
        scans=scans,
        edges=edges,
        parcels=tuple(f"parcel{i:03d}" for i in range(n_parcels)),
        networks=("n/a",) * n_parcels,
        phenotypes=table.assign(site=rng.permutation(np.arange(n) % 5).astype(str)),
        excluded=pd.DataFrame(columns=["participant_id", "session", "what", "reason"]),
    )


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of this process, and what the work returned."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def choose(**choices: object) -> Settings:
    """Settings of a default run in one process."""
    return Settings(Path(), Path(), "group", quiet=True, nprocs=1, **choices)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=862, help="number of people")
    parser.add_argument("--parcels", type=int, default=400, help="number of parcels")
    parser.add_argument("--targets", type=int, nargs="*", default=[1, 3], help="numbers of targets")
    parser.add_argument("--permutations", nargs="+", default=["0", "default"], help="numbers, or 'default'")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        cohort = cohort_in_memory(options.n, options.parcels)
        names = ("one", "two", "three")
        kernel, _ = timed(lambda: build_similarity(cohort, choose()))
        check, _ = timed(lambda: check_cohort(cohort, choose(targets=names)))
        quality, _ = timed(lambda: analyse_qc_fc(cohort, choose()))
        print(f"kernel {kernel:.1f} s, check {check:.1f} s (beyond the kernel {check - kernel:.1f} s), ", end="")
        print(f"QC-FC {quality:.1f} s", flush=True)
        questions = {f"{n} targets": {"targets": names[:n]} for n in options.targets}
        questions["a composite of two, a covariate"] = {"composite": ("g=one,two",), "covariates": ("three",)}
        for question, chosen in questions.items():
            first = None
            for number in options.permutations:
                asked = {} if number == "default" else {"permutations": int(number)}
                seconds, tables = timed(partial(analyse_prediction, cohort, choose(**chosen, **asked)))
                total = check + quality + seconds
                first = first or total
                done = tables["prediction_summary"].frame["n_permutations"].iloc[0]  # type: ignore[index]
                print(f"{question}, {done} permutations: prediction {seconds:.1f} s, all {total:.1f} s ", end="")
                print(f"({total / first:.2f} x the first)", flush=True)


if __name__ == "__main__":
    main()
