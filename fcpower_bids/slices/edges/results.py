"""Findings as rows of the tables."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.inference.differences import POWER
from fcpower_bids.core.inference.permutation import largest_of_permutations
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import Column
from fcpower_bids.slices.edges.equations import EdgeModel, Statistic, cohens_d, number_pairs, partial_correlation
from fcpower_bids.slices.edges.permuted import EdgeTests, p_of_largest
from fcpower_bids.slices.edges.tables import (
    COMPONENTS,
    EDGES,
    MATRIX,
    NETWORK_PAIRS,
    NULL,
    STRONGER,
    STRONGEST,
    SUMMARY,
    WEAKER,
    D,
    R,
)

SIGNIFICANT = 0.05
FEWEST_EDGES = 2
"""A network of edges has so many at least."""


@dataclass(frozen=True, eq=False)
class Question:
    """A target, and the model that asks which edges go with it."""

    target: str
    positive: str | None  # the class that is 1, for a target of two
    people: Rows  # (n,): those who have the target, as rows of the features
    model: EdgeModel
    orders: Rows  # (B, n): permutations of these people
    threshold: float  # |t| above which edges form networks
    smallest_p: float  # least p of these permutations
    related: bool  # whether there are families

    @property
    def measure(self) -> str:
        """Kind of its effects."""
        return R if self.positive is None else D

    def effect(self, found: Statistic) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Effect of each t, and the limits of its interval."""
        if self.positive is not None:
            return cohens_d(found, self.model.length)
        return partial_correlation(found, self.model.df)

    def effect_of(self, t: float) -> float:
        """Effect of a t at the degrees of freedom of the model, where all are equally spread."""
        return float(self.effect(Statistic(*np.array([[t], [float(self.model.df)], [1.0]])))[0][0])


@dataclass(frozen=True, eq=False)
class Tested:
    """The answer of one representation."""

    question: Question
    representation: str
    weight: float  # factor of the edges in the features
    edges: EdgeTests
    pairs: EdgeTests | None  # the same for means of edges between networks

    @property
    def keys(self) -> dict[str, str]:
        """First columns of every table."""
        return {"target": self.question.target, "representation": self.representation}

    @cached_property
    def ranked(self) -> Rows:
        """Networks of edges that count as such, the largest first."""
        found = self.edges.components
        order = np.lexsort((-found.intensity, -found.extent))
        return np.asarray(order[found.extent[order] >= FEWEST_EDGES])

    @cached_property
    def component(self) -> FloatArray:
        """Number of the network of edges that each edge is part of, from 1; NaN for none."""
        number = np.full(len(self.edges.components.extent), np.nan)
        number[self.ranked] = np.arange(len(self.ranked)) + 1
        of_edge = np.full(self.edges.t.shape, np.nan)
        of_edge[self.edges.above] = number[self.edges.components.label]
        return of_edge

    def columns(self, tests: EdgeTests) -> dict[str, Any]:
        """Effect, t and p of edges, or of pairs of networks."""
        found, p = tests.found, tests.p
        if self.question.related:  # relatives are alike: the spread of the permutations stands for that of chance
            found = replace(found, t=found.t / tests.inflation, spread=found.spread * tests.inflation)
            p = np.full(p.shape, np.nan)
        effect, low, high = self.question.effect(found)
        return {
            "measure": self.question.measure,
            "effect": effect,
            "ci_low": low,
            "ci_high": high,
            "t": tests.t,
            "df": tests.found.df,
            "p": p,
            "p_permutation": tests.p_permutation,
            "p_family_wise": tests.p_family_wise,
        }


