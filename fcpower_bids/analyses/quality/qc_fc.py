"""How much of the connectomes goes with motion: the correlation of every edge with mean FD over people (QC-FC)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fcpower_bids.analyses.engine.columns import PARCEL_COLUMNS
from fcpower_bids.analyses.engine.connectomes import describe_combination, describe_parcels
from fcpower_bids.analyses.engine.representations import Representation, build_representations, expand_names
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.edges import edge_names, parcel_means
from fcpower_bids.core.regression.kernels import PANEL
from fcpower_bids.errors import NotInCohort
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.settings import Analysis

FEWEST = 4
WITHOUT_EDGES = "QC-FC needs a representation made of edges, such as fc; name one with --representations."
SIGNIFICANT = 0.05
MOST_ROWS = 5_000_000
"""Above so many rows the table of edges is left out; the summary is always there."""

QCFC = TableSpec(
    "qcfc",
    "Correlation of every edge with motion.",
    join_columns(
        Column.text("representation", "Whose edges: fc, fc_power or another transform"),
        Column.text("parcel_a", "First parcel of the edge"),
        Column.text("parcel_b", "Second parcel of the edge"),
        Column.number("r", "Pearson correlation of the edge with mean FD over people", optional=True),
        Column.p("p", "Two-sided p of that correlation, t with n - 2 degrees of freedom", optional=True),
        Column.p("q", "p adjusted for the false discovery rate over the edges (Benjamini and Hochberg)", optional=True),
        Column.number("distance", "Distance between the centroids of the parcels in mm", optional=True),
    ),
    ("representation", "parcel_a", "parcel_b"),
)
QCFC_SUMMARY = TableSpec(
    "qcfc_summary",
    "The same in one row per representation.",
    join_columns(
        Column.text("representation", "Whose edges"),
        Column.number("n_people", "People with a known mean FD"),
        Column.number("n_edges", "Edges that vary over people"),
        Column.number("median_abs_r", "Median of |r| over edges"),
        Column.number("median_abs_r_chance", "Median for independent edges without any relation to motion"),
        Column.number("mean_r", "Mean of r over edges; away from 0 for a global effect of motion"),
        Column.number("share_significant", "Share of edges with q < 0.05"),
        Column.number("share_uncorrected", "Share of edges with p < 0.05; chance gives 0.05"),
        Column.number("distance_rho", "Spearman correlation of |r| with the distance between the parcels"),
    ),
    ("representation",),
)
QCFC_PARCELS = TableSpec(
    "qcfc_parcels",
    "The same, mean over the edges of every parcel.",
    join_columns(
        Column.text("representation", "Whose edges"),
        PARCEL_COLUMNS,
        Column.number("r", "Mean of r over its edges", "r", digits=3, optional=True),
        Column.number("abs_r", "Mean of |r| over its edges", optional=True),
    ),
    ("representation", "parcel"),
)
TABLES = (QCFC, QCFC_SUMMARY, QCFC_PARCELS)
FACTS: dict[str, Any] = {
    "Rule": (
        "The mean FD of a person is the mean over their scans; "
        "people are taken as independent. Source: Power et al. 2012 (doi:10.1016/j.neuroimage.2011.10.018), Ciric et "
        "al. 2017 (doi:10.1016/j.neuroimage.2017.03.020)."
    )
}


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse too few people with known motion, and embeddings alone."""
    _, groups, _ = people_with_motion(cohort)
    if next(_edge_representations(cohort, groups, settings), None) is None:
        raise NotInCohort(WITHOUT_EDGES)


