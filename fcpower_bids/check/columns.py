"""Findings about the columns of the phenotypes, and about groups that can be recognised from connectomes."""

from __future__ import annotations

import itertools
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
    SiteShare,
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
from fcpower_bids.check.findings import ALARM, LOOK, NOTE, Finding, name_some
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
CODE = "If it means missing, set missing_values {name}={value:g} in --config-file, or say so in the JSON of its table."
HELD, FEWEST_LEFT = 0.8, 10
"""Share of the variance of a target from which on covariates hold it, and the degrees of freedom to say so."""
FAMILY = re.compile(
    r"(family|fam|pedigree|sibship|twin_?pair|household)(_?(id|no|nr|number|code|label))?", re.IGNORECASE
)
MOST_OF_A_FAMILY = 5
"""On average; a column with larger groups is something else."""
FEW_SCATTERED = 3
"""Families at several sites that may be relatives who were scanned at two places."""


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
        *_covariates(cohort, table, targets, settings),
    ]


def sites_of_people(cohort: Cohort, settings: Analysis) -> dict[str, str]:
    """Site of each person, of the first column of sites; empty without one."""
    columns = [] if cohort.phenotypes.empty else site_columns(cohort.phenotypes, settings)
    if not columns:
        return {}
    return dict(zip(cohort.phenotypes.index.astype(str), site_labels(cohort.phenotypes, columns[0]), strict=True))


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
        for value, n in repeated_inside(_numbers(table[name])):
            yield Finding(
                "repeated value",
                LOOK,
                n,
                value,
                f"{name} is {value:g} in {n} people, far more often than the values around it: it looks like a code, "
                "or like a value that was filled in.",
                "Used as a number it is an error of measurement of these people.",
                CODE.format(name=name, value=value),
            )


def _units(column: str, names: Sequence[str], table: pd.DataFrame, sites: NDArray[Any]) -> Iterator[Finding]:
    """Sites whose values are in another unit."""
    for name in names:
        for site, ratio in mixed_units(_numbers(table[name]), sites):
            yield Finding(
                "units by site",
                LOOK,
                int((sites == site).sum()),
                ratio,
                f"The median {name} of {column} {site} is {ratio:.3g} times that of the others, and hardly any of its "
                "values lies among theirs: it looks like another unit.",
                f"{name} then is the site, and its variance within the others is lost.",
                f"Write {name} of all sites in one unit.",
            )


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
            yield Finding(
                "covariates and target",
                LOOK,
                len(design),
                share,
                f"{' and '.join(names)} explain {100 * share:.0f} % of the variance of {target} (adjusted R2 over "
                f"{len(design)} people).",
                f"The rest of {target} is mostly error of measurement: a covariate may hold the target.",
                "Leave a covariate that is made of the target, or from which the target is made, out of --covariates.",
            )


def _families(table: pd.DataFrame, settings: Analysis) -> Iterator[Finding]:
    """Columns that look like undeclared families: most people have a value of their own, or share it with a few."""
    if settings.family_column in table:
        yield from _scattered_families(table, str(settings.family_column), settings)
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


def _scattered_families(table: pd.DataFrame, family: str, settings: Analysis) -> Iterator[Finding]:
    """Families with people at several sites: where most are, equal labels are different families at each site."""
    sizes = table[family].dropna().value_counts()
    several = table[table[family].isin(sizes.index[sizes > 1])]
    for site in site_columns(table, settings):
        scattered = several.groupby(family)[site].nunique() > 1
        if scattered.sum() >= FEW_SCATTERED and scattered.mean() > 0.5:
            yield Finding(
                "families across sites",
                LOOK,
                int(scattered.sum()),
                float(scattered.mean()),
                f"{scattered.sum()} of {len(scattered)} families of '{family}' are spread over sites of '{site}'.",
                "If a label is another family at each site, strangers count as relatives: folds keep them together, "
                "and a site that is held out takes them out of the training.",
                f"Where they are no relatives, write the site into '{family}'.",
            )


