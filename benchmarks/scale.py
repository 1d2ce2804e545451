"""Nested cross-validation of a large cohort: alone, in little memory, by processes, by Dask with a worker killed.

    python -m benchmarks.scale --n 2000 --folds 200

Kernel and target are drawn; 5 inner folds, the paper's 7 penalties. Every way gives the same bits, or the exit status
is 1. CPU and peak memory are those of each process. The figures of `docs/scale.md`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.nested import NestedResult, nested_cv
from fcpower_bids.core.regression.presets import PAPER
from fcpower_bids.core.regression.ridge import KernelPenalties, open_kernel
from fcpower_bids.executors import executing, map_tasks, select
from fcpower_bids.resources import MEGA, memory_limit
from fcpower_bids.settings import Resources


def worker_of(item: int) -> int:
    """Process of a worker; a moment long, so that each gets one."""
    time.sleep(0.3)
    return os.getpid()


def used() -> tuple[float, float]:
    """CPU seconds of this process and of its children that have ended; joblib's are asked themselves."""
    own = os.times()
    return own.user + own.system, own.children_user + own.children_system


def peak_of(item: int) -> tuple[int, float, float]:
    """Process, CPU seconds and peak memory in MB of whoever is asked."""
    time.sleep(0.3)
    own = os.times()
    return os.getpid(), own.user + own.system, peak()


def peak() -> float:
    """Peak memory of this process in MB; what the process had that started it does not count, as in getrusage."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def kill_soon(pid: int, seconds: float) -> None:
    """End a worker while it is at work."""
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2000, help="people")
    parser.add_argument("--folds", type=int, default=200, help="outer folds, ten to a repetition")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    features = rng.standard_normal((options.n, 600)) * np.geomspace(3, 0.1, 600)
    kernel = correlation_kernel(features)
    target = (features[:, :5].sum(axis=1) + 8 * rng.standard_normal(options.n))[:, None]
    folds = replicated_folds(options.n, 10, 5, options.folds // 10)
    print(f"n={options.n}, {len(folds)} outer folds, 5 inner, {len(PAPER.penalties)} penalties, 1 target")
    select.WORTH = 0.0

    def ways() -> NestedResult:
        return nested_cv(open_kernel(kernel, PAPER.penalties), target, folds, each=map_tasks)

    with memory_limit(150 + 6 * kernel.nbytes / MEGA):
        if not isinstance(open_kernel(kernel, PAPER.penalties), KernelPenalties):
            raise SystemExit("That is memory enough for all penalties.")
        reference = measure("alone, one penalty at a time", ways)
    compare(reference, measure("alone", ways))
    with tempfile.TemporaryDirectory() as folder:
        with executing(Resources(nprocs=options.workers), Path(folder)):
            compare(reference, measure(f"{options.workers} processes", ways, options.workers))
        file = Path(folder) / "local.yml"
        file.write_text(
            f"cluster: LocalCluster\noptions: {{n_workers: {options.workers}, threads_per_worker: 1, "
            "dashboard_address: null}\n"
        )
        with executing(Resources(executor=str(file)), Path(folder)):
            compare(reference, measure(f"Dask, {options.workers} workers", ways, options.workers))
            kill_soon(next(map_tasks(worker_of, range(4))), 3)
            compare(reference, measure("the same, one killed at work", ways, options.workers))


def measure(name: str, work: Callable[[], NestedResult], workers: int = 0) -> NestedResult:
    """Do the work and print what it took."""
    started, before = time.monotonic(), used()
    result = work()
    wall, after = time.monotonic() - started, used()
    each = {pid: rest for pid, *rest in map_tasks(peak_of, range(4 * workers))}
    cpu = after[0] - before[0] + sum(seconds for seconds, _ in each.values())
    peaks = " ".join(f"{most:.0f}" for _, most in each.values())
    print(
        f"  {name:<34} wall {wall:7.1f} s, CPU {cpu:7.1f} s; peak {peak():.0f} MB, workers {peaks or '-'} MB",
        flush=True,
    )
    return result


def compare(one: NestedResult, other: NestedResult) -> None:
    """End where the bits differ."""
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("chosen", "inner_scores"))
    if not same or not all(np.array_equal(a, b) for a, b in zip(one.predicted, other.predicted, strict=True)):
        sys.exit("The bits differ.")


if __name__ == "__main__":
    main()
