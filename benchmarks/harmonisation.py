"""What each way of handling sites gives on cohorts of two scanners: the table of docs/presets.md.

    python -m benchmarks.harmonisation --draws 20

Every draw is a new cohort of 80 people, half at each scanner, whose series carry the artefact of their scanner. Three
targets: the scanner and noise; a factor of the connectome and noise; both. Alternately, one scanner has more of the
factor (`--confounded`).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses import ANALYSES
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.demo.dataset import draw_connectome, draw_person, draw_population
from fcpower_bids.demo.signals import draw_clean_series
from fcpower_bids.records import Cohort
from tests.analyses.cohorts import TR, choose, cohort_of

PEOPLE, VOLUMES = 80, 160
CHOICES: dict[str, Any] = {
    **{"preset": "recommended", "repeats": 2, "folds": 5, "permutations": 199, "site_column": "site"},
    **{"representations": ("fc", "fc_power"), "targets": ("scanner", "factor", "both")},
}


def draw_cohort(seed: int, confounded: bool) -> Cohort:
    """One session of everyone at one of two scanners."""
    rng = np.random.default_rng(seed)
    population, second = draw_population(rng), np.arange(PEOPLE) % 2 == 1
    factor = rng.standard_normal(PEOPLE) + (1.0 * second if confounded else 0.0)
    edges, weights = [], None
    for person in range(PEOPLE):
        connectome = draw_connectome(population, draw_person(rng), factor[person], rng)
        series = draw_clean_series(connectome, VOLUMES, TR, rng)
        weights = rng.standard_normal((1, series.shape[1])) if weights is None else weights
        artefact = 0.5 * rng.standard_normal((VOLUMES, 1)) @ weights
        series = series + second[person] * series.std() * artefact
        edges.append(vectorise_edges(pearson_connectivity(series), weighted=False))
    names = [f"sub-{number:03d}" for number in range(PEOPLE)]
    noise = rng.standard_normal((2, PEOPLE))
    columns = {
        "site": np.where(second, "two", "one"),
        "scanner": 2.0 * second + noise[0],
        "factor": factor + 0.5 * noise[1],
        "both": factor + 2.0 * second + 0.5 * noise[1],
    }
    scans = [(name, "n/a", VOLUMES * TR, 0.1, 1) for name in names]
    return cohort_of(np.stack(edges), scans, pd.DataFrame(columns, index=pd.Index(names)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--confounded", action="store_true", help="one scanner has more of the factor")
    options = parser.parse_args()
    found = []
    with threadpool_limits(1):
        for seed in range(options.draws):
            cohort = draw_cohort(seed, options.confounded)
            found.append(ANALYSES["harmonisation"](cohort, choose(**CHOICES))["harmonisation"].frame)
            table = pd.concat(found).assign(significant=lambda rows: rows["p_permutation"] < 0.05)
            keys = ["target", "representation", "sites"]
            told = table.groupby(keys, sort=False)[["pooled", "within", "mae", "significant"]].mean()
            print(f"{seed + 1} draws\n{told.round(2).to_string()}", flush=True)


if __name__ == "__main__":
    main()
