"""The check of a cohort, before the first model: its findings, who belongs in one fold, and what everyone reads."""

from __future__ import annotations

import dataclasses

from fcpower_bids.check.columns import check_columns
from fcpower_bids.check.findings import (
    CHECK,
    LOOK,
    NOTE,
    Finding,
    check_damage,
    check_seen,
    tabulate_findings,
)
from fcpower_bids.check.pairs import CHECK_PAIRS, SAME, build_similarity, check_copies, check_pairs
from fcpower_bids.cohort.inclusion import TARGET
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
    """Look for what makes right formulas mislead."""
    similarity = build_similarity(cohort, settings)
    pairs, findings, alike = check_pairs(cohort, similarity)
    findings += [  # columns that look like targets and are none
        Finding("not predicted", LOOK, 1, float("nan"), f"{said}.", "It has no score.", remedy)
        for reason in cohort.excluded.loc[cohort.excluded["what"] == TARGET, "reason"].astype(str)
        for said, _, remedy in [reason.partition(". ")]
    ]
    findings += [
        *check_seen(cohort, settings),
        *check_copies(cohort),
        *check_damage(cohort),
        *_joins(cohort),
        *check_columns(cohort, settings),
    ]
    return {CHECK.name: tabulate_findings(findings), CHECK_PAIRS.name: pairs}, alike


def find_alike(cohort: Cohort, settings: Analysis) -> tuple[tuple[str, str], ...]:
    """Return people who share a scan and therefore a fold."""
    return check_cohort(cohort, settings)[1]


def _joins(cohort: Cohort) -> list[Finding]:
    """People without phenotypes, and phenotypes without people."""
    counts = cohort.joined
    if not counts or not counts["phenotypes"]:
        return []
    lost = counts["scanned"] - counts["matched"]
    without = counts["phenotypes"] - counts["matched"]
    targets = [n for name, n in counts.items() if name.startswith("with ")]
    found = []
    if lost or without or min([counts["matched"], *targets]) < counts["matched"]:
        found.append(
            Finding(
                "scans and phenotypes",
                NOTE,
                lost + without,
                counts["matched"] / counts["scanned"],
                f"{counts['scanned']} people with scans, {counts['phenotypes']} in the phenotype tables, "
                f"{counts['matched']} in both.",
                f"Prediction sees {min([counts['matched'], *targets])} people{' or more' * (len(set(targets)) > 1)}.",
                "If more should match, compare the participant_id of both: the table 'excluded' names them.",
            )
        )
    if counts.get("renamed"):
        found.append(
            Finding(
                "participant_id",
                NOTE,
                counts["renamed"],
                float("nan"),
                f"{counts['renamed']} ids of the phenotype tables match scans only without zeros, capitals or signs.",
                "They were matched without these, where that is unique on both sides.",
                "Store participant_id as text.",
            )
        )
    return found


# --- Before the first analysis --------------------------------------------------------------------------------------


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
