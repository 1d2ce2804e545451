"""Whether connectomes tell the site: what goes with the site can then be predicted by recognising the scanner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.check.finding import NOTE, Finding
from fcpower_bids.analyses.engine.targets import SIGNIFICANT, site_columns
from fcpower_bids.core.inference.recognition import recognise_groups
from fcpower_bids.core.regression.dense import copy_block
from fcpower_bids.core.regression.kernels import FeatureSource
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis

MOST_PEOPLE = 5000
"""People, drawn at random, whose sites are told from each other, by some matrices of these people by themselves."""


def check_recognition(cohort: Cohort, similarity: FeatureSource, settings: Analysis) -> Iterator[Finding]:
    """Say how well every column of sites is told from the first scan of each person.

    Parameters
    ----------
    cohort : Cohort
        N scans.
    similarity : array, shape (N, N)
        Kernel of the scans, in memory or on disk.
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
        everyone = np.flatnonzero(sites.notna())
        known = _draw(everyone, settings.random_seed)
        rows = first[there][known]
        found = recognise_groups(
            copy_block(similarity, rows, rows), sites.iloc[known].astype(str).to_numpy(), seed=settings.random_seed
        )
        if found.p < SIGNIFICANT:
            yield Finding(
                "site and connectome",
                NOTE,
                found.n,
                found.share,
                f"The connectomes tell the {found.n_groups} sites of '{column}': {100 * found.share:.0f} % of the "
                f"people of a site are recognised, where chance is {100 / found.n_groups:.0f} %"
                f"{f' (of {found.n:,} people drawn at random)' if len(known) < len(everyone) else ''}.",
                "Whatever goes with the site can be predicted from the scanner alone.",
                _remedy(column, settings),
            )


def _remedy(column: str, settings: Analysis) -> str:
    """What is left to do, given what was chosen."""
    if settings.hold_out_sites:
        return "Read the score within sites; these are held out."
    if settings.site_column == column:
        return "Read the score within sites, or use --hold-out-sites."
    return f"Give --site-column {column} and read the score within sites, or use --hold-out-sites."


def _draw(rows: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """All rows, or `MOST_PEOPLE` of them in their order."""
    if len(rows) <= MOST_PEOPLE:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, MOST_PEOPLE, replace=False))
