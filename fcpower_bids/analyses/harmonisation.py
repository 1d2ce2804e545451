"""Scores under each way of handling sites: none, covariate of the target, ComBat of the features, both, held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pandas as pd

from fcpower_bids.analyses.evaluate import cross_validate, main_score, person_frames, pooled_scores
from fcpower_bids.analyses.nulls import NO_NULL, NULL_FACTS, null_p_values, null_rows
from fcpower_bids.analyses.sites import (
    PREDICTION_SITES,
    RANDOM,
    RULE,
    WITHIN,
    check_harmonisation,
    make_solvers,
    people_unadjusted,
    tabulate_sites,
)
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Analysis
from fcpower_bids.settings.group import HOLD_OUT, PERMUTE

NONE, COMBAT, COVARIATE, BOTH, HELD_OUT = "none", "combat", "covariate", "both", "held out"
HANDLINGS = {
    NONE: "as they are",
    COVARIATE: "regressed from the target",
    COMBAT: "taken from the features by ComBat",
    BOTH: "taken from features and target",
    HELD_OUT: "held out in turn",
}
"""Handling of sites, in words."""

HARMONISATION = TABLES["harmonisation"]


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse what allows no comparison."""
    _check(settings)
    for handling in (NONE, BOTH):
        open_study(*_choose(handling, cohort, settings))


def analyse_harmonisation(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Predict with every handling of sites, side by side; none is tested. Raises NotInCohort, Unfit."""
    _check(settings)
    rows: list[dict[str, Any]] = []
    for handling in HANDLINGS:
        try:
            study = open_study(*_choose(handling, cohort, settings))
        except Unfit as error:
            if handling != HELD_OUT:
                raise
            unscored = [
                {key: row[key] for key in ("target", "representation", "score")} for row in rows if row["sites"] == NONE
            ]
            rows += [{**row, "sites": HELD_OUT, "reason": str(error)} for row in unscored]
            continue
        rows += _score(study, handling)
    frame = pd.DataFrame(rows).reindex(columns=list(HARMONISATION.columns))
    order = {name: place for place, name in enumerate(dict.fromkeys(frame["target"]))}
    frame = frame.sort_values("target", key=lambda column: column.map(order), kind="stable", ignore_index=True)
    facts = {"Rule": RULE, "Null": NULL_FACTS["Rule"]}
    return {HARMONISATION.name: Table(frame, HARMONISATION, facts)}


def _check(settings: Analysis) -> None:
    if settings.site_column is None:
        raise NotInCohort("Ways of handling sites need their column; give --site-column.")
    check_harmonisation(settings)


def _choose(handling: str, cohort: Cohort, settings: Analysis) -> tuple[Cohort, Analysis]:
    """The cohort and the choices of one handling."""
    site = str(settings.site_column)
    others = tuple(name for name in settings.covariates if name != site)
    chosen = dataclasses.replace(settings, covariates=others, sites=HOLD_OUT if handling == HELD_OUT else PERMUTE)
    if handling in (COVARIATE, BOTH):
        # The covariates of a preset stand in only where none are named.
        preset = open_study(cohort, chosen).preset
        chosen = dataclasses.replace(chosen, covariates=(*preset.covariates, site))
    if handling == HELD_OUT:
        return dataclasses.replace(cohort, folds=None), dataclasses.replace(chosen, folds_file=None)
    return cohort, chosen


def _score(study: Study, handling: str) -> Iterator[dict[str, Any]]:
    results: dict[str, NestedResult] = {}
    null = []
    adjusted = handling in (COMBAT, BOTH)
    for representation, solver in make_solvers(study.representations(), study, COMBAT if adjusted else PERMUTE):
        entry = representation.name
        results[entry] = cross_validate(solver, study, f"{entry}, sites {HANDLINGS[handling]}")
        null += null_rows(solver, study, entry)
    pooled, p_values = pooled_scores(study, results), null_p_values(null)
    sites = tabulate_sites(study, person_frames(study, results))[PREDICTION_SITES.name].frame
    unadjusted = len(people_unadjusted(study)) if adjusted else None
    for target in study.targets:
        for entry in results:
            own, parts = (
                each[(each["target"] == target.name) & (each["representation"] == entry)] for each in (pooled, sites)
            )
            score = main_score(target)
            yield {
                **{"target": target.name, "representation": entry},
                **{"sites": handling, "reason": "", "score": score},
                **{"pooled": own[score].mean(), "mae": own["mae"].mean()},
                **_over_sites(parts),
                **{
                    key: p_values.get((target.name, entry), NO_NULL)[key] for key in ("p_permutation", "n_permutations")
                },
                **{"n_people": len(study.people.names), "n_unadjusted": unadjusted},
            }


def _over_sites(parts: pd.DataFrame) -> dict[str, Any]:
    """Within sites, and over sites that may differ, of the rows of one target and entry."""
    found = {"within": parts.loc[parts["over"] == WITHIN, "value"].iloc[0]}
    for _, row in parts[parts["over"] == RANDOM].iterrows():
        found |= {"over": row["value"], "ci_low": row["ci_low"], "ci_high": row["ci_high"]}
    return found
