"""The check of a cohort, before the first model: its findings, who belongs in one fold, and what everyone reads."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.features import FC_POWER, build_representations
from fcpower_bids.analyses.targets import (
    AMOUNTS,
    SIGNIFICANT,
    describe_handling,
    find_site_shares,
    held_out_column,
    person_amounts,
    read_targets,
    site_columns,
)
from fcpower_bids.cohort.assembly import describe_join
from fcpower_bids.cohort.inclusion import TARGET, name_some
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.data_checks import (
    COPIED,
    EXPONENT,
    NEITHER,
    Pair,
    PairScores,
    aligned_correlation,
    misnamed_scans,
    rank_association,
    repeated_extremes,
    strange_pairs,
    swapped_scans,
)
from fcpower_bids.outputs.group import FinishedAnalyses, write_group_tables
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.parallel import say
from fcpower_bids.records import Cohort, Table
from fcpower_bids.reports.page import count, look_up
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings

ALARM, LOOK, NOTE = "alarm", "look", "note"
"""The scores would mislead; a person should look; nothing wrong, but worth knowing."""

CHECK = TABLES["check"]
Finding = Mapping[str, Any]
"""A row of ``check.tsv``."""


def find(check: str, level: str, n: int, value: float, words: str = "", /, **gaps: Any) -> Finding:
    """Put a finding into the words of ``data/report/check.yml``, those of its own name unless others are named."""
    texts = look_up("check", words or check)
    filled = (texts[part].format(n=n, value=value, **gaps) for part in ("finding", "consequence", "remedy"))
    return dict(zip(CHECK.columns, (check, level, int(n), float(value), *filled), strict=True))


def check_joins(cohort: Cohort) -> Iterator[Finding]:
    """People without phenotypes, and phenotypes without people."""
    counts = cohort.joined
    if not counts or not counts["phenotypes"]:
        return
    scanned, phenotypes, matched = (counts[name] for name in ("scanned", "phenotypes", "matched"))
    targets = [n for name, n in counts.items() if name.startswith("with ")]
    least, apart = min([matched, *targets]), scanned + phenotypes - 2 * matched
    if apart or least < matched:
        about = {"scanned": count(scanned, "person"), "phenotypes": phenotypes, "matched": matched, "least": least}
        more = " or more" * (len(set(targets)) > 1)
        yield find("scans and phenotypes", NOTE, apart, matched / scanned, **about, more=more)


FAMILY = re.compile(
    r"(family|fam|pedigree|sibship|twin_?pair|household)(_?(id|no|nr|number|code|label))?", re.IGNORECASE
)
MOST_OF_A_FAMILY = 5
"""On average; a column with larger groups is something else."""


def check_columns(cohort: Cohort, settings: Settings) -> Iterator[Finding]:
    """Hold every target against sites, length and motion, and look for codes among the values in use."""
    if cohort.phenotypes.empty:
        return
    table = cohort.phenotypes.set_axis(cohort.phenotypes.index.astype(str))
    targets = read_targets(table, cohort, settings.group)
    cut = [column for column, _ in settings.group.classes.values()]  # of which a class has two values left
    for name in dict.fromkeys(name for name in (*targets, *cut, *settings.group.covariates) if name in table):
        numbers = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        for value, n in repeated_extremes(numbers):
            people = "person" if n == 1 else "people"
            yield find("repeated extreme value", LOOK, n, value, name=name, people=people)
    for column in (
        str(name) for name in table if FAMILY.fullmatch(str(name)) and settings.group.family_column not in table
    ):
        sizes = table[column].dropna().value_counts()  # like undeclared families: a value of one's own, or of a few
        related = int(sizes[sizes > 1].sum())
        if related and len(sizes) >= len(table) / MOST_OF_A_FAMILY:
            yield find("families", LOOK, related, sizes.max(), column=column)
    held_out = held_out_column(cohort.folds, table, site_columns(table, settings.group))
    for share in find_site_shares(table, targets, settings.group):
        handled = describe_handling(share.column, held_out, settings.group)
        about = {"name": share.target, "column": share.column, "percent": 100 * share.share, "handled": handled}
        level, words = (NOTE, "handled site and target") if handled else (ALARM, "")
        yield find("site and target", level, share.n_sites, share.share, words, **about)
    amounts = person_amounts(cohort.scans).reindex(table.index)
    names = [name for name in AMOUNTS if amounts[name].nunique() > 1]
    for name, (target, values) in itertools.product(names, targets.items()):
        association = rank_association(values, amounts[name].to_numpy(dtype=float))
        if association.p < SIGNIFICANT / (len(names) * len(targets)):
            kind = "motion and target" if name == "mean_fd" else "amount of data and target"
            level, words = (NOTE, f"removed {kind}") if name in settings.group.covariates else (LOOK, kind)
            yield find(
                kind, level, association.n, association.size, words, target=target, amount=AMOUNTS[name], name=name
            )


SAME, STRANGE, SWAPPED = "same scan", "place to look", "swapped sessions"
MISNAMED = "another name"
MOST_SERIES = 50
"""Pairs, the most alike first, whose series are read."""
ONE_SERIES = 0.4
"""Series that agree better than this are of one scan; independent ones stay below 0.2."""

CHECK_PAIRS = TABLES["check_pairs"]


def check_pairs(cohort: Cohort, similarity: FloatArray) -> tuple[Table, list[Finding]]:
    """Look for scans of different people that are one, and for exchanged and moved labels. Similarity (N, N)."""
    persons, sessions = (cohort.scans[name].astype(str).to_numpy() for name in ("participant_id", "session"))
    scores = PairScores(similarity, persons)
    same, strange, doubtful = strange_pairs(scores)
    agreement = _agreements(cohort, [*same, *strange]) | _agreements(cohort, doubtful)
    same += [pair for pair in (*strange, *doubtful) if agreement.get(pair, 0.0) > ONE_SERIES]
    swaps = swapped_scans(scores, sessions)
    crossed = [pair for swap in swaps for pair in swap]
    known = {row for pair in (*same, *crossed) for row in pair}
    moved = [pair for pair in misnamed_scans(scores) if pair[0] not in known]
    settled = {frozenset(pair) for pair in (*same, *crossed, *moved)}
    strange = [pair for pair in strange if frozenset(pair) not in settled]
    found = {SAME: same, SWAPPED: crossed, MISNAMED: moved, STRANGE: strange}
    rows = [
        (
            *(verdict, persons[i], sessions[i], persons[j], sessions[j], scores.similarity[i, j], scores.values[i, j]),
            agreement.get((i, j), np.nan),
        )
        for verdict, pairs in found.items()
        for i, j in pairs
    ]

    def about(pairs: list[Pair]) -> dict[str, str]:
        names = dict.fromkeys(f"{persons[i]} and {persons[j]}" for i, j in pairs)
        return {"named": name_some([*names]), "pairs": f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''}"}

    findings = []
    if same:
        people, highest = len({persons[row] for pair in same for row in pair}), max(scores.similarity[p] for p in same)
        findings.append(find(SAME, ALARM, len(same), highest, **about(same), people=people, of=len(set(persons))))
    if swaps:
        those = [f"{persons[i]} and {persons[k]} ({sessions[j]} or the other session)" for (i, j), (k, _) in swaps]
        (i, j), (k, m) = swaps[0]  # the clearest
        near, own = ((scores.values[one] + scores.values[two]) / 2 for one, two in (((i, j), (k, m)), ((i, m), (k, j))))
        named = list(dict.fromkeys(those))
        numbers = {"named": name_some(named), "crossed": near, "own": own}
        findings.append(find(SWAPPED, ALARM, len(named), near - own, **numbers))
    if moved:
        moves = [f"{persons[i]}{f' {sessions[i]}' * (sessions[i] != 'n/a')} as {persons[j]}" for i, j in moved]
        scans = f"{len(moved)} scan{'s are' if len(moved) > 1 else ' is'}"
        highest = max(scores.values[pair] for pair in moved)
        findings.append(find(MISNAMED, ALARM, len(moved), highest, scans=scans, named=name_some(moves)))
    if strange:
        highest = max(scores.values[pair] for pair in strange)
        findings.append(find("unusually alike", LOOK, len(strange), highest, **about(strange)))
    return Table(pd.DataFrame(rows, columns=list(CHECK_PAIRS.columns)), CHECK_PAIRS), findings


def _agreements(cohort: Cohort, pairs: list[Pair]) -> dict[Pair, float]:
    """How well the series of the most suspicious pairs agree, where they are stored."""
    agreements = {}
    for pair in pairs[:MOST_SERIES] if cohort.series else ():
        if len({round(cohort.repetition_times[row], 3) for row in pair}) == 1:
            runs, others = (cohort.series[row]() for row in pair)
            agreements[pair] = max(aligned_correlation(run, other) for run in runs for other in others)
    return agreements


def check_cohort(cohort: Cohort, settings: Settings) -> dict[str, Table]:
    """Look for what makes right formulas mislead."""
    chosen = settings.changed(alpha=EXPONENT, kernel="correlation")
    groups = [np.array([row]) for row in range(len(cohort.scans))]
    (representation,) = build_representations(cohort, groups, (FC_POWER,), chosen)
    pairs, findings = check_pairs(cohort, representation.similarity())
    excluded = cohort.excluded
    for reason in excluded.loc[excluded["what"] == TARGET, "reason"].astype(str):  # columns that look like targets
        sentence, _, remedy = reason.partition(". ")
        findings.append(find("not predicted", LOOK, 1, math.nan, said=sentence, remedy=remedy))
    copied = excluded[[COPIED in str(reason) and NEITHER in str(reason) for reason in excluded["reason"]]]
    if len(copied):  # scans that are one to the bit under the names of two people
        people = list(dict.fromkeys(copied["participant_id"].astype(str)))
        findings.append(find("copied scans", ALARM, len(copied), 1.0, named=name_some(people)))
    findings += [*check_joins(cohort), *check_columns(cohort, settings)]
    ranked = sorted(findings, key=lambda finding: (ALARM, LOOK, NOTE).index(finding["level"]))
    frame = pd.DataFrame(ranked, columns=list(CHECK.columns))
    return {CHECK.name: Table(frame, CHECK), CHECK_PAIRS.name: pairs}


def check_first(cohort: Cohort, settings: Settings) -> Cohort:
    """Check a cohort, write ``check`` and ``check_pairs``, and say what is more than a note."""
    folder = settings.results
    if cohort.joined.get("phenotypes"):
        say(f"{describe_join(cohort.joined)}.", settings)
    finished = FinishedAnalyses(folder)
    if not finished.has(CHECK.name):
        say(f"{CHECK.name} ...", settings)
        tables = check_cohort(cohort, settings)
        write_group_tables(folder, tables, settings)
        finished.add(CHECK.name, tables)
    for row in read_table(folder / "check.tsv").to_dict("records"):
        if row["level"] != NOTE:
            say(f"{CHECK.name}: {row['finding']} {row['remedy']}", settings)
    return dataclasses.replace(cohort, alike=people_alike(read_table(folder / "check_pairs.tsv")))


def people_alike(pairs: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    """People who share a scan, and therefore a fold."""
    same = pairs[pairs["verdict"] == SAME].astype(str)
    return tuple(dict.fromkeys(zip(same["participant_id"], same["other"], strict=True)))
