"""Permutation tests of every edge: time beside nilearn and beside bare products, and errors under the null.

    python -m benchmarks.edges speed                  # 1,000 people, 400 parcels, 1,000 permutations, 3 covariates
    python -m benchmarks.edges speed --people 200 --parcels 200 --permutations 200 --nilearn
    python -m benchmarks.edges errors --cohorts 500   # how often anything is found where nothing is

The figures of docs/group.md and docs/methods.md are from here.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from nilearn.mass_univariate import permuted_ols
from scipy import stats
from threadpoolctl import threadpool_limits

from fcpower_bids.core.connectome.edges import edge_count
from fcpower_bids.core.edgewise.model import build_model
from fcpower_bids.core.edgewise.permuted import BLOCK, ORDERS, permute_edges
from fcpower_bids.core.regression.targets import permuted_rows

THRESHOLD = 3.3


def measure_speed(options: argparse.Namespace) -> None:
    """Time our tests, nilearn's on the same problem, and the products of matrices that nobody can do without."""
    n, n_edges = options.people, edge_count(options.parcels)
    rng = np.random.default_rng(0)
    edges = rng.standard_normal((n, n_edges), dtype=np.float32)
    target, covariates = rng.standard_normal(n), rng.standard_normal((n, options.covariates))
    orders = permuted_rows(n, options.permutations, 0)
    started = time.perf_counter()
    model = build_model(target, covariates)
    found = permute_edges(edges, np.arange(n), model, orders, THRESHOLD, 1e9)
    ours = time.perf_counter() - started
    started = time.perf_counter()
    left, right = rng.standard_normal((ORDERS, n)), rng.standard_normal((n, BLOCK))
    rounds = 20
    for _ in range(rounds):
        left @ right
    one = (time.perf_counter() - started) / rounds
    floor = one * (1 + options.covariates) * (options.permutations / ORDERS) * (n_edges / BLOCK)
    print(f"{n} people, {n_edges:,} edges, {options.permutations} permutations, {options.covariates} covariates")
    print(f"ours {ours:.1f} s, products alone {floor:.1f} s, ratio {ours / floor:.2f}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"largest memory {memory:.2f} GB, of which edges {edges.nbytes / 1e9:.2f}")
    if options.nilearn:
        started = time.perf_counter()
        theirs = permuted_ols(
            target, edges.astype(float), covariates, n_perm=options.permutations, random_state=0, output_type="dict"
        )
        seconds = time.perf_counter() - started
        off = np.abs(found.t - theirs["t"][0]).max()
        print(f"nilearn {seconds:.1f} s, {seconds / ours:.1f} times ours; t differ by {off:.1g}")


def count_errors(options: argparse.Namespace) -> None:
    """Connectomes, a target and a covariate that goes with both, without any relation given the covariate."""
    n, parcels = 30, 20
    upper = np.triu_indices(parcels, 1)
    hits: dict[str, list[bool]] = {"edges": [], "extent": [], "intensity": []}
    for seed in range(options.cohorts):
        rng = np.random.default_rng(seed)
        covariate = rng.standard_normal(n)
        target = covariate + rng.standard_normal(n)
        edges = []
        for person in range(n):
            series = rng.standard_normal((60, parcels)) + (1 + 0.3 * covariate[person]) * rng.standard_normal((60, 1))
            edges.append(np.corrcoef(series.T)[upper])
        model = build_model(target, covariate)
        orders = permuted_rows(n, options.permutations, seed)
        found = permute_edges(np.array(edges), np.arange(n), model, orders, stats.t.isf(0.005, model.df))
        hits["edges"].append(found.p_family_wise.min() < 0.05)
        for name, p in zip(("extent", "intensity"), found.p_components(), strict=True):
            hits[name].append(p.min(initial=1.0) < 0.05)
    for name, each in hits.items():
        exact = stats.binomtest(sum(each), len(each)).proportion_ci(0.95)
        print(f"{name}: {np.mean(each):.3f} of {len(each)} null cohorts, 95 % CI {exact.low:.3f} to {exact.high:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "errors"))
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--parcels", type=int, default=400)
    parser.add_argument("--permutations", type=int, default=1000)
    parser.add_argument("--covariates", type=int, default=3)
    parser.add_argument("--cohorts", type=int, default=500)
    parser.add_argument("--nilearn", action="store_true", help="time nilearn on the same problem")
    options = parser.parse_args()
    with threadpool_limits(1):
        measure_speed(options) if options.what == "speed" else count_errors(options)


if __name__ == "__main__":
    main()
