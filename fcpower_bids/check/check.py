"""The check of a cohort, before the first model: its findings, who belongs in one fold, and what everyone reads."""

from __future__ import annotations

import dataclasses

from fcpower_bids.check.columns import check_columns
from fcpower_bids.check.findings import (
    CHECK,
    NOTE,
    check_joins,
    check_left_out,
    check_seen,
    tabulate_findings,
)
from fcpower_bids.check.pairs import CHECK_PAIRS, SAME, build_similarity, check_copies, check_pairs
from fcpower_bids.cohort.people import describe_join
from fcpower_bids.outputs.group import FinishedAnalyses, analysis_key, write_group_tables
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.progress import say
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Analysis, Settings

READ = (
    *("targets", "covariates", "site_column", "family_column", "preset", "representations", "sites"),
    *("quiet", "nprocs", "random_seed"),
)
"""Choices that the check reads; others do not make it run again."""


def check_cohort(cohort: Cohort, settings: Analysis) -> tuple[dict[str, Table], tuple[tuple[str, str], ...]]:
    """Look for what makes right formulas mislead; also return people who share a scan and therefore a fold."""
    similarity = build_similarity(cohort, settings)
    pairs, findings, alike = check_pairs(cohort, similarity)
    findings += [
        *check_left_out(cohort),
        *check_seen(cohort, settings),
        *check_copies(cohort),
        *check_joins(cohort),
        *check_columns(cohort, settings),
    ]
    return {CHECK.name: tabulate_findings(findings), CHECK_PAIRS.name: pairs}, alike


def check_first(cohort: Cohort, settings: Settings) -> Cohort:
    """Check a cohort, write ``check`` and ``check_pairs``, and say what is more than a note."""
    folder = settings.results
    if cohort.joined.get("phenotypes"):
        say(f"{describe_join(cohort.joined)}.", settings)
    choices = {name: getattr(settings, name) for name in READ}
    own = Settings(settings.bids_dir, settings.output_dir, settings.level, **choices)
    finished, key = FinishedAnalyses(folder), analysis_key({"": cohort}, own)
    if not finished.has(CHECK.name, key):
        say(f"{CHECK.name} ...", settings)
        finished.forget(CHECK.name)
        tables, _ = check_cohort(cohort, settings)
        write_group_tables(folder, tables, settings)
        finished.add(CHECK.name, key, tables)
    for row in read_table(folder / "check.tsv").to_dict("records"):
        if row["level"] != NOTE:
            say(f"{CHECK.name}: {row['finding']} {row['remedy']}", settings)
    pairs = read_table(folder / "check_pairs.tsv")
    same = pairs[pairs["verdict"] == SAME] if len(pairs) else pairs
    alike = dict.fromkeys(zip(same["participant_id"].astype(str), same["other"].astype(str), strict=True))
    return dataclasses.replace(cohort, alike=tuple(alike))
