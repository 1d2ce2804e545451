"""Permutation tests of every edge: time beside nilearn and beside bare products, and errors under the null.

    python -m benchmarks.edges speed                  # 1,000 people, 400 parcels, 1,000 permutations, 3 covariates
    python -m benchmarks.edges speed --people 200 --parcels 200 --permutations 200 --nilearn
    python -m benchmarks.edges errors --cohorts 500   # how often anything is found where nothing is
    python -m benchmarks.edges spreads --cohorts 200 --permutations 199   # classes of unequal size and spread
    python -m benchmarks.edges networks --people 100 --permutations 12   # beside bctpy 0.6.1, which has to be there

The figures of docs/group.md and docs/methods.md are from here.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import resource
import sys
import time

import numpy as np
from nilearn.mass_univariate import permuted_ols
from scipy import stats
from threadpoolctl import threadpool_limits

from fcpower_bids.core.connectome.edges import edge_count
from fcpower_bids.core.regression.targets import permuted_rows
from fcpower_bids.slices.edges.equations import build_model
from fcpower_bids.slices.edges.permuted import BLOCK, ORDERS, permute_edges

SEED = 7
PLANTED = 9
"""Parcels all of whose edges are stronger in the first of two groups."""


def measure_speed(options: argparse.Namespace) -> None:
    """Time our tests, Welch's of two classes, nilearn's, and the products of matrices that nobody can do without."""
    n, n_edges = options.people, edge_count(options.parcels)
    rng = np.random.default_rng(0)
    edges = rng.standard_normal((n, n_edges), dtype=np.float32)
    target, covariates = rng.standard_normal(n), rng.standard_normal((n, options.covariates))
    orders = permuted_rows(n, options.permutations, 0)

    def time_tests(target: np.ndarray, groups: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        started = time.process_time()
        model = build_model(target, covariates, groups=groups)
        found = permute_edges(edges, np.arange(n), model, orders, options.threshold, 1e9)
        return time.process_time() - started, found.t

    ours, t = time_tests(target)
    patient = (np.arange(n) < n // 3).astype(float)
    plain, welch = time_tests(patient)[0], time_tests(patient, patient)[0]
    floor = _time_product(n) * (1 + options.covariates) * (options.permutations / ORDERS) * (n_edges / BLOCK)
    print(f"{n} people, {n_edges:,} edges, {options.permutations} permutations, {options.covariates} covariates")
    print(f"ours {ours:.2f} CPU s, products alone {floor:.2f}, ratio {ours / floor:.2f}")
    print(f"two classes: {plain:.2f} CPU s, with a variance each (Welch) {welch:.2f}, ratio {welch / plain:.2f}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"largest memory {memory:.2f} GB, of which edges {edges.nbytes / 1e9:.2f}")
    if options.nilearn:
        started = time.process_time()
        theirs = permuted_ols(
            target, edges.astype(float), covariates, n_perm=options.permutations, random_state=0, output_type="dict"
        )
        seconds = time.process_time() - started
        off = np.abs(t - theirs["t"][0]).max()
        print(f"nilearn {seconds:.1f} CPU s, {seconds / ours:.1f} times ours; t differ by {off:.1g}")


def _time_product(n: int, rounds: int = 20) -> float:
    """CPU seconds of the product of a block of orders and a block of edges."""
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((ORDERS, n)), rng.standard_normal((n, BLOCK))
    started = time.process_time()
    for _ in range(rounds):
        left @ right
    return (time.process_time() - started) / rounds


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


def compare_spreads(options: argparse.Namespace) -> None:
    """20 patients and 80 controls, 300 edges that share factors; ten differ by d of 1 in the planted cohorts."""
    patient = np.arange(100) < 20
    model = build_model(patient.astype(float), np.empty((100, 0)), groups=patient)
    for ratio, effect, varied in ((1, 0, 0), (1.5, 0, 0), (2, 0, 0), (2, 0, 0.25), (1, 1, 0), (1.35, 1, 0)):
        found: dict[str, list[float]] = {"Student": [], "ours": []}
        for seed in range(options.cohorts):
            rng = np.random.default_rng(seed)
            edges = rng.standard_normal((100, 10)) @ rng.standard_normal((10, 300)) / 5 + rng.standard_normal(
                (100, 300)
            )
            edges /= edges.std(axis=0)
            edges[patient] *= ratio * np.exp(varied * rng.standard_normal(300))
            edges[patient, :10] += effect * np.sqrt((20 * ratio**2 + 80) / 100)
            orders = permuted_rows(100, options.permutations, seed)
            ours = permute_edges(edges, np.arange(100), model, orders, 3.0).p_family_wise < 0.05
            found["ours"].append(ours[:10].mean() if effect else ours.any())
            t = np.abs([stats.ttest_ind(edges[one], edges[~one])[0] for one in (patient, *patient[orders])])
            largest = np.sort(t[1:].max(axis=1))[::-1]
            above = t[0] > largest[int(0.05 * (len(largest) + 1)) - 1]
            found["Student"].append(above[:10].mean() if effect else above.any())
        said = ", ".join(f"{name} {np.mean(each):.3f}" for name, each in found.items())
        print(f"{'planted' if effect else 'noise'}, ratio {ratio}{', varied' if varied else ''}: {said}", flush=True)


def compare_networks(options: argparse.Namespace) -> None:
    """Ours and bctpy's networks of two groups on the same permutations: observed ones, and the largest by chance."""
    n, first = options.people, options.people // 2
    rows, columns = np.triu_indices(options.parcels, 1)
    edges = np.random.default_rng(3).standard_normal((n, len(rows)))
    edges[:first, columns < PLANTED] += 0.9
    drawn = np.random.RandomState(SEED)
    orders = np.array([np.argsort(drawn.permutation(n)) for _ in range(options.permutations)])
    started = time.process_time()
    model = build_model(np.arange(n) < first, np.zeros((n, 0)))
    found = permute_edges(edges, np.arange(n), model, orders, options.threshold)
    ours = time.process_time() - started
    largest, equal, theirs = np.zeros(options.permutations), True, 0.0
    for graph, tail in enumerate(("left", "right")):
        expected, by_chance, seconds = bct_networks(edges, first, options, tail)
        mine = [np.flatnonzero(found.components.label == i) for i in np.flatnonzero(found.components.graph == graph)]
        equal &= {frozenset(found.above[each].tolist()) for each in mine} == expected
        largest, theirs = np.maximum(largest, by_chance), theirs + seconds
    sizes = sorted(map(int, found.components.extent))[::-1]
    planted = set(np.flatnonzero(columns < PLANTED).tolist())
    best = set(found.above[found.components.label == found.components.extent.argmax()].tolist())
    print(f"{n} people, {len(rows):,} edges, |t| > {options.threshold}: {len(sizes)} networks of at most {sizes[0]}")
    print(f"planted edges in the largest: {len(planted & best)} of {len(planted)}, others in it: {len(best - planted)}")
    same = bool(equal and np.array_equal(largest, found.extents))
    print(f"networks and the largest of {options.permutations} permutations the same as bctpy's: {same}; {largest}")
    print(f"{ours:.2f} CPU s, bctpy (both tails) {theirs:.1f}")
    sys.exit(not same)


