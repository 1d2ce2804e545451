"""Findings about the columns of the phenotypes, and about groups that can be recognised from connectomes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.evaluate import OF_CLASSES, SPREAD
from fcpower_bids.analyses.targets import (
    AMOUNTS,
    SIGNIFICANT,
    Targets,
    covariate_columns,
    describe_handling,
    find_site_shares,
    held_out_column,
    person_amounts,
    read_targets,
    site_columns,
    site_labels,
)
from fcpower_bids.check.findings import ALARM, LOOK, NOTE, Finding, find, name_some
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.duplicates import compare_sources, compare_spread, recognise_groups
from fcpower_bids.core.regression.krr import Block
from fcpower_bids.core.sentinel_codes import (
    mixed_units,
    one_class_groups,
    rank_association,
    repeated_extremes,
    repeated_inside,
)
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis
from fcpower_bids.settings.group import HOLD_OUT

SMALL_SITE = 10
HELD, FEWEST_LEFT = 0.8, 10
"""Share of the variance of a target from which on covariates hold it, and the degrees of freedom to say so."""
FAMILY = re.compile(
    r"(family|fam|pedigree|sibship|twin_?pair|household)(_?(id|no|nr|number|code|label))?", re.IGNORECASE
)
MOST_OF_A_FAMILY = 5
"""On average; a column with larger groups is something else."""
FEW_SCATTERED = 3
"""Families at several sites that may be relatives who were scanned at two places."""
MOST_PEOPLE = 5000
"""People, drawn at random, for the classification of sites, which holds some matrices of people by people."""
FEWEST_CHANGED = 9
"""People scanned with two repetition times: the smallest p of their sign flips is below the limit."""


def check_columns(cohort: Cohort, settings: Analysis) -> Iterator[Finding]:
    """Hold every target against sites, length and motion, and look for codes among the values in use."""
    if cohort.phenotypes.empty:
        return
    table = _table(cohort)
    targets = read_targets(table, cohort, settings)
    used = list(dict.fromkeys(name for name in (*targets, *settings.covariates) if name in table))
    for name in used:
        for value, n in repeated_extremes(_numbers(table[name])):
            people = "person" if n == 1 else "people"
            yield find("repeated extreme value", LOOK, n, value, name=name, people=people)
        for value, n in repeated_inside(_numbers(table[name])):
            yield find("repeated value", LOOK, n, value, name=name)
    yield from _families(table, settings)
    yield from _sites(cohort, table, targets, used, settings)
    amounts = person_amounts(cohort.scans).reindex(table.index)
    names = [name for name in AMOUNTS if amounts[name].nunique() > 1]
    for name, (target, values) in itertools.product(names, targets.items()):
        found = rank_association(values, amounts[name].to_numpy(dtype=float))
        if found.p < SIGNIFICANT / (len(names) * len(targets)):
            kind = "motion and target" if name == "mean_fd" else "amount of data and target"
            level, words = (NOTE, f"removed {kind}") if name in settings.covariates else (LOOK, kind)
            yield find(kind, level, found.n, found.size, words, target=target, amount=AMOUNTS[name], name=name)
    yield from _covariates(cohort, table, targets, settings)


def sites_of_people(cohort: Cohort, settings: Analysis) -> dict[str, str]:
    """Site of each person, of the first column of sites; empty without one."""
    columns = [] if cohort.phenotypes.empty else site_columns(cohort.phenotypes, settings)
    if not columns:
        return {}
    return dict(zip(cohort.phenotypes.index.astype(str), site_labels(cohort.phenotypes, columns[0]), strict=True))


def _table(cohort: Cohort) -> pd.DataFrame:
    return cohort.phenotypes.set_axis(cohort.phenotypes.index.astype(str))


def _numbers(column: pd.Series) -> FloatArray:
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _covariates(cohort: Cohort, table: pd.DataFrame, targets: Targets, settings: Analysis) -> Iterator[Finding]:
    """Targets that the covariates hold: what is left of them is mostly error."""
    sites = site_columns(table, settings)
    names = [name for name in settings.covariates if (name in table or name in AMOUNTS) and name not in sites]
    if not names:
        return
    known = covariate_columns(table, cohort.scans, names, ()).to_numpy(dtype=float)
    for target, values in targets.items():
        rows = np.isfinite(values) & np.isfinite(known).all(axis=1)
        design = np.column_stack([np.ones(rows.sum()), known[rows]])
        df = len(design) - np.linalg.matrix_rank(design)
        spread = float(np.var(values[rows])) * len(design) if rows.any() else 0.0
        if df < FEWEST_LEFT or spread <= 0:
            continue
        left = values[rows] - design @ np.linalg.lstsq(design, values[rows], rcond=None)[0]
        share = 1 - float(left @ left) / df * (len(design) - 1) / spread
        if share > HELD:
            about = {"names": " and ".join(names), "target": target, "percent": 100 * share}
            yield find("covariates and target", LOOK, len(design), share, **about)


def _families(table: pd.DataFrame, settings: Analysis) -> Iterator[Finding]:
    """Families spread over sites, whose labels may be others at each; or columns that look like undeclared families.

    Of those most people have a value of their own, or share it with a few.
    """
    family = settings.family_column
    if family in table:
        sizes = table[family].dropna().value_counts()
        several = table[table[family].isin(sizes.index[sizes > 1])]
        for site in site_columns(table, settings):
            scattered = several.groupby(family)[site].nunique() > 1
            if scattered.sum() >= FEW_SCATTERED and scattered.mean() > 0.5:
                about = {"of": len(scattered), "family": family, "site": site}
                yield find("families across sites", LOOK, scattered.sum(), scattered.mean(), **about)
        return
    for column in (str(name) for name in table if FAMILY.fullmatch(str(name))):
        sizes = table[column].dropna().value_counts()
        related = int(sizes[sizes > 1].sum())
        if related and len(sizes) >= len(table) / MOST_OF_A_FAMILY:
            yield find("families", LOOK, related, sizes.max(), column=column)


def _sites(
    cohort: Cohort, table: pd.DataFrame, targets: Targets, used: Sequence[str], settings: Analysis
) -> Iterator[Finding]:
    columns = site_columns(table, settings)
    by_person = {name: dict(zip(table.index, site_labels(table, name).tolist(), strict=True)) for name in columns}
    held_out = held_out_column(cohort.folds, by_person)
    for share in find_site_shares(table, targets, settings):
        handled = describe_handling(share.column, held_out, settings)
        about = {"name": share.target, "column": share.column, "percent": 100 * share.share, "handled": handled}
        level, words = (NOTE, "handled site and target") if handled else (ALARM, "")
        yield find("site and target", level, share.n_sites, share.share, words, **about)
    for column in columns:
        known = table[column].notna().to_numpy()
        sites = table[column].astype(str).to_numpy()[known]
        sizes = pd.Series(sites).value_counts()
        small = sizes[sizes < SMALL_SITE]
        if not settings.site_column and column != held_out:
            among = "; it is a covariate" if column in settings.covariates else ""
            about = {"column": column, "least": sizes.min(), "most": sizes.max(), "used": among}
            yield find("site", NOTE, len(sizes), math.nan, **about)
        if len(small) and len(sizes) > 1:
            named = name_some([f"{site} ({n})" for site, n in small.items()])
            yield find("small site", NOTE, len(small), small.min(), column=column, limit=SMALL_SITE, named=named)
        for name, values in targets.items():
            own, finite = values[known], np.isfinite(values[known])
            lonely = one_class_groups(own, sites, SIGNIFICANT) if len(np.unique(own[finite])) == 2 else []
            if lonely:
                about = {"of": len(set(sites[finite].tolist())), "name": name, "named": name_some(lonely)}
                yield find("classes per site", LOOK, len(lonely), math.nan, **about)
        for name in (name for name in used if name != column):
            for site, ratio in mixed_units(_numbers(table[known][name]), sites):
                about = {"name": name, "column": column, "site": site}
                yield find("units by site", LOOK, (sites == site).sum(), ratio, **about)


# --- Groups that connectomes tell -----------------------------------------------------------------------------------


def check_recognition(cohort: Cohort, similarity: FloatArray, settings: Analysis) -> Iterator[Finding]:
    """Test how well the first scan of each person predicts every column of sites. Similarity (N, N)."""
    if cohort.phenotypes.empty:
        return
    table, people, first = _table(cohort), *_first_scans(cohort)
    there = np.isin(people, table.index)
    for column in site_columns(table, settings):
        sites = table[column].reindex(people[there])
        everyone = np.flatnonzero(sites.notna())
        known = _draw(everyone, settings)
        rows, labels = first[there][known], sites.iloc[known].astype(str).to_numpy()
        found = recognise_groups(Block(rows, rows).copy(similarity), labels, seed=settings.random_seed)
        if found.p < SIGNIFICANT:
            drawn = f" (of {found.n:,} people drawn at random)" if len(known) < len(everyone) else ""
            remedy = "Read the score within sites, or use --sites hold-out."
            if settings.sites == HOLD_OUT:
                remedy = "Read the score within sites; these are held out."
            elif settings.site_column != column:
                remedy = f"Give --site-column {column} and read the score within sites, or use --sites hold-out."
            about = {"groups": found.n_groups, "column": column, "drawn": drawn, "remedy": remedy}
            about |= {"percent": 100 * found.share, "chance": 100 / found.n_groups}
            yield find("site and connectome", NOTE, found.n, found.share, **about)


def check_spread(cohort: Cohort, similarity: FloatArray, settings: Analysis) -> Iterator[Finding]:
    """Compare the spread of connectomes between the classes of every target of two. Similarity (N, N)."""
    table, people, first = _table(cohort), *_first_scans(cohort)
    targets = {} if table.empty else read_targets(table, cohort, settings)
    classes = {name: values for name, values in targets.items() if len(np.unique(values[np.isfinite(values)])) == 2}
    for name, values in classes.items():
        own = pd.Series(values, index=table.index).reindex(people)
        known = _draw(np.flatnonzero(own.notna()), settings)
        labels = own.iloc[known].to_numpy() == own.max()
        found = compare_spread(Block(first[known], first[known]).copy(similarity), labels, seed=settings.random_seed)
        if found.p < SIGNIFICANT / len(classes):
            more, ratio = ("more", found.share) if found.share > 1 else ("less", 1 / found.share)
            yield find(SPREAD, NOTE, found.n, found.share, classes=OF_CLASSES.format(name), more=more, ratio=ratio)


def check_sources(cohort: Cohort, similarity: FloatArray, settings: Analysis) -> Iterator[Finding]:
    """Compare scans of the same people that were acquired with different repetition times. Similarity (N, N)."""
    times = np.round(np.asarray(cohort.repetition_times, dtype=float), 3)
    if not len(times):
        return
    scans = cohort.scans[["participant_id", "session"]].astype(str).reset_index(drop=True).assign(time=times)
    there = scans[np.isfinite(times)].reset_index()
    first = there.pivot_table(index="participant_id", columns="time", values="index", aggfunc="min")
    pairs = [
        (one, other)
        for one, other in itertools.combinations(first, 2)
        if first[[one, other]].notna().all(axis=1).sum() >= FEWEST_CHANGED
    ]
    for one, other in pairs:
        rows = first[[one, other]].dropna().to_numpy(dtype=np.intp)
        rows = rows[_draw(np.arange(len(rows)), settings)]
        block = Block(rows.ravel(), rows.ravel()).copy(similarity)
        first_of, second_of = np.arange(rows.size).reshape(rows.shape).T
        found = compare_sources(block, first_of, second_of, seed=settings.random_seed)
        if found.p < SIGNIFICANT / len(pairs):
            sessions: list[set[Any]] = [set(scans["session"].iloc[each]) for each in rows.T]
            apart = "" if sessions[0] & sessions[1] else ", which cannot be separated from time: no session has both"
            about = {"one": one, "other": other, "percent": 100 * found.share, "apart": apart}
            yield find("repetition time and session", LOOK, found.n, found.share, **about)


def _first_scans(cohort: Cohort) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
    """People in the order of their names, and the row of the first scan of each."""
    return np.unique(cohort.scans["participant_id"].astype(str).to_numpy(dtype=str), return_index=True)


def _draw(rows: NDArray[np.intp], settings: Analysis) -> NDArray[np.intp]:
    """All rows, or `MOST_PEOPLE` of them in their order."""
    if len(rows) <= MOST_PEOPLE:
        return rows
    return np.sort(np.random.default_rng(settings.random_seed).choice(rows, MOST_PEOPLE, replace=False))