def analyse_qc_fc(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Correlate every edge with mean FD over people.

    Source: Power et al. 2012; benchmarks of Ciric et al. 2017.

    Raises NotInCohort.
    """
    people, groups, motion = people_with_motion(cohort)
    distance = edge_distances(cohort)
    names = edge_names(cohort.parcels)
    pairs = np.array(names, dtype=object).reshape(len(names), 2)
    edges: list[pd.DataFrame] = []
    parcels: list[pd.DataFrame] = []
    summary: list[dict[str, Any]] = []
    for each in _edge_representations(cohort, groups, settings):
        r = correlate_edges(each, motion)
        p = correlation_p_values(r, len(motion))
        q = _false_discovery(p)
        summary.append({"representation": each.name, **_summarise(r, p, q, distance, len(motion))})
        means = {"r": parcel_means(r, len(cohort.parcels)), "abs_r": parcel_means(np.abs(r), len(cohort.parcels))}
        parcels.append(pd.DataFrame({"representation": each.name, **describe_parcels(cohort), **means}))
        columns = {"parcel_a": pairs[:, 0], "parcel_b": pairs[:, 1], "r": r, "p": p, "q": q, "distance": distance}
        edges.append(pd.DataFrame({"representation": each.name, **columns}).dropna(axis=1, how="all"))
    if not edges:
        raise NotInCohort(WITHOUT_EDGES)
    facts = FACTS | {
        "FeaturesOfAPerson": describe_combination(settings),
        "NumberOfPeople": len(people),
        "PeopleWithoutMotion": _without_motion(cohort, people),
    }
    if np.isnan(distance).all():
        facts["DistanceDependence"] = "Left out: the places of the parcels are not known."
    frame = pd.DataFrame(summary, columns=list(QCFC_SUMMARY.columns))
    tables = {
        QCFC_SUMMARY.name: Table(frame, QCFC_SUMMARY, facts),
        QCFC_PARCELS.name: Table(pd.concat(parcels, ignore_index=True), QCFC_PARCELS, facts),
    }
    if sum(map(len, edges)) > MOST_ROWS:
        facts["EdgesLeftOut"] = f"More than {MOST_ROWS} rows; ask for fewer representations."
        return tables
    return tables | {QCFC.name: Table(pd.concat(edges, ignore_index=True), QCFC, facts)}


def people_with_motion(cohort: Cohort) -> tuple[list[str], list[Rows], FloatArray]:
    """Return the people whose mean FD is known, the rows of their scans, and the mean FD over these, in mm.

    Raises NotInCohort.
    """
    fd = pd.to_numeric(cohort.scans["mean_fd"], errors="coerce").to_numpy(dtype=float)
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(cohort.scans["participant_id"].astype(str)):
        if np.isfinite(fd[row]):
            rows.setdefault(name, []).append(row)
    if len(rows) < FEWEST:
        raise NotInCohort(
            f"QC-FC needs mean FD of {FEWEST} people or more, and it is known for {len(rows)}; "
            "leave it out of --analyses."
        )
    people = sorted(rows)
    groups = [np.array(rows[name], dtype=np.intp) for name in people]
    motion = np.array([fd[group].mean() for group in groups])
    if np.ptp(motion) == 0:
        raise NotInCohort("Mean FD is the same for all people, so QC-FC is not defined; leave it out of --analyses.")
    return people, groups, motion


def _without_motion(cohort: Cohort, people: list[str]) -> list[str]:
    return sorted(set(cohort.scans["participant_id"].astype(str)) - set(people))


def _edge_representations(cohort: Cohort, groups: list[Rows], settings: Analysis) -> Iterator[Representation]:
    wanted = [name for name in expand_names(cohort, settings) if not name.startswith("embedding")]
    return (each for each in build_representations(cohort, groups, wanted, settings) if each.is_edges)


def correlate_edges(representation: Representation, motion: FloatArray) -> FloatArray:
    """Return the correlation of every edge with motion, shape (E,); NaN for an edge that does not vary."""
    features = representation.features()
    score = (motion - motion.mean()) / np.linalg.norm(motion - motion.mean())
    blocks = []
    for start in range(0, features.shape[1], PANEL):
        block = np.asarray(features[:, start : start + PANEL], dtype=float)
        centred = block - block.mean(axis=0)
        norm = np.linalg.norm(centred, axis=0)
        varies = norm > 1e-12 * np.maximum(np.abs(block).max(axis=0), 1e-300) * len(block) ** 0.5
        blocks.append(np.where(varies, score @ centred / np.where(varies, norm, 1.0), np.nan))
    return np.clip(np.concatenate(blocks), -1.0, 1.0)


def correlation_p_values(r: FloatArray, n: int) -> FloatArray:
    """Two-sided p of Pearson correlations over n pairs, by t with n - 2 degrees of freedom; NaN stays NaN."""
    size = np.clip(1 - r**2, 1e-300, None)
    return np.asarray(2 * stats.t.sf(np.abs(r) * np.sqrt((n - 2) / size), n - 2))


def _false_discovery(p: FloatArray) -> FloatArray:
    q = np.full(p.shape, np.nan)
    known = np.isfinite(p)
    if known.any():
        q[known] = stats.false_discovery_control(p[known])
    return q


def edge_distances(cohort: Cohort) -> FloatArray:
    """Return the distance between the parcels of every edge in mm, shape (E,); NaN where places are not known."""
    n = len(cohort.parcels)
    first, second = np.triu_indices(n, 1)
    if cohort.centroids is None:
        return np.full(first.size, np.nan)
    places = np.asarray(cohort.centroids, dtype=float)
    return np.asarray(np.linalg.norm(places[first] - places[second], axis=1))


def _summarise(r: FloatArray, p: FloatArray, q: FloatArray, distance: FloatArray, n: int) -> dict[str, Any]:
    known = np.isfinite(r)
    both = known & np.isfinite(distance)
    middle = float(stats.t.ppf(0.75, n - 2))
    apart = both.sum() > 2 and np.ptp(distance[both]) > 0
    rho = stats.spearmanr(np.abs(r[both]), distance[both]).statistic if apart else np.nan
    return {
        "n_people": n,
        "n_edges": int(known.sum()),
        "median_abs_r": float(np.median(np.abs(r[known]))) if known.any() else np.nan,
        "median_abs_r_chance": middle / np.sqrt(n - 2 + middle**2),
        "mean_r": float(r[known].mean()) if known.any() else np.nan,
        "share_significant": float((q[known] < SIGNIFICANT).mean()) if known.any() else np.nan,
        "share_uncorrected": float((p[known] < SIGNIFICANT).mean()) if known.any() else np.nan,
        "distance_rho": float(rho),
    }
