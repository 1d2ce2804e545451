"""Findings about the columns of the phenotypes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.analyses.targets import (
    AMOUNTS,
    SIGNIFICANT,
    SiteShare,
    Targets,
    describe_handling,
    find_site_shares,
    held_out_column,
    person_amounts,
    read_targets,
    site_columns,
    site_labels,
)
from fcpower_bids.check.findings import ALARM, LOOK, NOTE, Finding
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.sentinel_codes import (
    rank_association,
    repeated_extremes,
)
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis

CODE = "If it means missing, set missing_values {name}={value:g} in --config-file, or say so in the JSON of its table."
FAMILY = re.compile(
    r"(family|fam|pedigree|sibship|twin_?pair|household)(_?(id|no|nr|number|code|label))?", re.IGNORECASE
)
MOST_OF_A_FAMILY = 5
"""On average; a column with larger groups is something else."""


def check_columns(cohort: Cohort, settings: Analysis) -> list[Finding]:
    """Hold every target against sites, length and motion, and look for codes among the values in use."""
    if cohort.phenotypes.empty:
        return []
    table = cohort.phenotypes.copy()
    table.index = table.index.astype(str)
    targets = read_targets(table, cohort, settings)
    amounts = person_amounts(cohort.scans).reindex(table.index)
    names = [name for name in AMOUNTS if amounts[name].nunique() > 1]
    of_amounts = []
    for name in names:
        for target, values in targets.items():
            found = rank_association(values, amounts[name].to_numpy(dtype=float))
            if found.p < SIGNIFICANT / (len(names) * len(targets)):
                of_amounts.append(_amount(name, target, found.size, found.n, name in settings.covariates))
    return [
        *_codes(table, targets, settings),
        *_families(table, settings),
        *_sites(cohort, table, targets, settings),
        *of_amounts,
    ]


def _numbers(column: pd.Series) -> FloatArray:
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _codes(table: pd.DataFrame, targets: Targets, settings: Analysis) -> Iterator[Finding]:
    used = [name for name in (*targets, *settings.covariates) if name in table]
    for name in dict.fromkeys(used):
        for value, n in repeated_extremes(_numbers(table[name])):
            yield Finding(
                "repeated extreme value",
                LOOK,
                n,
                value,
                f"{name} is {value:g} in {n} {'person' if n == 1 else 'people'} and nothing like it in the others: it "
                "looks like a code for a missing value.",
                "Used as a number it dominates the correlation and the penalty.",
                CODE.format(name=name, value=value),
            )


def _families(table: pd.DataFrame, settings: Analysis) -> Iterator[Finding]:
    """Columns that look like undeclared families: most people have a value of their own, or share it with a few."""
    if settings.family_column in table:
        return
    for column in (str(name) for name in table if FAMILY.fullmatch(str(name))):
        sizes = table[column].dropna().value_counts()
        related = int(sizes[sizes > 1].sum())
        if related and len(sizes) >= len(table) / MOST_OF_A_FAMILY:
            yield Finding(
                "families",
                LOOK,
                related,
                float(sizes.max()),
                f"The column '{column}' looks like the family: {related} people share it with others, and no "
                "--family-column is given.",
                "Relatives on both sides of a split make predictions too good, and their targets are not exchangeable.",
                f"Give --family-column {column}.",
            )


def _sites(cohort: Cohort, table: pd.DataFrame, targets: Targets, settings: Analysis) -> Iterator[Finding]:
    columns = site_columns(table, settings)
    by_person = {name: dict(zip(table.index, site_labels(table, name).tolist(), strict=True)) for name in columns}
    held_out = held_out_column(cohort.folds, by_person)
    for share in find_site_shares(table, targets, settings):
        yield _site_share(share, describe_handling(share.column, held_out, settings))
    for column in columns:
        if not settings.site_column and column != held_out:
            sizes = table[column].dropna().astype(str).value_counts()
            yield _unnamed(column, sizes, column in settings.covariates)


def _unnamed(column: str, sizes: pd.Series, is_covariate: bool) -> Finding:
    return Finding(
        "site",
        NOTE,
        len(sizes),
        float("nan"),
        f"The column '{column}' looks like the site of the scan ({len(sizes)} sites of {sizes.min()} to {sizes.max()} "
        "people), and no --site-column is given.",
        "Targets that do not go with it are permuted across sites, and nothing is reported per site"
        + ("; it is a covariate." if is_covariate else "."),
        f"Give --site-column {column}.",
    )


def _site_share(found: SiteShare, handled: str) -> Finding:
    name, column = found.target, found.column
    return Finding(
        "site and target",
        NOTE if handled else ALARM,
        found.n_sites,
        found.share,
        f"{100 * found.share:.0f} % of the variance of {name} lies between the {found.n_sites} sites of '{column}'.",
        handled
        or f"A model that only recognises the scanner predicts {name}. "
        "Permutations stay within the sites, so that only more than the site counts.",
        "Read the score within sites."
        if handled
        else f"Give --site-column {column}, read the score within sites, and add --covariates {column} or "
        "--sites hold-out.",
    )


def _amount(name: str, target: str, rho: float, n: int, removed: bool) -> Finding:
    motion = name == "mean_fd"
    return Finding(
        "motion and target" if motion else "amount of data and target",
        NOTE if removed else LOOK,
        n,
        rho,
        f"{target} goes with the {AMOUNTS[name]} (Spearman {rho:+.2f} over {n} people).",
        "It is among the covariates, so what it explains linearly is taken off in every fold."
        if removed
        else "Connectomes show how long and how still a person was scanned, so the model can predict the target from "
        "that alone.",
        f"Add --covariates {name}" + ("." if motion else ", or take the same of everybody: --equal-minutes."),
    )
