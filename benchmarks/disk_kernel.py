"""Kernel ridge of more people than fit in memory: kernel and inverses on disk, step by step, with the memory of each.

    python -m benchmarks.disk_kernel --n 5000 --mem-mb 400 --folds 10

Features are drawn, 2,048 numbers for each person, in single precision on disk; one penalty, one target, 10 outer folds
and 5 inner. `--beside` does the same in memory, one penalty at a time, and compares the predictions: these have to
agree to 1e-9, or the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale import peak, used
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.dense import HOST, Dense
from fcpower_bids.core.regression.folds import Fold, replicated_folds
from fcpower_bids.core.regression.kernels import fill_correlations
from fcpower_bids.core.regression.nested import NestedResult, nested_cv
from fcpower_bids.core.regression.ridge import KernelPenalties, fit_in_sample, fold_bytes
from fcpower_bids.core.regression.tiled import Tiled
from fcpower_bids.ondisk import ScratchRows
from fcpower_bids.resources import MEGA, available_bytes, memory_limit

COLUMNS, PENALTY, FOLDS = 2048, 0.1, 10


def step(name: str, work: Callable[[], Any]) -> Any:
    """Do one step, and print what it took and the peak of memory until its end."""
    started, before = time.monotonic(), sum(used())
    result = work()
    wall, cpu = time.monotonic() - started, sum(used()) - before
    print(f"  {name:<28} wall {wall:8.1f} s, CPU {cpu:9.1f} s; peak {peak():7.0f} MB", flush=True)
    return result


def draw(folder: Path, n: int) -> tuple[ScratchRows, FloatArray]:
    """Features on disk, and a target that follows some of them."""
    rng, features = np.random.default_rng(0), ScratchRows(folder, (n, COLUMNS), np.float32)
    target = np.empty((n, 1))
    for row in range(n):
        own = rng.standard_normal(COLUMNS, dtype=np.float32)
        own[:100] *= 4
        features[row] = own
        target[row] = own[:5].sum() + 8 * rng.standard_normal()
    return features, target


def go(kernel: Any, target: FloatArray, folds: tuple[Fold, ...], dense: Dense) -> tuple[NestedResult, FloatArray]:
    """Invert, go through the folds, and where these are all fit in sample."""
    penalties = KernelPenalties(kernel, np.array([PENALTY]), dense=dense)
    solver = [step("inverse", lambda: penalties.part(PENALTY))]
    result = step(f"{len(folds)} outer folds", lambda: nested_cv(solver.pop(), target, folds))
    if len(folds) < FOLDS:
        return result, np.empty(0)
    masks = np.ones((len(target), 1), dtype=bool)
    masks[folds[0].test] = False
    return result, step("inverse and fit in sample", lambda: fit_in_sample(kernel, PENALTY, target, masks, True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=5000, help="people")
    parser.add_argument("--mem-mb", type=float, default=400, help="memory that is given")
    parser.add_argument("--folds", type=int, default=FOLDS, help="outer folds; with less than ten no fit in sample")
    parser.add_argument("--beside", action="store_true", help="the same in memory")
    options = parser.parse_args()
    n, folds = options.n, replicated_folds(options.n, FOLDS, 5, 1)[: options.folds]
    size = 8 * n * n / MEGA
    blocks = fold_bytes(n, len(folds[0].test), len(folds[0].inner[0])) / MEGA
    print(f"n={n}: kernel {size:.0f} MB, --mem-mb {options.mem_mb:g}; blocks of a fold {blocks:.0f} MB")
    with tempfile.TemporaryDirectory() as folder, memory_limit(options.mem_mb, Path(folder)):
        features, target = draw(Path(folder), n)
        kernel = ScratchRows(Path(folder), (n, n), np.float64)
        height = available_bytes() // (4 * 8 * n)
        step("kernel", lambda: fill_correlations(features, kernel, height, np.float32))
        found = go(kernel, target, folds, Tiled(Path(folder)))
        if options.beside:
            print("in memory")
            expected = go(kernel[:], target, folds, HOST)
            apart = [np.abs(a - b).max() for a, b in zip(found[0].predicted, expected[0].predicted, strict=True)]
            worst = max(*apart, np.abs(found[1] - expected[1]).max(initial=0))
            print(f"  differ by {worst:.0e} at most")
            sys.exit(int(worst > 1e-9))


if __name__ == "__main__":
    main()
