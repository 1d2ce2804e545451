"""Which edges go with a phenotype: a linear model of every edge, with covariates and sites, tested by permutation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.edge_model import (
    PERMUTATIONS,
    SAMPLE,
    EdgeModel,
    EdgeTests,
    p_of_largest,
    permute_edges,
)
from fcpower_bids.analyses.features import FC, FC_POWER, build_representations, encoder_of, expand_names
from fcpower_bids.analyses.study import Exchange, describe_people, plan_exchange, resolve_preset
from fcpower_bids.analyses.targets import choose_people, choose_targets
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.differences import SIGNIFICANT, largest_of_permutations
from fcpower_bids.errors import Unfit
from fcpower_bids.parallel import say, track
from fcpower_bids.records import Blocks, Cohort, Looked, Table
from fcpower_bids.resources import available_bytes
from fcpower_bids.schema import TABLES, TableSpec
from fcpower_bids.settings import Settings

R, D = "r", "d"
STRONGER, WEAKER = "stronger", "weaker"
FEWEST_EDGES = 2
"""A network of edges has so many at least."""
THRESHOLD_P = 0.001
"""Two-sided p of the threshold of networks of edges where none is asked for."""
SPECS = EDGES, COMPONENTS, NULL, SUMMARY = tuple(
    TABLES[f"edges{part}"] for part in ("", "_components", "_null", "_summary")
)


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
        """Partial correlation, or the difference of two classes in standard deviations."""
        return R if self.positive is None else D

    def effect(self, tests: EdgeTests) -> FloatArray:
        """Effect of every edge (E,), given the covariates."""
        t = tests.edges["t"].to_numpy() * tests.edges["spread"].to_numpy()
        return np.asarray(t / np.sqrt(t**2 + self.model.df) if self.positive is None else t / self.model.length)


def prepare(cohort: Cohort, settings: Settings) -> tuple[tuple[str, ...], Exchange, list[Question], list[str]]:
    """Representations of edges, people and blocks, the model of every target, why others have none. Raises Unfit."""
    names = tuple(name for name in expand_names(cohort, settings) if not encoder_of(name))
    if FC in names:  # a single edge of FC^alpha has no meaning of its own
        names = tuple(name for name in names if name != FC_POWER)
    preset = resolve_preset(settings)
    people = choose_people(cohort, settings.group, names, preset.covariates)
    made = build_representations(cohort, people.scans, names, settings)
    edges = tuple(representation.name for representation in made if representation.is_edges)
    if not edges:
        raise Unfit(
            "The analysis of edges needs a representation made of edges, such as fc; name one with --representations."
        )
    exchange, questions, refused = plan_exchange(cohort, people, settings), list[Question](), list[str]()
    number = PERMUTATIONS if settings.group.permutations is None else settings.group.permutations
    for target in choose_targets(people.phenotypes, settings.group, cohort.targets or None, preset.covariates):
        known, sites = target.known, exchange.sites_of(target.name)
        values, groups = target.build()(np.flatnonzero(known))[known, 0], exchange.variance_groups(target)[known]
        sites = None if sites is None else sites[known]
        try:
            model = EdgeModel(values, people.covariates[known], sites, groups)
            orders = exchange.orders(target, number)
            repeats = int(model.keeps_design(orders).sum())
            if number and repeats == number:
                raise Unfit(
                    "Families and sites allow no exchange of people that would change it; leave out --family-column."
                )
        except Unfit as error:
            refused.append(f"Target '{target.name}': {error}")
            continue
        threshold = settings.group.nbs_threshold or float(-special.stdtrit(model.df, THRESHOLD_P / 2))
        least, related = (1 + repeats) / (1 + number), people.families is not None
        asked = target.name, target.positive, np.flatnonzero(known), model, orders, threshold, least, related
        questions.append(Question(*asked))
    if not questions:
        raise Unfit(" ".join(refused))
    return edges, exchange, questions, refused


def analyse_edges(cohort: Cohort, settings: Settings) -> Looked:
    """Test every edge against every target. Raises Unfit, NotInCohort."""
    names, exchange, questions, refused = prepare(cohort, settings)
    yield {}
    facts = _facts(cohort, exchange, questions, settings) | ({"LeftOut": " ".join(refused)} if refused else {})
    for sentence in refused:
        say(f"edges: {sentence}", settings)
    frames: dict[str, list[list[pd.DataFrame]]] = {spec.name: [[] for _ in questions] for spec in SPECS}
    largest: list[list[FloatArray]] = [[] for _ in questions]
    for representation in build_representations(cohort, exchange.people.scans, names, settings):
        features = representation.features()
        for place, asked in enumerate(track(questions, f"permutations of edges ({representation.name})", settings)):
            with threadpool_limits(1):  # with more, the last bits would depend on the machine
                choices = asked.people, asked.model, asked.orders
                tests = permute_edges(features, *choices, asked.threshold, available_bytes())
            largest[place].append(tests.null["largest_t"].to_numpy())
            for name, frame in describe_edges(asked, tests, representation.weight, cohort).items():
                frames[name][place].append(frame.assign(target=asked.target, representation=representation.name))
    for of_target, maxima in zip(frames[SUMMARY.name], largest, strict=True):
        of_all = np.max(maxima, axis=0)  # of all representations
        for row in of_target:
            row["p_max"] = p_of_largest(row["largest"].to_numpy(), of_all)
    tables = {}
    for spec in SPECS:
        if parts := [frame for of_target in frames[spec.name] for frame in of_target]:
            rows = Blocks(partial(name_edges, parts, spec, cohort), sum(map(len, parts)))
            tables[spec.name] = Table(rows, spec, facts)
    if cohort.centroids is not None:  # for who draws edges
        places = zip(cohort.parcels, np.asarray(cohort.centroids, dtype=float).tolist(), strict=True)
        known = {name: place for name, place in places if np.isfinite(place).all()}
        tables[EDGES.name] = replace(tables[EDGES.name], facts={**facts, "Centroids": known})
    yield tables


def name_edges(frames: list[pd.DataFrame], spec: TableSpec, cohort: Cohort) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table by target and representation, with the parcels and networks of edges by name."""
    parcels, networks = (np.array(names, dtype=object) for names in (cohort.parcels, cohort.networks))
    for frame in frames:
        for end, ends in zip("ab", np.triu_indices(len(parcels), 1), strict=True):
            if "edge" in frame:
                here = ends[frame["edge"]]
                frame = frame.assign(**{f"parcel_{end}": parcels[here], f"network_{end}": networks[here]})
        yield frame[list(spec.columns)]


