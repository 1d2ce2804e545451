"""Which edges go with a phenotype: a linear model of every edge, with covariates and sites, tested by permutation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.engine.connectomes import describe_combination
from fcpower_bids.analyses.engine.people import People, choose_people
from fcpower_bids.analyses.engine.protocol import Exchange, plan_exchange
from fcpower_bids.analyses.engine.representations import FC, FC_POWER, build_representations, encoder_of, expand_names
from fcpower_bids.analyses.engine.study import resolve_preset
from fcpower_bids.analyses.engine.targets import Target, choose_targets
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort, Table
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Analysis
from fcpower_bids.slices.edges.equations import average_pairs, build_model, number_pairs
from fcpower_bids.slices.edges.permuted import SAMPLE, permute_edges
from fcpower_bids.slices.edges.results import Question, Tested, describe_edges
from fcpower_bids.slices.edges.tables import STRONGEST

PERMUTATIONS = 1000
"""Taken where no number is asked for."""
THRESHOLD_P = 0.001
"""Two-sided p of the threshold of networks of edges where none is asked for."""
UNKNOWN = "n/a"
WITHOUT_EDGES = (
    "The analysis of edges needs a representation made of edges, such as fc; name one with --representations."
)


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse embeddings alone, targets that no edge can go with, and blocks that allow no exchange."""
    _, people = _choose(cohort, settings)
    for _ in _ask(cohort, plan_exchange(cohort, people, settings), settings):
        pass


def analyse_edges(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Test every edge against every target. Raises Unfit, NotInCohort."""
    names, people = _choose(cohort, settings)
    exchange = plan_exchange(cohort, people, settings)
    questions = list(_ask(cohort, exchange, settings))
    tested = list(_test(cohort, people, names, questions, settings))
    tested.sort(key=lambda each: questions.index(each.question))
    facts = _facts(cohort, exchange, questions, settings)
    return describe_edges(tested, cohort, facts)


def _choose(cohort: Cohort, settings: Analysis) -> tuple[tuple[str, ...], People]:
    """Representations of edges, and the people with scans, phenotypes and covariates."""
    names = tuple(name for name in expand_names(cohort, settings) if not encoder_of(name))
    if FC in names:  # a single edge of FC^alpha has no meaning of its own
        names = tuple(name for name in names if name != FC_POWER)
    people = choose_people(cohort, settings, names, resolve_preset(settings).covariates)
    made = build_representations(cohort, people.scans, names, settings)
    edges = tuple(each.name for each in made if each.is_edges)
    if not edges:
        raise Unfit(WITHOUT_EDGES)
    return edges, people


def _ask(cohort: Cohort, exchange: Exchange, settings: Analysis) -> Iterator[Question]:
    """Model and permutations of every target."""
    preset = resolve_preset(settings)
    for target in choose_targets(exchange.people.phenotypes, settings, cohort.targets or None, preset.covariates):
        try:
            yield _ask_of(target, exchange, settings)
        except Unfit as error:
            raise type(error)(f"Target '{target.name}': {error}") from error


def _ask_of(target: Target, exchange: Exchange, settings: Analysis) -> Question:
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
