"""Which edges go with a phenotype: a linear model of every edge, with covariates and sites, tested by permutation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.edge_model import (
    EdgeModel,
    Statistic,
    average_pairs,
    build_model,
    cohens_d,
    number_pairs,
    partial_correlation,
)
from fcpower_bids.analyses.edge_permutations import SAMPLE, EdgeTests, p_of_largest, permute_edges
from fcpower_bids.analyses.features import (
    FC,
    FC_POWER,
    build_representations,
    describe_combination,
    encoder_of,
    expand_names,
)
from fcpower_bids.analyses.study import Exchange, plan_exchange, resolve_preset
from fcpower_bids.analyses.targets import People, Target, choose_people, choose_targets
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.differences import POWER, largest_of_permutations
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort, Table
from fcpower_bids.resources import available_bytes
from fcpower_bids.schema import TABLES, Column
from fcpower_bids.settings import Analysis

STRONGEST = 100
"""So many edges of each target and representation are listed whatever their p."""

R, D = "r", "d"
LARGEST = (
    "p against the largest |t| of all {} of the target and representation in each permutation, each |t| brought to "
    "the degrees of freedom of the model: corrected for their number"
)

EDGES = TABLES["edges"]
NETWORK_PAIRS = TABLES["edges_networks"]
STRONGER, WEAKER = "stronger", "weaker"
COMPONENTS = TABLES["edges_components"]
SUMMARY = TABLES["edges_summary"]
NULL = TABLES["edges_null"]
MATRIX = TABLES["edges_LABEL_target-TARGET-REPRESENTATION"]


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


PERMUTATIONS = 1000
"""Taken where no number is asked for."""
THRESHOLD_P = 0.001
"""Two-sided p of the threshold of networks of edges where none is asked for."""
UNKNOWN = "n/a"
WITHOUT_EDGES = (
    "The analysis of edges needs a representation made of edges, such as fc; name one with --representations."
)


def analyse_edges(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Test every edge against every target. Raises Unfit, NotInCohort."""
    names, exchange, questions = prepare(cohort, settings)
    tested = list(_test(cohort, exchange.people, names, questions, settings))
    tested.sort(key=lambda each: questions.index(each.question))
    facts = _facts(cohort, exchange, questions, settings)
    return describe_edges(tested, cohort, facts)


def prepare(cohort: Cohort, settings: Analysis) -> tuple[tuple[str, ...], Exchange, list[Question]]:
    """Representations of edges, the people and their blocks, and the model of every target.

    Refuses embeddings alone, targets that no edge can go with, and blocks that allow no exchange.
    """
    names = tuple(name for name in expand_names(cohort, settings) if not encoder_of(name))
    if FC in names:  # a single edge of FC^alpha has no meaning of its own
        names = tuple(name for name in names if name != FC_POWER)
    preset = resolve_preset(settings)
    people = choose_people(cohort, settings, names, preset.covariates)
    made = build_representations(cohort, people.scans, names, settings)
    edges = tuple(each.name for each in made if each.is_edges)
    if not edges:
        raise Unfit(WITHOUT_EDGES)
    exchange, questions = plan_exchange(cohort, people, settings), []
    for target in choose_targets(people.phenotypes, settings, cohort.targets or None, preset.covariates):
        try:
            questions.append(_ask(target, exchange, settings))
        except Unfit as error:
            raise type(error)(f"Target '{target.name}': {error}") from error
    return edges, exchange, questions


def _ask(target: Target, exchange: Exchange, settings: Analysis) -> Question:
    """Model and permutations of a target."""
    people, known, sites = exchange.people, np.flatnonzero(target.known), exchange.sites_of(target.name)
    values = target.build()(known)[known, 0]
    sites = None if sites is None else sites[known]
    groups, covariates = exchange.variance_groups(target)[known], people.covariates[known]
    model = build_model(values, covariates, sites, groups)
    number = PERMUTATIONS if settings.permutations is None else settings.permutations
    orders = exchange.orders(target, number)
    repeats = int(model.keeps_design(orders).sum())
    if number and repeats == number:
        raise Unfit("Families and sites allow no exchange of people that would change it; leave out --family-column.")
    threshold = settings.nbs_threshold or float(-special.stdtrit(model.df, THRESHOLD_P / 2))
    smallest = (1 + repeats) / (1 + number)
    families = people.families is not None
    return Question(target.name, target.positive, known, model, orders, threshold, smallest, families)


