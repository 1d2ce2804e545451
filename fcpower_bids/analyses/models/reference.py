"""The people a new scan is compared with: their connectomes in a few numbers, without their names."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.connectome.summary import connectome_summary
from fcpower_bids.core.regression.folds import Rows
from fcpower_bids.records import Cohort
from fcpower_bids.schema import Column, TableSpec, join_columns

QUALITY = {"mean_fd": "mean_fd", "seconds": "seconds", "degrees_of_freedom": "degrees_of_freedom"}

REFERENCE = TableSpec(
    "reference",
    "The training scans in a few numbers each, in a random order and without names.",
    join_columns(
        Column.number("scan", "Number of the scan, drawn at random", digits=0),
        Column.text(
            "measure",
            "What is given",
            levels={
                "mean_fc": "mean of all correlations",
                "within NETWORK": "mean correlation within a network",
                "participation_ratio": "effective number of eigenvalues of FC",
                "similarity": "how like the other training people the scan is, by models that had not seen it",
                "mean_fd": "mean framewise displacement, mm",
                "seconds": "seconds of cleaned series",
                "degrees_of_freedom": "degrees of freedom left by cleaning",
                "age": "age, where a phenotype table has it",
            },
        ),
        Column.number("value", "Its value"),
    ),
    ("scan", "measure"),
)


def reference_scans(
    cohort: Cohort, rows: Rows, similarity: NDArray[np.float64], ages: pd.Series | None, seed: int
) -> pd.DataFrame:
    """Describe scans of a cohort.

    Parameters
    ----------
    cohort : Cohort
    rows : ndarray of int, shape (n,)
        The scans.
    similarity : ndarray, shape (n,)
        See `RESIDUALS`; NaN where it is not known.
    ages : pandas.Series or None
        By participant.
    seed : int
        Of the order.

    Returns
    -------
    pandas.DataFrame
        `REFERENCE`.
    """
    parts = []
    for number, place in enumerate(np.random.default_rng(seed).permutation(len(rows))):
        scan = cohort.scans.iloc[rows[place]]
        fc = rebuild_matrix(np.asarray(cohort.edges[rows[place]], dtype=float), 1.0, weighted=False)
        found = connectome_summary(fc, cohort.networks) | {"similarity": float(similarity[place])}
        found |= {name: float(scan[column]) for name, column in QUALITY.items() if column in scan}
        if ages is not None:
            found["age"] = float(ages.get(str(scan["participant_id"]), np.nan))
        parts += [(number, name, value) for name, value in found.items() if np.isfinite(value)]
    return pd.DataFrame(parts, columns=list(REFERENCE.columns))