def _sites(cohort: Cohort, table: pd.DataFrame, targets: Targets, settings: Analysis) -> Iterator[Finding]:
    columns = site_columns(table, settings)
    by_person = {name: dict(zip(table.index, site_labels(table, name).tolist(), strict=True)) for name in columns}
    held_out = held_out_column(cohort.folds, by_person)
    for share in find_site_shares(table, targets, settings):
        yield _site_share(share, describe_handling(share.column, held_out, settings))
    for column in columns:
        known = table[column].notna().to_numpy()
        sites = table[column].astype(str).to_numpy()[known]
        sizes = pd.Series(sites).value_counts()
        if not settings.site_column and column != held_out:
            yield _unnamed(column, sizes, column in settings.covariates)
        yield from _small_sites(column, sizes)
        for name, values in targets.items():
            yield from _lonely_classes(name, values[known], sites)
        used = [name for name in (*targets, *settings.covariates) if name in table and name != column]
        yield from _units(column, list(dict.fromkeys(used)), table[known], sites)


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


def _small_sites(column: str, sizes: pd.Series) -> Iterator[Finding]:
    small = sizes[sizes < SMALL_SITE]
    if len(small) and len(sizes) > 1:
        yield Finding(
            "small site",
            NOTE,
            len(small),
            float(small.min()),
            f"{column} has sites of fewer than {SMALL_SITE} people: "
            + name_some([f"{site} ({n})" for site, n in small.items()])
            + ".",
            "A score within such a site is mostly noise.",
            "Read scores that weigh sites by their people.",
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


def _lonely_classes(name: str, values: FloatArray, sites: NDArray[Any]) -> Iterator[Finding]:
    """Sites that have only one of two classes."""
    known = np.isfinite(values)
    if len(np.unique(values[known])) != 2:
        return
    lonely = one_class_groups(values, sites, SIGNIFICANT)
    n_sites = len(set(sites[known].tolist()))
    if lonely:
        yield Finding(
            "classes per site",
            LOOK,
            len(lonely),
            float("nan"),
            f"{len(lonely)} of {n_sites} sites have one class of {name} only: {name_some(lonely)}.",
            "Recognising such a site is recognising the class.",
            "Leave these sites out, or read the score within sites.",
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


MOST_PEOPLE = 5000
"""People, drawn at random, for the classification of sites, which holds some matrices of people by people."""


def check_recognition(cohort: Cohort, similarity: FloatArray, settings: Analysis) -> Iterator[Finding]:
    """Test how well the first scan of each person predicts every column of sites. Similarity (N, N)."""
    if cohort.phenotypes.empty:
        return
    table = cohort.phenotypes.copy()
    table.index = table.index.astype(str)
    people, first = np.unique(cohort.scans["participant_id"].astype(str), return_index=True)
    there = np.isin(people, table.index)
    for column in site_columns(table, settings):
        sites = table[column].reindex(people[there])
        everyone = np.flatnonzero(sites.notna())
        known = _draw(everyone, settings.random_seed)
        rows = first[there][known]
        found = recognise_groups(
            Block(rows, rows).copy(similarity), sites.iloc[known].astype(str).to_numpy(), seed=settings.random_seed
        )
        if found.p < SIGNIFICANT:
            yield Finding(
                "site and connectome",
                NOTE,
                found.n,
                found.share,
                f"The connectomes separate the {found.n_groups} sites of '{column}': {100 * found.share:.0f} % of the "
                f"people of a site are recognised, where chance is {100 / found.n_groups:.0f} %"
                f"{f' (of {found.n:,} people drawn at random)' if len(known) < len(everyone) else ''}.",
                "Whatever goes with the site can be predicted from the scanner alone.",
                _remedy(column, settings),
            )


def check_spread(cohort: Cohort, similarity: FloatArray, settings: Analysis) -> Iterator[Finding]:
    """Compare the spread of connectomes between the classes of every target of two. Similarity (N, N)."""
    table = cohort.phenotypes.copy()
    table.index = table.index.astype(str)
    targets = {} if table.empty else read_targets(table, cohort, settings)
    classes = {name: values for name, values in targets.items() if len(np.unique(values[np.isfinite(values)])) == 2}
    people, first = np.unique(cohort.scans["participant_id"].astype(str), return_index=True)
    for name, values in classes.items():
        own = pd.Series(values, index=table.index).reindex(people)
        known = _draw(np.flatnonzero(own.notna()), settings.random_seed)
        labels = own.iloc[known].to_numpy() == own.max()
        found = compare_spread(Block(first[known], first[known]).copy(similarity), labels, seed=settings.random_seed)
        if found.p < SIGNIFICANT / len(classes):
            more, ratio = ("more", found.share) if found.share > 1 else ("less", 1 / found.share)
            yield Finding(
                SPREAD,
                NOTE,
                found.n,
                found.share,
                f"{OF_CLASSES.format(name)} {more} spread than those of the other, by a factor of {ratio:.2f} over "
                f"{found.n} people.",
                "Classes whose scans are shorter or move more are spread more. Tests of edges give each class a "
                "variance of its own; a prediction may read the spread, and its p are somewhat too small where a small "
                "class is spread twice as much.",
                "Compare minutes and motion of the classes.",
            )


FEWEST_CHANGED = 9
"""People scanned with two repetition times: the smallest p of their sign flips is below the limit."""


def check_sources(cohort: Cohort, similarity: FloatArray, settings: Analysis) -> Iterator[Finding]:
    """Compare scans of the same people that were acquired with different repetition times. Similarity (N, N)."""
    times = np.round(np.asarray(cohort.repetition_times, dtype=float), 3)
    if not len(times):
        return
    scans = pd.DataFrame({"person": cohort.scans["participant_id"].astype(str).to_numpy(), "time": times})
    scans["session"] = cohort.scans["session"].astype(str).to_numpy()
    first = (
        scans[np.isfinite(times)]
        .reset_index()
        .pivot_table(index="person", columns="time", values="index", aggfunc="min")
    )
    pairs = [
        (one, other)
        for one, other in itertools.combinations(first, 2)
        if first[[one, other]].notna().all(axis=1).sum() >= FEWEST_CHANGED
    ]
    for one, other in pairs:
        rows = first[[one, other]].dropna().to_numpy(dtype=np.intp)
        rows = rows[_draw(np.arange(len(rows)), settings.random_seed)]
        block = Block(rows.ravel(), rows.ravel()).copy(similarity)
        first_of, second_of = np.arange(rows.size).reshape(rows.shape).T
        found = compare_sources(block, first_of, second_of, seed=settings.random_seed)
        if found.p < SIGNIFICANT / len(pairs):
            sessions = [set(scans["session"].iloc[each]) for each in rows.T]
            yield Finding(
                "repetition time and session",
                LOOK,
                found.n,
                found.share,
                f"{found.n} people were scanned with repetition times of {one:g} s and of {other:g} s, and the "
                f"connectomes of all differ between the two in one direction ({100 * found.share:.0f} % of the squared "
                "difference is common to them).",
                "The change between the scans of a person is partly that of the protocol"
                + ("" if sessions[0] & sessions[1] else ", which cannot be separated from time: no session has both")
                + ".",
                "Compare scans of one protocol.",
            )


def _remedy(column: str, settings: Analysis) -> str:
    """Remedy, given the choices."""
    if settings.sites == HOLD_OUT:
        return "Read the score within sites; these are held out."
    if settings.site_column == column:
        return "Read the score within sites, or use --sites hold-out."
    return f"Give --site-column {column} and read the score within sites, or use --sites hold-out."


def _draw(rows: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """All rows, or `MOST_PEOPLE` of them in their order."""
    if len(rows) <= MOST_PEOPLE:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, MOST_PEOPLE, replace=False))
