"""Cost of the group level on a synthetic cohort shaped like the paper's, against other packages.

    python benchmarks/group.py --section prediction kernels --n 955 --parcels 400
    python benchmarks/group.py --section workers --n 2000 [--executor tcp://localhost:8786]

Competitors are timed on a stated part of the work and extrapolated linearly; every such line says so. All times are
CPU seconds of this process with one BLAS thread, and the rate of a plain matrix product is printed beside them.
"workers" is nested cross-validation of a large cohort by one process, by two and by Dask, by the clock; the exit status
is 1 unless all give the same bits.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.features import ALPHA_GRID
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome import eigendecompose
from fcpower_bids.core.folds import PAPER, replicated_folds
from fcpower_bids.core.kernels import correlation_kernel, power_features
from fcpower_bids.core.krr import KernelRidge
from fcpower_bids.core.nested import nested_cv
from fcpower_bids.parallel import executing, map_tasks
from fcpower_bids.settings import Run

PENALTIES = np.array(PAPER.penalties)
N_TARGETS = 58


def report(what: str, seconds: float, remark: str = "") -> None:
    print(f"  {what:<72} {seconds:>10.2f} s  {remark}")


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of this process, and what the work returned."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


@lru_cache(maxsize=2)
def gemm_rate(dtype: str = "float64") -> float:
    """Floating-point operations per second of a matrix product, best of three."""
    matrix = np.random.default_rng(0).standard_normal((2000, 2000)).astype(dtype)
    return 2 * 2000**3 / min(timed(lambda: matrix @ matrix)[0] for _ in range(3))


@lru_cache(maxsize=1)
def synthetic_cohort(n: int, n_parcels: int, n_timepoints: int = 1200) -> SimpleNamespace:
    """Connectomes of n people around one covariance with the paper's spectrum, and targets that follow some edges."""
    rng = np.random.default_rng(0)
    order = np.arange(1, n_parcels + 1)
    basis = np.linalg.qr(rng.standard_normal((n_parcels, n_parcels)))[0]
    root = basis * np.sqrt(order**-1.3 * np.exp(-3.0 * order / n_parcels))
    connectomes = np.empty((n, n_parcels, n_parcels))
    for i in range(n):
        own = root * np.exp(0.25 * rng.standard_normal(n_parcels))
        connectomes[i] = np.corrcoef(own @ rng.standard_normal((n_parcels, n_timepoints)))
    seconds, pairs = timed(lambda: [eigendecompose(connectome) for connectome in connectomes])
    values, vectors = (np.stack(each) for each in zip(*pairs, strict=True))
    features = power_features(values, vectors, ALPHA_STAR)
    kernel = correlation_kernel(features)
    signal = np.linalg.cholesky(kernel + 1e-8 * np.eye(n)) @ rng.standard_normal((n, N_TARGETS))
    targets = signal / signal.std(axis=0) + 1.5 * rng.standard_normal((n, N_TARGETS))
    family = rng.permutation(np.repeat(np.arange(n), rng.choice([1, 2, 3, 4], n, p=[0.5, 0.3, 0.15, 0.05]))[:n])
    ratio = np.median(values[:, 0] / values[:, -1])
    participation = np.mean(values.sum(axis=1) ** 2 / np.sum(values**2, axis=1))
    print(f"Synthetic cohort: n={n}, P={n_parcels}, T={n_timepoints}, lambda_1/lambda_P {ratio:.2g}, ", end="")
    print(f"participation ratio {participation:.1f}, {np.unique(family).size} families")
    report("eigendecompositions", seconds, f"{1e3 * seconds / n:.1f} ms each, once for all exponents")
    return SimpleNamespace(
        connectomes=connectomes,
        spectra=(values, vectors),
        decomposing=seconds,
        kernel=kernel,
        targets=targets,
        family=family,
    )


def nested_flops(n: int, m: int, n_fits: int) -> float:
    """Operations of `nested_cv` with 10 outer and 5 inner folds, factorisation included."""
    t, train, v = n / 10, 0.9 * n, 0.18 * n
    inner = 5 * (v * v * t + v**3 / 3 + 2 * v * v * m + 2 * t * v * m)
    return n_fits * (t**3 / 3 + t * t * train + 2 * t * t * m + inner) + PENALTIES.size * (n**3 + 2 * n * n * m)


def prediction_section(options: argparse.Namespace) -> None:
    """Nested cross-validation: 20 x 10 outer folds, 5 inner, 7 penalties."""
    cohort, n = synthetic_cohort(options.n, options.parcels), options.n
    folds = replicated_folds(n, families=cohort.family)
    rate = gemm_rate()
    print(f"Prediction: {len(folds)} outer folds, 5 inner, {PENALTIES.size} penalties; GEMM {rate / 1e9:.0f} GFLOP/s")
    ours = {}
    for m in (1, N_TARGETS):
        ours[m], result = timed(
            lambda m=m: nested_cv(KernelRidge(cohort.kernel, PENALTIES), cohort.targets[:, :m], folds)
        )
        share = nested_flops(n, m, len(folds) * PENALTIES.size) / rate / ours[m]
        score = result.fold_scores("pearson").mean()
        report(f"fcpower_bids, {m} target(s)", ours[m], f"{share:.0%} of the GEMM rate; mean fold r {score:.3f}")
    _competitors(cohort, folds, ours)