def describe_edges(tested: Sequence[Tested], cohort: Cohort, facts: Mapping[str, Any]) -> dict[str, Table]:
    """Make the tables."""
    nulls = []
    for each in tested:
        tests = each.edges
        columns = {"largest_t": tests.largest, "extent": tests.extents, "intensity": tests.intensities}
        null = pd.DataFrame({"permutation": np.arange(len(tests.largest)) + 1, **columns})
        nulls.append(null.assign(**each.keys))
    frames = (
        (EDGES, [_list_edges(each, cohort) for each in tested]),
        (NETWORK_PAIRS, [_list_pairs(each, cohort) for each in tested if each.pairs is not None]),
        (COMPONENTS, [_list_components(each, cohort) for each in tested]),
        (NULL, nulls),
    )
    tables = {
        spec.name: Table(pd.concat(each, ignore_index=True)[list(spec.columns)], spec, facts)
        for spec, each in frames
        if each
    }
    tables[EDGES.name] = _with_places(tables[EDGES.name], cohort)
    if len(tested) * len(LABELS) * len(cohort.parcels) ** 2 > MOST_CELLS:
        left_out = {"MatricesLeftOut": f"More than {MOST_CELLS:,} numbers; ask for fewer targets."}
        tables[EDGES.name] = replace(tables[EDGES.name], facts={**tables[EDGES.name].facts, **left_out})
    else:
        for one in tested:
            asked = one.question.target, one.representation, one.edges, one.weight
            tables |= matrices_of(*asked, cohort.parcels, facts)
    rows = [_summarise(each, [one for one in tested if one.question is each.question]) for each in tested]
    return tables | {SUMMARY.name: Table(pd.DataFrame(rows, columns=list(SUMMARY.columns)), SUMMARY, facts)}


def _with_places(edges: Table, cohort: Cohort) -> Table:
    """Say in the sidecar where the parcels of the listed edges are, for who draws them."""
    if cohort.centroids is None:
        return edges
    there = {*edges.frame["parcel_a"], *edges.frame["parcel_b"]}
    places = {
        name: [float(each) for each in place]
        for name, place in zip(cohort.parcels, cohort.centroids, strict=True)
        if name in there and np.isfinite(place).all()
    }
    return replace(edges, facts={**edges.facts, "Centroids": places})


def _list_edges(each: Tested, cohort: Cohort) -> pd.DataFrame:
    tests, (first, second) = each.edges, np.triu_indices(len(cohort.parcels), 1)
    size = np.nan_to_num(np.abs(tests.size), nan=-1.0)
    order = np.argsort(-size, kind="stable")
    p_extent = np.append(tests.p_components()[0][each.ranked], np.nan)  # the last is that of no network
    of_edge = np.nan_to_num(each.component, nan=len(p_extent)).astype(int) - 1
    listed = (tests.p_family_wise < SIGNIFICANT) | (each.edges.q < SIGNIFICANT) | (p_extent[of_edge] < SIGNIFICANT)
    listed[order[:STRONGEST]] = True
    chosen = order[listed[order] & (size[order] >= 0)]
    parcels, networks = (np.array(each, dtype=object) for each in (cohort.parcels, cohort.networks))
    frame = pd.DataFrame(each.columns(tests) | {"q": each.edges.q, "component": each.component})
    frame = frame.assign(
        **each.keys,
        parcel_a=parcels[first],
        parcel_b=parcels[second],
        network_a=networks[first],
        network_b=networks[second],
        slope=tests.slope / each.weight,
    )
    return frame.iloc[chosen]


def _list_pairs(each: Tested, cohort: Cohort) -> pd.DataFrame:
    assert each.pairs is not None
    names, pair = number_pairs(cohort.networks)
    t = each.edges.t
    known, sizes = np.isfinite(t), np.bincount(pair, minlength=len(names))
    significant = np.bincount(pair, weights=each.edges.p_family_wise < SIGNIFICANT, minlength=len(names))
    sums, counts = (np.bincount(pair, weights=w, minlength=len(names)) for w in (np.nan_to_num(t), known))
    frame = pd.DataFrame(each.columns(each.pairs))
    return frame.assign(
        **each.keys,
        network_a=[one for one, _ in names],
        network_b=[other for _, other in names],
        n_edges=sizes,
        n_significant=significant.astype(int),
        mean_t=np.where(counts > 0, sums / np.maximum(counts, 1), np.nan),
    )


