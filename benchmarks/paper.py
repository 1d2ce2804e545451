"""Cost of every analysis of the paper on a synthetic cohort of its size: wall, CPU, peak memory.

    python benchmarks/paper.py --n 955 --parcels 400
    python benchmarks/paper.py --n 955 --parcels 400 --together
    python benchmarks/paper.py --n 200 --parcels 100 --analyses learning_curves parcellation_sweep

Each analysis runs in a process of its own, or with --together all as one command does them, which decomposes every
connectome once; with one BLAS thread per process and the paper's protocol (`--preset paper`: 20 x 10 outer folds, 5
inner, 7 penalties, one composite of 58 measures; 10 repeats in the transform screen and 3 in the spectral controls, as
there). A tenth of the people have a second session, but for these two, which have a cohort (and together a command) of
their own: means over sessions have no full rank. Series lie in a file in single precision; reading them is counted,
drawing them is not.

OpenBLAS chooses its kernel by the processor, and OPENBLAS_CORETYPE overrides that; the first line says which one ran.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_info, threadpool_limits

from fcpower_bids.analyses import OF_COHORTS
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.features import sharing_spectra
from fcpower_bids.core.edges import edge_count, vectorise_edges
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings

TR, N_MEASURES = 0.72, 58
REPEATS = {"transform_screen": 10, "spectral_controls": 3}
"""Where the paper has not 20."""

IN_PAPER = tuple(name for name in ANALYSES if name != "edges")
"""The analyses of the paper; the others are ours."""


def spectrum(n_parcels: int) -> np.ndarray:
    """Square roots of eigenvalues that fall like those of the paper's cohort."""
    order = np.arange(1, n_parcels + 1)
    return np.sqrt(order**-1.3 * np.exp(-3.0 * order / n_parcels))


def draw_series(basis: np.ndarray, seed: tuple[int, int], n_timepoints: int) -> np.ndarray:
    """Series of one scan: the person's own eigenvalues around the shared eigenvectors."""
    own = np.random.default_rng((seed[0], 0)).standard_normal(len(basis))
    noise = np.random.default_rng((*seed, 1)).standard_normal((len(basis), n_timepoints), dtype=np.float32)
    mixing = (basis * spectrum(len(basis)) * np.exp(0.25 * own)).astype(np.float32)
    return np.ascontiguousarray((mixing @ noise).T)


