"""The check of the cohort comes before the first analysis; its tables, and what everyone should read of it."""

from __future__ import annotations

import dataclasses

from fcpower_bids.check.check import check_cohort
from fcpower_bids.check.findings import NOTE
from fcpower_bids.check.pairs import SAME
from fcpower_bids.cohort.people import describe_join
from fcpower_bids.outputs.group import CHECK, FinishedAnalyses, analysis_key, write_group_tables
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.progress import say
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings

READ = (
    *(
        "targets",
        "covariates",
        "site_column",
        "family_column",
        "preset",
        "representations",
        "sites",
    ),
    *("quiet", "nprocs", "random_seed"),
)
"""Choices that the check reads; others do not make it run again."""


def check_first(cohort: Cohort, settings: Settings) -> Cohort:
    """Check a cohort, write ``check`` and ``check_pairs``, and say what is more than a note."""
    folder = settings.results
    if cohort.joined.get("phenotypes"):
        say(f"{describe_join(cohort.joined)}.", settings)
    choices = {name: getattr(settings, name) for name in READ}
    own = Settings(settings.bids_dir, settings.output_dir, settings.level, **choices)
    finished, key = FinishedAnalyses(folder), analysis_key({"": cohort}, own)
    if not finished.has(CHECK, key):
        say(f"{CHECK} ...", settings)
        finished.forget(CHECK)
        tables, _ = check_cohort(cohort, settings)
        write_group_tables(folder, tables, settings)
        finished.add(CHECK, key, tables)
    for row in read_table(folder / "check.tsv").to_dict("records"):
        if row["level"] != NOTE:
            say(f"{CHECK}: {row['finding']} {row['remedy']}", settings)
    pairs = read_table(folder / "check_pairs.tsv")
    same = pairs[pairs["verdict"] == SAME] if len(pairs) else pairs
    alike = dict.fromkeys(zip(same["participant_id"].astype(str), same["other"].astype(str), strict=True))
    return dataclasses.replace(cohort, alike=tuple(alike))