def _test(
    cohort: Cohort, people: People, names: tuple[str, ...], questions: list[Question], settings: Analysis
) -> Iterator[Tested]:
    known = set(cohort.networks) != {UNKNOWN}
    pair = number_pairs(cohort.networks)[1] if known else None
    for each in build_representations(cohort, people.scans, names, settings):
        features = each.features()
        means = None if pair is None else average_pairs(features, pair)
        for asked in track(questions, f"permutations of edges ({each.name})", settings):
            with threadpool_limits(1):  # with more, the last bits would depend on the machine
                found, of_pairs = (
                    None
                    if source is None
                    else permute_edges(source, asked.people, asked.model, asked.orders, threshold, available_bytes())
                    for source, threshold in ((features, asked.threshold), (means, np.inf))
                )
            assert found is not None
            yield Tested(asked, each.name, each.weight, found, of_pairs)


def _facts(cohort: Cohort, exchange: Exchange, questions: list[Question], settings: Analysis) -> dict[str, Any]:
    covariates, people = resolve_preset(settings).covariates, exchange.people
    number = len(questions[0].orders)
    return {
        "Model": (
            "edge = mean of the site + covariates + target, by least squares, for every edge; correlations as they "
            "are, not as Fisher z. The sites are those of --site-column, else those that the target goes with. Each "
            "site and each class has a variance of its own (Welch's t, the v of Aspin and Welch for a linear model; "
            "degrees of freedom by Satterthwaite), drawn towards what the ratio over all edges makes likely, as far as "
            "these agree (empirical Bayes, Smyth 2004, doi:10.2202/1544-6115.1027; over "
            f"{SAMPLE:,} edges where there are more)"
        ),
        "FalseDiscoveryRate": (
            "Benjamini and Hochberg 1995, on the p of each |t| against those of all edges in all permutations (Storey "
            "and Tibshirani 2003, doi:10.1073/pnas.1530509100)."
        ),
        "Rule": (
            "The residuals of the model without the target change places (Freedman and Lane 1983; Winkler et al. 2014, "
            "doi:10.1016/j.neuroimage.2014.01.060): families whole, with families of the same size, and within them; "
            "everyone at their site. Where classes or sites have variances of their own, residuals are divided by the "
            "common spread of their group before they change places, and ratios are found again in every permutation. "
            "Each |t| is then brought to the degrees of freedom of the model (Wallace 1959), and covariates are not "
            "fitted again. "
            "The permutations are the same for all representations. Two-sided throughout."
        ),
        "NetworkBasedStatistic": (
            "Zalesky et al. 2010 (doi:10.1016/j.neuroimage.2010.06.041): edges above the threshold that share parcels, "
            "stronger and weaker ones apart; against the largest network of either sign. It says that there is a "
            "network, not which of its edges differ."
        ),
        "Threshold": (
            f"|t| > {settings.nbs_threshold:g} (nbs_threshold)"
            if settings.nbs_threshold
            else f"the t of a two-sided p of {THRESHOLD_P:g}"
        ),
        "Permutations": f"{number:,} per target"
        + (", as asked for (--permutations)." if settings.permutations is not None else "."),
        "PositiveClasses": {each.target: each.positive for each in questions if each.positive is not None},
        "Covariates": list(covariates),
        "SiteColumn": settings.site_column,
        "FamilyColumn": settings.family_column,
        "Alpha": settings.alpha,
        "FeaturesOfAPerson": describe_combination(settings),
        "NumberOfPeople": len(people.names),
        "ListedEdges": f"All significant ones, and the {STRONGEST} with the largest |t|.",
        **exchange.facts([each.target for each in questions], covariates),
        **people.facts,
        **({"CohortNotes": list(cohort.notes)} if cohort.notes else {}),
    }
