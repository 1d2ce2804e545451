"""Cohorts in memory for the check."""

from __future__ import annotations

import numpy as np

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.records import Cohort
from tests.analyses.cohorts import cohort_of
from tests.planting.planted import TR, draw_table


def in_memory(drawn: dict[tuple[int, str], np.ndarray], seed: int = 0) -> Cohort:
    """Series by person and session, with phenotypes that depend on nothing."""
    rng = np.random.default_rng((seed, 3))
    people = 1 + max(person for person, _ in drawn)
    rows = [
        (f"sub-{person:03d}", session, TR * len(series), float(rng.uniform(0.05, 0.4)), 1)
        for (person, session), series in drawn.items()
    ]
    edges = np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in drawn.values()])
    table = draw_table(people, seed)
    table.index = [f"sub-{person:03d}" for person in range(people)]
    return cohort_of(edges, rows, table.drop(columns="participant_id"), list(drawn.values()))
