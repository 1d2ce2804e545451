"""How much of the connectomes goes with motion: the correlation of every edge with mean FD over people (QC-FC)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from fcpower_bids.analyses.edge_model import PERMUTATIONS, EdgeModel
from fcpower_bids.analyses.features import (
    Representation,
    build_representations,
    describe_combination,
    encoder_of,
    expand_names,
    scans_by_person,
)
from fcpower_bids.analyses.study import plan_scan_blocks, resolve_preset
from fcpower_bids.analyses.targets import covariate_columns
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.data_checks import rank_correlation
from fcpower_bids.core.differences import SIGNIFICANT, PooledNull, false_discovery_rates, permutation_p_value
from fcpower_bids.core.edges import edge_names
from fcpower_bids.core.identification import units_of
from fcpower_bids.core.kernels import FeatureSource
from fcpower_bids.core.targets import permuted_rows
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.records import Cohort, Looked, Table, tabulate
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings

FEWEST = 4
PANEL, TOGETHER = 1024, 256
"""Edges, and permutations that go through them together: their correlations stay in the cache."""

FACTS: dict[str, Any] = {
    "Rule": (
        "The mean FD of a person is the mean over their scans. Covariates (--covariates) and the means of sites "
        "(--site-column, else columns that are called so) are taken from edges and mean FD, as Ciric et al. do with "
        "age and sex. Permutations of mean FD stay within the sites; families are exchanged whole. Source: Power et "
        "al. 2012 (doi:10.1016/j.neuroimage.2011.10.018), Ciric et al. 2017 (doi:10.1016/j.neuroimage.2017.03.020)."
    )
}


def analyse_qc_fc(cohort: Cohort, settings: Settings) -> Looked:
    """Correlate every edge with mean FD over people (Power et al. 2012; Ciric et al. 2017). Raises NotInCohort."""
    people, groups, motion = people_with_motion(cohort)
    if next(_edge_representations(cohort, groups, settings), None) is None:
        raise NotInCohort("QC-FC needs a representation made of edges, such as fc; name one with --representations.")
    people, groups, model, orders, related = _model(cohort, people, groups, motion, settings)
    yield {}
    distance, summary, edges = edge_distances(cohort), list[dict[str, Any]](), list[pd.DataFrame]()
    first, second = zip(*edge_names(cohort.parcels), strict=True)
    for representation in _edge_representations(cohort, groups, settings):
        r, pooled, strengths = correlate_edges(representation.features(), model, orders)
        plain = not related and not model.sites.any()  # t holds: no one is related, no site has a spread of its own
        # two-sided, of a correlation by t
        size = np.abs(r) * np.sqrt(model.df / np.clip(1 - r**2, 1e-300, None))
        p = np.asarray(2 * special.stdtr(model.df, -size)) if plain else np.full(r.shape, np.nan)
        q = false_discovery_rates(pooled.p(r) if len(strengths) else p)
        known = np.isfinite(r)
        both, middle = known & np.isfinite(distance), float(special.stdtrit(model.df, 0.75))
        apart = both.sum() > 2 and np.ptp(distance[both]) > 0
        row = {"representation": representation.name, "n_people": len(people), "n_sites": int(model.sites.max()) + 1}
        row |= {"n_covariates": model.covariates.shape[1], "n_permutations": len(strengths)}
        row |= {"n_edges": int(known.sum()), "median_abs_r_chance": middle / np.sqrt(model.df + middle**2)}
        row["p_all"] = permutation_p_value(float(np.nanmean(r**2)), strengths) if len(strengths) else np.nan
        if known.any():
            row["median_abs_r"] = float(np.median(np.abs(r[known])))
            row["share_significant"] = float((q[known] < SIGNIFICANT).mean())
        row["distance_rho"] = float(rank_correlation(np.abs(r[both]), distance[both])) if apart else np.nan
        summary.append(row)
        columns = {"parcel_a": first, "parcel_b": second, "r": r, "p": p, "q": q, "distance": distance}
        absent = ["distance"] if np.isnan(distance).all() else []
        edges.append(pd.DataFrame({"representation": representation.name, **columns}).drop(columns=absent))
    facts = FACTS | {
        "FeaturesOfAPerson": describe_combination(settings.group.representations),
        "NumberOfPeople": len(people),
        "Alpha": settings.method.alpha,
        "PeopleWithoutMotionOrCovariates": sorted(set(cohort.scans["participant_id"].astype(str)) - set(people)),
        "Covariates": [name for name in resolve_preset(settings).covariates if name != "mean_fd"],
    }
    if np.isnan(distance).all():
        facts["DistanceDependence"] = "Left out: the places of the parcels are not known."
    yield tabulate(facts, qcfc_summary=summary) | {
        "qcfc": Table(pd.concat(edges, ignore_index=True), TABLES["qcfc"], facts)
    }


def people_with_motion(cohort: Cohort) -> tuple[list[str], list[Rows], FloatArray]:
    """Return the people whose mean FD is known, the rows of their scans, and their FD in mm. Raises NotInCohort."""
    fd = pd.to_numeric(cohort.scans["mean_fd"], errors="coerce").to_numpy(dtype=float)
    by_person = scans_by_person(cohort.scans, np.isfinite(fd))
    if len(by_person) < FEWEST:
        raise NotInCohort(
            f"QC-FC needs mean FD of {FEWEST} people or more, and it is known for {len(by_person)}; "
            "leave it out of --analyses."
        )
    people, groups = list(by_person), list(by_person.values())
    motion = np.array([fd[group].mean() for group in groups])
    if np.ptp(motion) == 0:
        raise NotInCohort("Mean FD is the same for all people, so QC-FC is not defined; leave it out of --analyses.")
    return people, groups, motion


def _edge_representations(cohort: Cohort, groups: list[Rows], settings: Settings) -> Iterator[Representation]:
    wanted = [name for name in expand_names(cohort, settings) if not encoder_of(name)]
    return (made for made in build_representations(cohort, groups, wanted, settings) if made.is_edges)


def _model(
    cohort: Cohort, people: list[str], groups: list[Rows], motion: FloatArray, settings: Settings
) -> tuple[list[str], list[Rows], EdgeModel, Rows, bool]:
    """Hold covariates and sites constant; people without a covariate are left out. Raises NotInCohort.

    Returns the people, their scans, the model of mean FD, its permutations (B, n), and whether there are families.
    """
    table = cohort.phenotypes.set_axis(cohort.phenotypes.index.astype(str))
    names = [
        name for name in resolve_preset(settings).covariates if name not in ("mean_fd", settings.group.site_column)
    ]
    columns = covariate_columns(table.reindex(people), cohort.scans, names, ())
    known = np.flatnonzero(columns.notna().all(axis=1).to_numpy() if names else np.ones(len(people), dtype=bool))
    people, groups, motion = [people[row] for row in known], [groups[row] for row in known], motion[known]
    labels = np.array(people, dtype=str)
    blocks = plan_scan_blocks(cohort, labels, settings)
    try:
        model = EdgeModel(motion, columns.to_numpy(dtype=float)[known], blocks.sites, fewest_df=FEWEST - 2)
    except Unfit as error:
        raise NotInCohort(
            f"Covariates and sites leave nothing of the mean FD of {len(people)} people, so QC-FC is not defined; name "
            "fewer --covariates, or leave qc_fc out of --analyses."
        ) from error
    number = PERMUTATIONS if settings.group.permutations is None else settings.group.permutations
    units = units_of(labels, blocks.families)
    orders = permuted_rows(len(labels), number, settings.method.random_seed, units, blocks.sites)
    return people, groups, model, orders, blocks.families is not None


def correlate_edges(
    features: FeatureSource, model: EdgeModel, orders: Rows
) -> tuple[FloatArray, PooledNull, FloatArray]:
    """Correlate edges with motion: r (E,), |r| of all permutations (B, n), and their mean r squared (B,)."""
    # covariates are not taken from the permuted scores again, so that these are a little less spread
    wider = np.sqrt(1 + model.covariates.shape[1] / (model.df + 1))
    correlations, pooled, strength, n_varying = [], PooledNull(1.0), np.zeros(len(orders)), 0
    for start in range(0, features.shape[1], PANEL):
        left = model.residuals(features[:, start : start + PANEL])
        varies = left.any(axis=0)
        correlations.append(np.where(varies, np.clip(model.tested @ left, -1, 1), np.nan))
        left = left[:, varies].astype(np.float32)  # sizes are counted in steps of 2^-16
        n_varying += left.shape[1]
        for first in range(0, len(orders), TOGETHER):
            rows = slice(first, first + TOGETHER)
            permuted = (wider * model.tested[orders[rows]]).astype(np.float32) @ left
            pooled.add(permuted)
            strength[rows] += np.einsum("be,be->b", permuted, permuted)
    return np.concatenate(correlations), pooled, strength / max(n_varying, 1)


def edge_distances(cohort: Cohort) -> FloatArray:
    """Return the distance between the parcels of every edge in mm, shape (E,); NaN where places are not known."""
    n = len(cohort.parcels)
    first, second = np.triu_indices(n, 1)
    if cohort.centroids is None:
        return np.full(first.size, np.nan)
    places = np.asarray(cohort.centroids, dtype=float)
    return np.asarray(np.linalg.norm(places[first] - places[second], axis=1))