def bct_networks(
    edges: np.ndarray, first: int, options: argparse.Namespace, tail: str
) -> tuple[set[frozenset[int]], np.ndarray, float]:
    """Edges of each of bctpy's networks, the largest extent of each permutation, and CPU seconds."""
    rows, columns = np.triu_indices(options.parcels, 1)
    full = np.zeros((options.parcels, options.parcels, len(edges)))
    full[rows, columns] = full[columns, rows] = edges.T
    nbs = importlib.import_module("bct").nbs_bct
    started = time.process_time()
    with open(os.devnull, "w", encoding="ascii") as nowhere, contextlib.redirect_stdout(nowhere):
        found = nbs(
            full[..., :first], full[..., first:], options.threshold, k=options.permutations, tail=tail, seed=SEED
        )
    seconds = time.process_time() - started
    label = found[1][rows, columns]
    networks = {frozenset(np.flatnonzero(label == each).tolist()) for each in np.unique(label[label > 0])}
    return networks, np.asarray(found[2]), seconds


MEASURES = {
    "speed": measure_speed,
    "errors": count_errors,
    "spreads": compare_spreads,
    "networks": compare_networks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(MEASURES))
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--parcels", type=int, default=400)
    parser.add_argument("--permutations", type=int, default=1000)
    parser.add_argument("--covariates", type=int, default=3)
    parser.add_argument("--threshold", type=float, default=3.3, help="|t| above which an edge counts to a network")
    parser.add_argument("--cohorts", type=int, default=500)
    parser.add_argument("--nilearn", action="store_true", help="time nilearn on the same problem")
    options = parser.parse_args()
    with threadpool_limits(1):
        MEASURES[options.what](options)


if __name__ == "__main__":
    main()
