"""The same leading eigenvectors with flattened and with raw eigenvalues: the paper's Table of matched eigenvectors."""

from __future__ import annotations

import pandas as pd

from fcpower_bids.analyses.comparisons import COMPARISON_COLUMNS, RULE
from fcpower_bids.analyses.representations import FC, FC_POWER
from fcpower_bids.analyses.screening import Screening
from fcpower_bids.core.inference import adjust_p_values
from fcpower_bids.records import Table

TOP_MODES = (1, 5, 20, 40, 100)

COLUMNS = {
    "target": COMPARISON_COLUMNS["target"],
    "number": "Leading eigenvectors of each person; the last row has all of them",
    **{
        name: text
        for name, text in COMPARISON_COLUMNS.items()
        if name not in ("target", "representation", "reference", "p_holm")
    },
    "p_holm": "p_two_sided after Holm's correction over the numbers of eigenvectors of the target",
}


def top_name(number: int, weighting: str) -> str:
    """Name of the entry with so many leading eigenvectors, ``raw`` or ``power`` weighted."""
    return f"top_{number}_{weighting}"


def tabulate_matched(screening: Screening, n_parcels: int) -> Table:
    """Test flattened against raw eigenvalues at equal numbers of leading eigenvectors.

    Source: the paper, Table "top-k eigenvectors".

    Parameters
    ----------
    screening : Screening
        With the entries of `top_name`, and ``fc`` and ``fc_power`` for all eigenvectors.
    n_parcels : int
        How many eigenvectors all are.

    Returns
    -------
    Table
        A row per target and number from 5 on; the difference is flattened minus raw. One eigenvector alone gives the
        same features under both weightings, so there is nothing to test.
    """
    pairs = [(number, top_name(number, "power"), top_name(number, "raw")) for number in TOP_MODES if number > 1]
    pairs = [pair for pair in pairs if set(pair[1:]) <= screening.results.keys()]
    tests = [
        screening.compare_pair(flattened, raw).assign(number=number)
        for number, flattened, raw in (*pairs, (n_parcels, FC_POWER, FC))
    ]
    frame = pd.concat(tests, ignore_index=True).sort_values(["target", "number"], kind="stable", ignore_index=True)
    for _, rows in frame.groupby("target", sort=False).groups.items():
        frame.loc[rows, "p_holm"] = adjust_p_values(frame.loc[rows, "p_two_sided"].to_numpy(dtype=float))
    return Table(frame.reindex(columns=list(COLUMNS)), COLUMNS, {"Comparisons": RULE})
