"""Nystroem on a large cohort: CPU and memory of the landmarks' columns and of the folds, and the error of the kernel.

    python -m benchmarks.nystroem --n 10000 --landmarks 1000 --folds 20

Features are drawn (40 directions that people differ in, and noise) and lie on disk in single precision; 5 inner folds,
the paper's 7 penalties, one target, one process. The figures of `docs/scale.md`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.scale import peak
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import SomePeople, correlation_columns, correlation_kernel, narrow_panel
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.presets import PAPER
from fcpower_bids.core.regression.solvers.nystroem import Landmarks, NystroemSolver, kernel_error
from fcpower_bids.ondisk import ScratchRows

DIRECTIONS, STRIP = 40, 500


def draw(folder: Path, n: int, n_edges: int) -> tuple[ScratchRows, np.ndarray]:
    """Features on disk, and a target that three of their directions tell in part."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((n, DIRECTIONS)) * np.geomspace(1, 0.1, DIRECTIONS)
    basis = rng.standard_normal((DIRECTIONS, n_edges)).astype(np.float32)
    features = ScratchRows(folder, (n, n_edges), np.float32)
    for start in range(0, n, STRIP):
        own = scores[start : start + STRIP].astype(np.float32) @ basis
        features[start : start + STRIP] = own + 2 * rng.standard_normal(own.shape, dtype=np.float32)
    return features, scores[:, :3].sum(axis=1) + 2 * rng.standard_normal(n)


def tell(what: str, since: float) -> float:
    """Print CPU seconds since some moment and the peak of the memory; return the moment."""
    now = time.process_time()
    print(f"  {what:<40} CPU {now - since:7.1f} s; peak {peak():.0f} MB", flush=True)
    return now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000, help="people")
    parser.add_argument("--edges", type=int, default=79_800, help="features of each")
    parser.add_argument("--landmarks", type=int, default=1000, help="landmarks of a fold")
    parser.add_argument("--folds", type=int, default=20, help="outer folds, ten to a repetition")
    options = parser.parse_args()
    folds = replicated_folds(options.n, 10, 5, options.folds // 10)
    print(f"n={options.n}, {options.edges} edges, {options.landmarks} landmarks, {len(folds)} outer folds")
    with tempfile.TemporaryDirectory() as folder:
        features, target = draw(Path(folder), options.n, options.edges)
        now = tell("features drawn", 0.0)
        landmarks = Landmarks(
            lambda people: correlation_columns(features, people, np.float32), options.n, options.landmarks, 0, 1e-7
        )
        landmarks.cover(folds)
        now = tell(f"{landmarks.people.size} columns of the kernel", now)
        result = nested_cv(NystroemSolver(landmarks, PAPER.penalties), target, folds)
        now = tell(f"{len(folds)} folds", now)
        people = np.sort(landmarks.order[-2000:])
        kernel = correlation_kernel(SomePeople(features, people), dtype=np.float32, panel=narrow_panel(options.n))
        others = ~np.isin(people, landmarks.choose(folds[0].train))
        own, clipped = landmarks.features(folds[0].train)
        error = kernel_error(kernel[np.ix_(others, others)], own[people[others]])
        tell("error of the kernel", now)
    score = result.pooled_scores("pearson").mean()
    print(f"  kernel off by {100 * error:.2g} % between {others.sum()} people, {clipped} clipped; r {score:.3f}")


if __name__ == "__main__":
    main()