def _list_components(each: Tested, cohort: Cohort) -> pd.DataFrame:
    found, ranked = each.edges.components, each.ranked
    p_extent, p_intensity = each.edges.p_components()
    ends = np.column_stack(np.triu_indices(len(cohort.parcels), 1))[each.edges.above]
    parcels = [np.unique(ends[found.label == number]).size for number in ranked]
    return pd.DataFrame(
        {
            "component": np.arange(len(ranked)) + 1,
            "sign": np.where(found.graph[ranked] == 1, STRONGER, WEAKER),
            "n_edges": found.extent[ranked],
            "n_parcels": parcels,
            "intensity": found.intensity[ranked],
            "p_extent": p_extent[ranked],
            "p_intensity": p_intensity[ranked],
        }
    ).assign(**each.keys)


def _summarise(each: Tested, alike: Sequence[Tested]) -> dict[str, Any]:
    """One row; ``alike`` are all representations of the same question."""
    asked, tests, model = each.question, each.edges, each.question.model
    known, p_extent = np.isfinite(tests.t), tests.p_components()
    best = int(np.nan_to_num(np.abs(tests.size), nan=-1.0).argmax())
    largest = np.max([one.edges.largest for one in alike], axis=0)
    needed = largest_of_permutations([], tests.largest[:, None])[1]
    significant = tests.p_family_wise < SIGNIFICANT
    needed = needed if np.isfinite(needed) else np.nan
    return {
        **each.keys,
        "n_people": len(asked.people),
        "n_covariates": model.covariates.shape[1],
        "n_sites": int(model.sites.max()) + 1,
        "n_variances": len(model.freedom),
        "df": model.df,
        "n_edges": int(known.sum()),
        "n_permutations": len(asked.orders),
        "smallest_p": asked.smallest_p,
        "n_family_wise": int(significant.sum()),
        "n_stronger": int((significant & (tests.t > 0)).sum()),
        "n_fdr": int((each.edges.q < SIGNIFICANT).sum()),
        "p_family_wise": tests.p_family_wise[best],
        "p_max": p_of_largest(np.abs(tests.size[[best]]), largest)[0],
        "t_needed": needed,
        "measure": asked.measure,
        "effect_needed": asked.effect_of(needed),
        "effect_powered": asked.effect_of(needed + POWER),
        "effect_largest": asked.effect(tests.found)[0][best],
        "threshold": asked.threshold,
        "n_components": len(each.ranked),
        "p_component": p_extent[0][each.ranked].min(initial=np.inf) if len(each.ranked) else np.nan,
        "p_component_intensity": p_extent[1][each.ranked].min(initial=np.inf) if len(each.ranked) else np.nan,
    }


MOST_CELLS = 10_000_000
"""Above so many numbers (60 matrices of 400 parcels) the matrices are left out."""
LABELS = ("t", "slope", "p")


def matrices_of(
    target: str, representation: str, tests: EdgeTests, weight: float, parcels: Sequence[str], facts: Mapping[str, Any]
) -> dict[str, Table]:
    """Return t, slope and corrected p of all edges as symmetric matrices (P, P); ``n/a`` on the diagonal."""
    each = {name: Column(name, f"Edge with {name}") for name in parcels}
    spec = replace(MATRIX, columns={"Node": MATRIX.columns["Node"], **each})
    wanted = f"{target}-{representation}".replace("_", "-")
    stem = re.sub(r"[^A-Za-z0-9]+", "-", wanted).strip("-")
    if stem != wanted:  # two names could become one
        stem = f"{stem}-{hashlib.sha256(wanted.encode()).hexdigest()[:6]}"
    values = dict(zip(LABELS, (tests.t, tests.slope / weight, tests.p_family_wise), strict=True))
    tables = {}
    for label, edges in values.items():
        frame = pd.DataFrame(rebuild_matrix(edges, diagonal=float("nan"), weighted=False), columns=list(parcels))
        frame.insert(0, "Node", list(parcels))
        about = {"Target": target, "Representation": representation, "Statistic": label, **facts}
        tables[f"edges_{label}_target-{stem}"] = Table(frame, spec, about)
    return tables
