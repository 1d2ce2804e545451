"""A target made of sites is no finding, and an effect within sites is: rates of p < 0.05 of the permutation test.

    python -m benchmarks.site_targets [--draws 100] [--people 80]

The figures of `docs/check.md`. Connectomes are those of synthetic people with a factor, at four scanners that colour
the series; the target is a number per site, noise, and as much of the factor as is said. Everything goes through
`analyse_prediction`, the p is `p_max`.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.prediction.prediction import analyse_prediction
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.demo.dataset import draw_connectome, draw_person, draw_population
from fcpower_bids.demo.signals import draw_clean_series
from fcpower_bids.records import Cohort
from tests.analyses.cohorts import choose, cohort_of
from tests.planting.planted import TR, VOLUMES

SITES = 4
EFFECTS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Of the factor, in standard deviations of the noise within sites."""
BETWEEN = 3.0
"""Standard deviation of the means of the sites."""


def draw_people(people: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Edges (n, E) of one scan each, the factor (n,) behind them, and the site (n,), whose scanner is in the series."""
    rng = np.random.default_rng((77, seed))
    population, factor = draw_population(rng), rng.standard_normal(people)
    sites = rng.permutation(np.arange(people) % SITES)
    edges, colours = [], []
    for number in range(people):
        connectome = draw_connectome(population, draw_person(rng), factor[number], rng)
        series = draw_clean_series(connectome, VOLUMES, TR, rng)
        if not colours:
            shapes = rng.standard_normal((SITES, series.shape[1]))
            colours = [shape[None, :] * series.std() for shape in shapes]
        scanner = 0.4 * rng.standard_normal((len(series), 1)) @ colours[sites[number]]
        edges.append(vectorise_edges(pearson_connectivity(series + scanner), weighted=False))
    return np.stack(edges), factor, sites


def draw_cohort(
    edges: NDArray[np.float64], factor: NDArray[np.float64], sites: NDArray[np.intp], effect: float, seed: int
) -> Cohort:
    """The people with a target of site, factor and noise."""
    rng = np.random.default_rng((78, seed))
    target = BETWEEN * rng.standard_normal(SITES)[sites] + effect * factor + rng.standard_normal(len(factor))
    names = [f"sub-{number:03d}" for number in range(len(factor))]
    rows = [(name, "n/a", 240.0, 0.1, 1) for name in names]
    table = pd.DataFrame({"score": target, "site": [f"s{site}" for site in sites]}, index=names)
    return cohort_of(edges, rows, table)


def smallest_p(cohort: Cohort, site_column: str | None) -> float:
    """Corrected p of the better of FC and FC^alpha."""
    settings = choose(
        preset="recommended",
        targets=("score",),
        site_column=site_column,
        **{"folds": 5, "inner_folds": 3, "repeats": 1, "permutations": 199, "random_seed": 1},
    )
    return float(analyse_prediction(cohort, settings)["prediction_summary"].frame["p_max"].min())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100, help="targets without any effect within sites")
    parser.add_argument("--power-draws", type=int, default=40, help="targets per effect")
    parser.add_argument("--people", type=int, default=80, help="at four sites")
    options = parser.parse_args()
    with threadpool_limits(1):
        cohorts = [draw_people(options.people, seed) for seed in range(10)]
        for effect in EFFECTS:
            draws = options.draws if effect == 0 else options.power_draws
            drawn = [draw_cohort(*cohorts[draw % 10], effect, draw) for draw in range(draws)]
            found = np.array([[smallest_p(each, column) < 0.05 for column in ("site", None)] for each in drawn])
            within, free = found.mean(axis=0)
            print(
                f"effect {effect:g}: p < 0.05 in {within:.2f} within sites, in {free:.2f} across ({draws})", flush=True
            )


if __name__ == "__main__":
    main()
