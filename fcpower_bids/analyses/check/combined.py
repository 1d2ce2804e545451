"""Connectomes that are made of several recordings: whether any series could have them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.analyses.check.finding import NOTE, Finding, name_some
from fcpower_bids.analyses.engine.connectomes import combine_scans, tell_combination
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.settings import Analysis

NEGATIVE = -1e-6
"""Eigenvalues of a correlation matrix that are lower are no rounding."""

CHECK_COMBINED = TableSpec(
    "check_combined",
    "People whose connectome is made of several recordings, and its negative eigenvalues.",
    join_columns(
        Column.text("participant_id", "Person", "Person"),
        Column.number("n_scans", "Scans of the person", "Scans", 0),
        Column.number("negative_eigenvalues", f"Eigenvalues below {NEGATIVE:g}; no series has any", "Negative", 0),
        Column.number("lowest_eigenvalue", "The lowest eigenvalue", "Lowest"),
    ),
    ("participant_id",),
)


def tabulate_combined(cohort: Cohort, settings: Analysis) -> Table:
    """Return ``check_combined``: the people with several scans, or with a scan that is an average of runs."""
    persons = cohort.scans["participant_id"].astype(str)
    _, numbers, sizes = np.unique(persons.to_numpy(dtype=str), return_inverse=True, return_counts=True)
    groups = np.split(np.argsort(numbers, kind="stable"), sizes.cumsum()[:-1])
    averaged = cohort.scans["combination"].astype(str) == "average" if "combination" in cohort.scans else persons == ""
    combined = [rows for rows in groups if len(rows) > 1 or averaged.iloc[rows].any()]
    connectomes = combine_scans(cohort, combined, settings) if combined else None
    rows = []
    for unit, scans in enumerate(combined):
        values = np.linalg.eigvalsh(connectomes.connectome(unit)) if connectomes else np.empty(0)
        rows.append((persons.iloc[scans[0]], len(scans), int((values < NEGATIVE).sum()), float(values[0])))
    frame = pd.DataFrame(rows, columns=list(CHECK_COMBINED.columns))
    return Table(frame, CHECK_COMBINED, {"Rule": tell_combination(settings)})


def tell_negative(combined: pd.DataFrame) -> Iterator[Finding]:
    """Name the people of ``check_combined`` whose connectome no series could have."""
    found = combined[combined["negative_eigenvalues"] > 0].sort_values("lowest_eigenvalue", kind="stable")
    if found.empty:
        return
    lowest = float(found["lowest_eigenvalue"].iloc[0])
    yield Finding(
        "negative eigenvalues",
        NOTE,
        len(found),
        lowest,
        f"The connectomes of {len(found)} people are averages with negative eigenvalues (lowest {lowest:.2f}; "
        f"{name_some(found['participant_id'].tolist())}).",
        "No series has such a connectome; FC^alpha leaves these directions out.",
        "Put the scans one after the other instead: --combine-runs concat.",
    )
