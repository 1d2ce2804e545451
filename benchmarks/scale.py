"""Nested cross-validation of a large cohort: time, memory and predictions of one process, of several and of Dask.

    python -m benchmarks.scale --n 2000 --folds 200 [--executor tcp://localhost:8786]

Kernel and target are drawn; 5 inner folds, the paper's 7 penalties. Every way gives the same bits, or the exit status
is 1. The limit is a plain matrix product of as many operations.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.krr import KernelRidge
from fcpower_bids.core.regression.nested import NestedResult, nested_cv
from fcpower_bids.core.regression.presets import PAPER
from fcpower_bids.parallel import executing, map_tasks
from fcpower_bids.settings import Resources


def cpu() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2000, help="people")
    parser.add_argument("--folds", type=int, default=200, help="outer folds, ten to a repetition")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--executor", help="address of a Dask scheduler")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    features = rng.standard_normal((options.n, 600)) * np.geomspace(3, 0.1, 600)
    kernel = correlation_kernel(features)
    target = (features[:, :5].sum(axis=1) + 8 * rng.standard_normal(options.n))[:, None]
    folds = replicated_folds(options.n, 10, 5, options.folds // 10)
    started = time.process_time()
    _ = kernel @ kernel
    product = time.process_time() - started
    limit = product / 2 * (0.035 * len(folds) + 1) * len(PAPER.penalties)
    print(f"n={options.n}, {len(folds)} outer folds, 5 inner, {len(PAPER.penalties)} penalties; limit {limit:.1f} s")
    ways = {"alone": Resources(nprocs=1), f"{options.workers} processes": Resources(nprocs=options.workers)}
    ways |= {"Dask": Resources(executor=options.executor)} if options.executor else {}
    reference: NestedResult | None = None
    for name, resources in ways.items():
        wall, before = time.monotonic(), cpu()
        with tempfile.TemporaryDirectory() as folder, executing(resources, Path(folder)):
            result = nested_cv(KernelRidge(kernel, PAPER.penalties), target, folds, each=map_tasks)
        wall, used = time.monotonic() - wall, cpu() - before
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e3
        print(
            f"  {name:<14} wall {wall:7.1f} s, CPU {used:7.1f} s, {used / limit:.2f} of the limit; peak {peak:.0f} MB"
        )
        reference = reference or result
        pairs = [*zip(reference.predicted, result.predicted, strict=True), (reference.chosen, result.chosen)]
        if not all(np.array_equal(first, second) for first, second in pairs):
            sys.exit("The bits differ.")


if __name__ == "__main__":
    main()