def _competitors(cohort: SimpleNamespace, folds: tuple, ours: dict[int, float]) -> None:
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.model_selection import GridSearchCV

    def scikit_learn(part: tuple) -> None:
        for fold in part:
            train = fold.train
            cv = [(np.flatnonzero(~np.isin(train, v)), np.flatnonzero(np.isin(train, v))) for v in fold.inner]
            search = GridSearchCV(KernelRidge(kernel="precomputed"), {"alpha": PENALTIES}, cv=cv, scoring="r2")
            search.fit(cohort.kernel[np.ix_(train, train)], cohort.targets[train, 0])
            search.predict(cohort.kernel[np.ix_(fold.test, train)])

    part = folds[:3]
    scale = len(folds) / len(part)
    remark = f"{len(part)} of {len(folds)} folds x {scale:.0f}, no intercept"
    one = timed(lambda: scikit_learn(part))[0] * scale
    report("scikit-learn GridSearchCV(KernelRidge precomputed), 1 target", one, f"{one / ours[1]:.0f}x ours; {remark}")


def kernels_section(options: argparse.Namespace) -> None:
    """From connectomes to kernels, for one exponent and for a grid: both sides with their eigendecompositions."""
    n, n_parcels = options.n, options.parcels
    cohort = synthetic_cohort(n, n_parcels)
    n_edges = n_parcels * (n_parcels - 1) // 2
    rate, flops = gemm_rate(), n * n_parcels**3 + n * n * n_edges
    print(f"Kernels: {n} x {n_edges} edges; limit of the products (P^3 n + n^2 E) {flops / rate:.2f} s at ", end="")
    print(f"{rate / 1e9:.0f} GFLOP/s")
    theirs, expected = _pyriemann(cohort)
    for name, dtype in (("fp64", np.float64), ("fp32 products, fp64 sums", np.float32)):
        features = np.empty((n, n_edges), dtype)
        first = timed(lambda features=features: power_features(*cohort.spectra, ALPHA_STAR, out=features))[0]
        second, kernel = timed(lambda features=features, dtype=dtype: correlation_kernel(features, dtype=dtype))
        products, error = first + second, np.abs(kernel - expected).max()
        remark = f"features {first:.2f} + kernel {second:.2f}; {flops / rate / products:.0%} of limit; "
        report(f"fcpower_bids, {name}, beyond the eigendecompositions", products, f"{remark}differs by {error:.0e}")
        for n_exponents in (1, len(ALPHA_GRID)):
            total = cohort.decomposing + n_exponents * products
            what = f"fcpower_bids, {name}, {n_exponents} exponent{'s' * (n_exponents > 1)}, all included"
            report(what, total, f"pyriemann {n_exponents * theirs / total:.1f}x")


def _pyriemann(cohort: SimpleNamespace) -> tuple[float, np.ndarray]:
    """Time the same with pyriemann and numpy for all people; both sides write the features into new memory."""
    from pyriemann.utils.base import powm

    n, n_parcels = cohort.spectra[0].shape
    rows, columns = np.triu_indices(n_parcels, 1)
    features, powers, edges = np.empty((n, rows.size)), 0.0, 0.0

    def vectorise(block: slice, matrices: np.ndarray) -> None:
        features[block] = matrices[:, rows, columns]

    for start in range(0, n, 40):
        block = slice(start, start + 40)
        seconds, matrices = timed(lambda block=block: powm(cohort.connectomes[block], ALPHA_STAR))
        powers += seconds
        edges += timed(lambda block=block, matrices=matrices: vectorise(block, matrices))[0]
    correlations, kernel = timed(lambda: np.corrcoef(features))
    total = powers + edges + correlations
    remark = f"powm {powers:.2f} + edges {edges:.2f} + corrcoef {correlations:.2f}; all {n} people"
    report("pyriemann powm + numpy.corrcoef", total, remark)
    return total, kernel


def workers_section(options: argparse.Namespace) -> None:
    """Nested cross-validation of drawn people; the limit is a plain matrix product of as many operations."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((options.n, 600)) * np.geomspace(3, 0.1, 600)
    kernel = correlation_kernel(features)
    target = (features[:, :5].sum(axis=1) + 8 * rng.standard_normal(options.n))[:, None]
    folds = replicated_folds(options.n)
    limit = timed(lambda: kernel @ kernel)[0] / 2 * (0.035 * len(folds) + 1) * PENALTIES.size
    print(f"Workers: n={options.n}, {len(folds)} outer folds, 5 inner, {PENALTIES.size} penalties; limit {limit:.1f} s")
    ways = {"alone": Run(nprocs=1), "2 processes": Run(nprocs=2)}
    ways |= {"Dask": Run(executor=options.executor)} if options.executor else {}
    results = []
    for name, resources in ways.items():
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, executing(resources, Path(folder)):
            results.append(nested_cv(KernelRidge(kernel, PENALTIES), target, folds, map_folds=map_tasks))
        wall = time.monotonic() - started
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e3
        report(name, wall, f"by the clock, {wall / limit:.2f} of the limit; peak {peak:.0f} MB")
        first, last = ([each.chosen, *each.predicted] for each in (results[0], results[-1]))
        if not all(map(np.array_equal, first, last)):
            sys.exit("The bits differ.")


SECTIONS = {"prediction": prediction_section, "kernels": kernels_section, "workers": workers_section}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--section", nargs="+", choices=list(SECTIONS), default=["prediction", "kernels"])
    parser.add_argument("--n", type=int, default=955, help="number of people")
    parser.add_argument("--parcels", type=int, default=400, help="number of parcels")
    parser.add_argument("--executor", help="address of a Dask scheduler")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for name in options.section:
            SECTIONS[name](options)


if __name__ == "__main__":
    main()
