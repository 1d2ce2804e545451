"""Every edge of a target and representation, as matrices that any program reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from fcpower_bids.analyses.edgewise.edge_tables import MATRIX
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.edgewise.permuted import EdgeTests
from fcpower_bids.records import Table
from fcpower_bids.schema import Column, join_columns

MOST_CELLS = 10_000_000
"""Above so many numbers (60 matrices of 400 parcels) the matrices are left out."""
LABELS = ("t", "slope", "p")


def matrices_of(
    target: str, representation: str, tests: EdgeTests, weight: float, parcels: Sequence[str], facts: Mapping[str, Any]
) -> dict[str, Table]:
    """Return t, slope and corrected p of all edges as symmetric matrices (P, P); ``n/a`` on the diagonal.

    Parameters
    ----------
    target, representation : str
    tests : EdgeTests
    weight : float
        What edges are multiplied by in the features.
    parcels : sequence of str, length P
    facts : mapping
        For the sidecars.
    """
    each = [Column.number(name, f"Edge with {name}") for name in parcels]
    spec = replace(MATRIX, columns=join_columns(MATRIX.columns["Node"], *each))
    values = dict(zip(LABELS, (tests.t, tests.slope / weight, tests.p_family_wise), strict=True))
    tables = {}
    for label, edges in values.items():
        frame = pd.DataFrame(rebuild_matrix(edges, diagonal=float("nan"), weighted=False), columns=list(parcels))
        frame.insert(0, "Node", list(parcels))
        about = {"Target": target, "Representation": representation, "Statistic": label, **facts}
        tables[f"edges_{label}_target-{_name(target, representation)}"] = Table(frame, spec, about)
    return tables


def _name(target: str, representation: str) -> str:
    """What file systems like; with a digest where two names could become one."""
    wanted = f"{target}-{representation}".replace("_", "-")
    stem = re.sub(r"[^A-Za-z0-9]+", "-", wanted).strip("-")
    return stem if stem == wanted else f"{stem}-{hashlib.sha256(wanted.encode()).hexdigest()[:6]}"