def describe_edges(asked: Question, tests: EdgeTests, weight: float, cohort: Cohort) -> dict[str, pd.DataFrame]:
    """Rows of every table for one target and representation; `weight` is the factor of the edges in the features."""
    ends = np.column_stack(np.triu_indices(len(cohort.parcels), 1))
    edges = tests.edges.assign(slope=tests.edges["slope"] / weight, effect=asked.effect(tests), measure=asked.measure)
    if asked.related:  # relatives are alike
        edges["p"] = np.nan
    significant = edges["p_family_wise"] < SIGNIFICANT
    # Networks of edges that count as such, the largest first, and of which each edge is part, from 1.
    found, largest = tests.components, tests.null["largest_t"].to_numpy()
    ranked = np.argsort(-found.extent, kind="stable")
    ranked = ranked[found.extent[ranked] >= FEWEST_EDGES]
    edges["component"] = edges["label"].map(pd.Series(np.arange(len(ranked)) + 1.0, ranked))
    p_extent = p_of_largest(found.extent, tests.null["extent"].to_numpy())[ranked]
    components = {
        "component": np.arange(len(ranked)) + 1,
        "sign": np.where(found.graph[ranked] == 1, STRONGER, WEAKER),
        "n_edges": found.extent[ranked],
        "n_parcels": [np.unique(ends[edges["label"] == label]).size for label in ranked],
        "p_extent": p_extent,
    }
    order = np.argsort(-edges["size"].abs().to_numpy(), kind="stable")[: int(edges["size"].notna().sum())]
    model, edges = asked.model, edges.iloc[order]
    best = edges.iloc[0] if len(edges) else pd.Series(np.nan, edges.columns)  # of those that vary
    needed = largest_of_permutations([], largest[:, None])[1]
    summary = {
        "n_people": len(asked.people),
        "n_covariates": model.covariates.shape[1],
        "n_sites": int(model.sites.max()) + 1,
        "n_variances": len(model.freedom),
        "df": model.df,
        "n_edges": len(edges),
        "n_permutations": len(asked.orders),
        "smallest_p": asked.smallest_p,
        "n_family_wise": int(significant.sum()),
        "n_stronger": int((significant & (tests.edges["t"] > 0)).sum()),
        "n_fdr": int((edges["q"] < SIGNIFICANT).sum()),
        "p_family_wise": best["p_family_wise"],
        "largest": abs(best["size"]),  # of which p_max is found when all representations are known
        "t_needed": needed if np.isfinite(needed) else np.nan,
        "measure": asked.measure,
        "effect_largest": best["effect"],
        "threshold": asked.threshold,
        "n_components": len(ranked),
        "p_component": p_extent.min() if len(ranked) else np.nan,
    }
    return {
        EDGES.name: edges,
        COMPONENTS.name: pd.DataFrame(components),
        NULL.name: tests.null,
        SUMMARY.name: pd.DataFrame([summary]),
    }


def _facts(cohort: Cohort, exchange: Exchange, questions: list[Question], settings: Settings) -> dict[str, Any]:
    covariates, number = resolve_preset(settings).covariates, len(questions[0].orders)
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
            f"|t| > {settings.group.nbs_threshold:g} (nbs_threshold)"
            if settings.group.nbs_threshold
            else f"the t of a two-sided p of {THRESHOLD_P:g}"
        ),
        "Permutations": f"{number:,} per target"
        + (", as asked for (--permutations)." if settings.group.permutations is not None else "."),
        "PositiveClasses": {
            question.target: question.positive for question in questions if question.positive is not None
        },
        "Covariates": list(covariates),
        **exchange.facts([question.target for question in questions], covariates),
        **describe_people(cohort, exchange.people, settings),
    }
