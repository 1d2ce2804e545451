"""Findings about the columns of the phenotypes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.analyses.targets import (
    AMOUNTS,
    SIGNIFICANT,
    Targets,
    describe_handling,
    find_site_shares,
    held_out_column,
    person_amounts,
    read_targets,
    site_columns,
    site_labels,
)
from fcpower_bids.check.findings import ALARM, LOOK, NOTE, Finding, find
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.sentinel_codes import rank_association, repeated_extremes
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis

FAMILY = re.compile(
    r"(family|fam|pedigree|sibship|twin_?pair|household)(_?(id|no|nr|number|code|label))?", re.IGNORECASE
)
MOST_OF_A_FAMILY = 5
"""On average; a column with larger groups is something else."""


def check_columns(cohort: Cohort, settings: Analysis) -> Iterator[Finding]:
    """Hold every target against sites, length and motion, and look for codes among the values in use."""
    if cohort.phenotypes.empty:
        return
    table = cohort.phenotypes.set_axis(cohort.phenotypes.index.astype(str))
    targets = read_targets(table, cohort, settings)
    used = list(dict.fromkeys(name for name in (*targets, *settings.covariates) if name in table))
    for name in used:
        for value, n in repeated_extremes(_numbers(table[name])):
            people = "person" if n == 1 else "people"
            yield find("repeated extreme value", LOOK, n, value, name=name, people=people)
    yield from _families(table, settings)
    yield from _sites(cohort, table, targets, settings)
    amounts = person_amounts(cohort.scans).reindex(table.index)
    names = [name for name in AMOUNTS if amounts[name].nunique() > 1]
    for name, (target, values) in itertools.product(names, targets.items()):
        found = rank_association(values, amounts[name].to_numpy(dtype=float))
        if found.p < SIGNIFICANT / (len(names) * len(targets)):
            kind = "motion and target" if name == "mean_fd" else "amount of data and target"
            level, words = (NOTE, f"removed {kind}") if name in settings.covariates else (LOOK, kind)
            yield find(kind, level, found.n, found.size, words, target=target, amount=AMOUNTS[name], name=name)


def _numbers(column: pd.Series) -> FloatArray:
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _families(table: pd.DataFrame, settings: Analysis) -> Iterator[Finding]:
    """Columns that look like undeclared families: most people have a value of their own, or share it with a few."""
    if settings.family_column in table:
        return
    for column in (str(name) for name in table if FAMILY.fullmatch(str(name))):
        sizes = table[column].dropna().value_counts()
        related = int(sizes[sizes > 1].sum())
        if related and len(sizes) >= len(table) / MOST_OF_A_FAMILY:
            yield find("families", LOOK, related, sizes.max(), column=column)


def _sites(cohort: Cohort, table: pd.DataFrame, targets: Targets, settings: Analysis) -> Iterator[Finding]:
    columns = site_columns(table, settings)
    by_person = {name: dict(zip(table.index, site_labels(table, name).tolist(), strict=True)) for name in columns}
    held_out = held_out_column(cohort.folds, by_person)
    for share in find_site_shares(table, targets, settings):
        handled = describe_handling(share.column, held_out, settings)
        about = {"name": share.target, "column": share.column, "percent": 100 * share.share, "handled": handled}
        level, words = (NOTE, "handled site and target") if handled else (ALARM, "")
        yield find("site and target", level, share.n_sites, share.share, words, **about)
    for column in columns:
        if not settings.site_column and column != held_out:
            sizes = table[column].dropna().astype(str).value_counts()
            among = "; it is a covariate" if column in settings.covariates else ""
            about = {"column": column, "least": sizes.min(), "most": sizes.max(), "used": among}
            yield find("site", NOTE, len(sizes), math.nan, **about)
