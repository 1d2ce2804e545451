"""The check of a cohort, before the first model: its findings, and who belongs in one fold."""

from __future__ import annotations

import numpy as np

from fcpower_bids.analyses.check.columns import check_columns
from fcpower_bids.analyses.check.finding import CHECK, NOTE, Finding, name_some, tabulate_findings
from fcpower_bids.analyses.check.pairs import CHECK_PAIRS, build_similarity, check_pairs
from fcpower_bids.analyses.check.recognition import check_recognition
from fcpower_bids.analyses.check.seen import check_seen
from fcpower_bids.analyses.engine.connectomes import combine_scans
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Analysis

NEGATIVE = -1e-6
"""Eigenvalues of a correlation matrix that are lower are no rounding."""


def check_cohort(cohort: Cohort, settings: Analysis) -> tuple[dict[str, Table], tuple[tuple[str, str], ...]]:
    """Look for what makes right formulas mislead.

    Parameters
    ----------
    cohort : Cohort
    settings : Analysis
        Targets, covariates, site column.

    Returns
    -------
    tables : dict of str to Table
        ``check`` (one row per finding) and ``check_pairs`` (one row per suspicious pair of scans).
    alike : tuple of (str, str)
        People who share a scan and therefore a fold.
    """
    similarity = build_similarity(cohort, settings)
    pairs, findings, alike = check_pairs(cohort, similarity)
    findings += [
        *check_seen(cohort, settings),
        *_joins(cohort),
        *check_columns(cohort, settings),
        *check_recognition(cohort, similarity, settings),
        *_negative(cohort, settings),
    ]
    return {CHECK.name: tabulate_findings(findings), CHECK_PAIRS.name: pairs}, alike


def _joins(cohort: Cohort) -> list[Finding]:
    """People without phenotypes, and phenotypes without people."""
    counts = cohort.joined
    if not counts or not counts["phenotypes"]:
        return []
    lost = counts["scanned"] - counts["matched"]
    without = counts["phenotypes"] - counts["matched"]
    found = []
    if lost or without:
        found.append(
            Finding(
                "scans and phenotypes",
                NOTE,
                lost + without,
                counts["matched"] / counts["scanned"],
                f"{counts['scanned']} people with scans, {counts['phenotypes']} in the phenotype tables, "
                f"{counts['matched']} in both.",
                f"Prediction sees {counts['matched']} people.",
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
                f"{counts['renamed']} participant_id of the phenotype tables match scans only without leading zeros.",
                "They were matched by their number, which is unique on both sides.",
                "Store participant_id as text.",
            )
        )
    return found


def _negative(cohort: Cohort, settings: Analysis) -> list[Finding]:
    """Averages of several scans that are no correlation matrices."""
    persons = cohort.scans["participant_id"].astype(str)
    groups = [np.flatnonzero(persons == name) for name in sorted(set(persons))]
    averaged = cohort.scans["combination"].astype(str) == "average" if "combination" in cohort.scans else persons == ""
    suspect = [rows for rows in groups if len(rows) > 1 or averaged.iloc[rows].any()]
    if not suspect:
        return []
    connectomes = combine_scans(cohort, suspect, settings)
    lowest = np.array([np.linalg.eigvalsh(connectomes.connectome(unit))[0] for unit in range(len(suspect))])
    n = int((lowest < NEGATIVE).sum())
    if not n:
        return []
    names = [str(persons.iloc[suspect[unit][0]]) for unit in np.argsort(lowest)[:n]]
    return [
        Finding(
            "negative eigenvalues",
            NOTE,
            n,
            float(lowest.min()),
            f"The connectomes of {n} people are averages with negative eigenvalues (lowest {lowest.min():.2f}; "
            f"{name_some(names)}).",
            "No series has such a connectome; FC^alpha leaves these directions out.",
            "Put the scans one after the other instead: --combine-runs concat.",
        )
    ]
