"""Search for the exponent of best alignment over many folds: one interpolant against a fresh kernel per Brent step.

The cohort is synthetic: spectra with a condition number near 1e5 and a participation ratio near 10, a target that
changes all modes alike, noise that is stronger in the weak ones. The direct way is timed on a few folds and
extrapolated linearly to all of them. All times are CPU seconds of one process; set OMP_NUM_THREADS=1.

    python benchmarks/alignment.py --n 955 --parcels 400 --folds 200
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from time import process_time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from fcpower_bids.core.connectome.spectrum import participation_ratio
from fcpower_bids.core.filters.alignment import target_alignment
from fcpower_bids.core.filters.exponents import ALPHA_BOUNDS, alignment_curves, chebyshev_nodes
from fcpower_bids.core.regression.kernels import correlation_kernel, power_features

Array = NDArray[np.float64]

CONDITION, PARTICIPATION = 1e5, 10.0


def log_spectrum(n_parcels: int) -> Array:
    """ln(lambda_i) = -ln(condition) (i / P)^q, with q chosen for the participation ratio."""
    ranks = np.linspace(0, 1, n_parcels)

    def excess(q: float) -> float:
        return participation_ratio(np.exp(-np.log(CONDITION) * ranks**q)) - PARTICIPATION

    return -np.log(CONDITION) * ranks ** brentq(excess, 0.05, 2)


def simulate_cohort(n: int, n_parcels: int, seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    logs = log_spectrum(n_parcels)
    y = rng.standard_normal(n)
    scale = np.sqrt(24 / n_parcels)
    effect = 0.03 * scale * rng.standard_normal((n_parcels, n_parcels))
    weaker_is_noisier = 0.05 * scale * np.exp(-0.05 * (logs[:, None] + logs))
    eigenvalues, eigenvectors = np.empty((n, n_parcels)), np.empty((n, n_parcels, n_parcels))
    for subject in range(n):
        change = y[subject] * effect + weaker_is_noisier * rng.standard_normal((n_parcels, n_parcels))
        values, vectors = np.linalg.eigh(np.diag(logs) + change + change.T)
        eigenvalues[subject], eigenvectors[subject] = np.exp(values[::-1]), vectors[:, ::-1]
    return eigenvalues, eigenvectors, y + rng.standard_normal(n)


def training_masks(n: int, n_folds: int, seed: int) -> NDArray[np.bool_]:
    """Ten folds at a time, as in a replicated cross-validation."""
    rng = np.random.default_rng(seed)
    labels = [rng.permutation(n) % 10 for _ in range(-(-n_folds // 10))]
    return np.array([labels[fold // 10] != fold % 10 for fold in range(n_folds)])


def search_directly(kernel: Callable[[float], Array], mask: NDArray[np.bool_], y: Array) -> tuple[float, int]:
    found = minimize_scalar(
        lambda alpha: -target_alignment(kernel(alpha), mask, y)[0, 0],
        bounds=ALPHA_BOUNDS,
        method="bounded",
        options={"xatol": 1e-5},
    )
    return found.x, found.nfev


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=955)
    parser.add_argument("--parcels", type=int, default=400)
    parser.add_argument("--folds", type=int, default=200)
    parser.add_argument("--direct-folds", type=int, default=1, help="folds searched with fresh kernels")
    parser.add_argument("--nodes", type=int, default=13)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    eigenvalues, eigenvectors, y = simulate_cohort(options.n, options.parcels, options.seed)
    masks = training_masks(options.n, options.folds, options.seed + 1)
    condition = np.median(eigenvalues[:, 0] / eigenvalues[:, -1])
    participation = np.mean([participation_ratio(values) for values in eigenvalues])
    print(f"n {options.n}  P {options.parcels}  condition {condition:.2g}  participation ratio {participation:.1f}")

    features = np.empty((options.n, options.parcels * (options.parcels - 1) // 2))

    def kernel(alpha: float) -> Array:
        return correlation_kernel(power_features(eigenvalues, eigenvectors, alpha, out=features))

    start = process_time()
    curves = alignment_curves(kernel, masks, y, chebyshev_nodes(options.nodes))
    found = curves.optimum()
    interpolated = process_time() - start
    print(f"interpolated: {options.nodes} kernels, {options.folds} folds, {interpolated:.1f} s CPU")
    print(
        f"  alpha_A {np.nanmean(found.alpha):.4f} +/- {np.nanstd(found.alpha):.4f}, at a bound {found.at_bound.sum()}"
    )
    print(f"  interpolant may be off by {curves.truncation().max():.1e} of A {np.nanmean(found.alignment):.4f}")

    start, differences, steps = process_time(), [], []
    for fold in range(options.direct_folds):
        alpha, evaluations = search_directly(kernel, masks[[fold]], y)
        differences.append(abs(alpha - found.alpha[fold, 0]))
        steps.append(evaluations)
    per_fold = (process_time() - start) / options.direct_folds
    direct = per_fold * options.folds
    print(f"direct: {per_fold:.1f} s CPU per fold ({np.mean(steps):.0f} kernels), measured on {options.direct_folds}")
    print(f"  extrapolated linearly to {options.folds} folds: {direct:.0f} s CPU")
    print(f"ratio {direct / interpolated:.1f}, largest difference of alpha {max(differences):.1e}")


if __name__ == "__main__":
    main()