def make_cohort(n: int, n_parcels: int, n_timepoints: int, file: Path, twice: bool = True) -> Cohort:
    """One scan of n people, a second one of a tenth, a composite of 58 measures, and embeddings of two sizes."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((n_parcels, n_parcels)))[0]
    scans = [(person, 0) for person in range(n)] + [(person, 1) for person in range(max(n // 10, 4) * twice)]
    names = [f"sub-{person:05d}" for person in range(n)]
    edges = np.empty((len(scans), edge_count(n_parcels)))
    with file.open("wb") as stored:
        for row, scan in enumerate(scans):
            series = draw_series(basis, scan, n_timepoints)
            series.tofile(stored)
            edges[row] = vectorise_edges(np.corrcoef(series.T.astype(float)), weighted=False)
    factor = rng.standard_normal(n)
    measures = {f"m{k:02d}": factor + 2 * rng.standard_normal(n) for k in range(N_MEASURES)}
    family = [f"f{number}" for number in np.repeat(np.arange(n), 2)[:n]]
    people = [person for person, _ in scans]
    rows = [(names[p], f"ses-{s}", n_timepoints * TR, n_timepoints, 0.1 + 0.01 * (p % 7), 1) for p, s in scans]
    return Cohort(
        scans=pd.DataFrame(rows, columns=["participant_id", "session", "seconds", "volumes", "mean_fd", "n_runs"]),
        edges=edges,
        parcels=tuple(f"p{i:03d}" for i in range(n_parcels)),
        networks=tuple(f"network{i % 7}" for i in range(n_parcels)),
        phenotypes=pd.DataFrame({**measures, "family": family}, index=pd.Index(names, name="participant_id")),
        excluded=pd.DataFrame(columns=["participant_id", "session", "what", "reason"]),
        embeddings={
            f"encoder{d}": rng.standard_normal((len(scans), d)) + factor[people, None] * (np.arange(d) < 4)
            for d in (128, 384)
        },
        series=tuple(partial(_read, file, row, (n_timepoints, n_parcels)) for row in range(len(scans))),
        repetition_times=(TR,) * len(scans),
    )


def _read(file: Path, row: int, shape: tuple[int, int]) -> list[np.ndarray]:
    size = shape[0] * shape[1]
    return [np.fromfile(file, np.float32, size, offset=4 * size * row).reshape(shape).astype(float)]


def run(names: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run analyses in this process as those of one command, and measure each; making cohorts is not counted."""
    measured = []
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        for twice in (True, False):
            own = [name for name in names if (name not in REPEATS) == twice]
            if not own:
                continue
            several = any(name in OF_COHORTS for name in own)
            sizes = (options.parcels, options.parcels // 2, options.parcels // 4)[: 3 if several else 1]
            cohorts = {
                f"{size} parcels": make_cohort(options.n, size, options.timepoints, Path(folder) / f"{size}", twice)
                for size in sizes
            }
            first = cohorts[f"{sizes[0]} parcels"]
            with sharing_spectra(first.edges):
                measured += [measure(name, cohorts if name in OF_COHORTS else first, options) for name in own]
            del cohorts, first
    return measured


def measure(name: str, given: Cohort | Mapping[str, Cohort], options: argparse.Namespace) -> dict[str, Any]:
    """Run one analysis and measure it."""
    composite = "g=" + ",".join(f"m{k:02d}" for k in range(N_MEASURES))
    chosen = {"composite": (composite,), "family_column": "family", "preset": options.preset, "nprocs": options.nprocs}
    repeats = options.repeats or REPEATS.get(name, 20)
    settings = Settings(Path(), Path(), "group").changed(**chosen, repeats=repeats, quiet=True)
    wall, before = time.monotonic(), sum(os.times()[:4])
    try:
        tables = ANALYSES[name](given, settings)
        remark = f"{len(tables)} tables, {sum(len(table.frame) for table in tables.values())} rows"
    except ValueError as error:
        remark = f"left out: {error}"
    return {
        "name": name,
        "wall": time.monotonic() - wall,
        "cpu": sum(os.times()[:4]) - before,
        "peak": max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)),
        "remark": remark,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=955, help="people")
    parser.add_argument("--parcels", type=int, default=400, help="parcels")
    parser.add_argument("--timepoints", type=int, default=1200, help="volumes of each scan")
    parser.add_argument("--repeats", type=int, help="repetitions of the ten outer folds [the paper's]")
    parser.add_argument("--nprocs", type=int, default=1, help="processes for eigendecompositions")
    parser.add_argument("--preset", default="paper", help="protocol")
    parser.add_argument("--together", action="store_true", help="all in one process, as one command does them")
    parser.add_argument("--analyses", nargs="+", choices=list(ANALYSES), default=list(IN_PAPER))
    options = parser.parse_args()
    kernels = sorted({each["architecture"] for each in threadpool_info() if "architecture" in each})
    repeats = options.repeats or "as in the paper"
    print(f"n={options.n}, P={options.parcels}, T={options.timepoints}, {repeats=}, BLAS kernel {', '.join(kernels)}")
    print(f"{'analysis':<20}{'wall s':>9}{'CPU s':>9}{'peak GB':>9}")
    total = 0.0
    together = [options.analyses] if options.together else [[name] for name in options.analyses]
    for names in together:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            measured = pool.submit(run, names, options).result()
        for found in measured:
            total += found["cpu"]
            line = f"{found['name']:<20}{found['wall']:>9.1f}{found['cpu']:>9.1f}{found['peak'] / 1e6:>9.2f}"
            print(f"{line}   {found['remark']}", flush=True)
    print(f"{'all':<20}{'':>9}{total:>9.1f}   {total / 60:.1f} minutes of CPU")


if __name__ == "__main__":
    main()
