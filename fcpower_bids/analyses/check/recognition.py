"""Whether connectomes tell the site: what goes with the site can then be predicted by recognising the scanner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.check.columns import SIGNIFICANT, site_columns
from fcpower_bids.analyses.check.finding import NOTE, Finding
from fcpower_bids.core.inference.recognition import recognise_groups
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis


def check_recognition(cohort: Cohort, similarity: NDArray[np.float64], settings: Analysis) -> Iterator[Finding]:
    """Say how well every column of sites is told from the first scan of each person.

    Parameters
    ----------
    cohort : Cohort
        N scans.
    similarity : ndarray, shape (N, N)
        Kernel of the scans.
    settings : Analysis
        Site column and seed.
    """
    if cohort.phenotypes.empty:
        return
    table = cohort.phenotypes.copy()
    table.index = table.index.astype(str)
    people, first = np.unique(cohort.scans["participant_id"].astype(str), return_index=True)
    there = np.isin(people, table.index)
    for column in site_columns(table, settings):
        sites = table[column].reindex(people[there])
        known = sites.notna().to_numpy()
        rows = first[there][known]
        found = recognise_groups(
            similarity[np.ix_(rows, rows)], sites[known].astype(str).to_numpy(), seed=settings.random_seed
        )
        if found.p < SIGNIFICANT:
            yield Finding(
                "site and connectome",
                NOTE,
                found.n,
                found.share,
                f"The connectomes tell the {found.n_groups} sites of '{column}': {100 * found.share:.0f} % of the "
                f"people of a site are recognised, where chance is {100 / found.n_groups:.0f} %.",
                "Whatever goes with the site can be predicted from the scanner alone.",
                f"Give --site-column {column} and read the score within sites, or use --hold-out-sites.",
            )
