"""What was found about each target and about identification, decided once, and the sentences that say it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.analyses.baselines import FEWEST_PERMUTATIONS, SITE, Added, find_added
from fcpower_bids.analyses.evaluate import POOLED_MEAN, WITHIN_MEAN
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    missing,
    own_rows,
    percent,
    say_p,
    score_label,
    targets_of,
)
from fcpower_bids.reports.page import count, show_number

FOUND, NOT_FOUND, NOT_DECIDED, NOT_TESTED = "found", "not found", "not decided", "not tested"
UNDEFINED = "undefined"
"""No score, thus no p."""
FEW_PEOPLE = 100
"""Fewer get a caution."""
WORDS = {
    FOUND: "predicted better than chance",
    NOT_FOUND: "nothing was found",
    NOT_DECIDED: f"not decided, with fewer than {FEWEST_PERMUTATIONS} permutations (--permutations)",
    NOT_TESTED: "not tested against chance, without permutations (--permutations)",
    UNDEFINED: "not tested against chance, since no score is defined",
}
"""What is said of a target in a state, the most telling first."""


class Finding(NamedTuple):
    """The finding about one target."""

    target: str
    score: str  # ``r`` or ``auc``
    label: str  # that in words
    chance: float  # score of guessing
    # its rows of ``prediction_summary``, the best first: the smallest p, of equals the highest score
    summary: pd.DataFrame
    best: str  # name of the best representation
    is_pooled: bool  # whether the score of all predictions together leads, because single folds are small
    is_within: bool  # whether the score within sites leads, because these are held out
    tested: str  # the column of the scores that the permutations are about
    state: str  # whether the best of the permutation tests, corrected for representations and targets, is significant
    p: float  # that p; NaN where there was no test
    comparison: pd.Series | None  # the row of ``comparisons`` that sets FC^alpha against FC
    added: Added | None  # what the best representation adds to what is known without a scan
    site: Mapping[str, Any]  # ``Columns`` of sites it goes with, ``Score`` of them alone
    questions: int  # targets that were tested together


def find_targets(tables: GroupTables) -> list[Finding]:
    """Return what was found for every target, in the order of the tables."""
    summary, comparisons, baselines = (
        tables.rows(name) for name in ("prediction_summary", "comparisons", "prediction_baselines")
    )
    sites, findings = tables.facts("prediction").get("TargetsThatGoWithSites", {}), []
    asked = int(summary.loc[summary["p_max"].notna(), "target"].nunique())
    for target, part in summary.groupby("target", sort=False):
        name = str(target)
        score = "auc" if part["auc_pooled_mean"].notna().any() else "r"
        leading = f"{score}_{part['ranked_by'].iloc[0]}"
        ranked = part.sort_values(["p_max_targets", leading], ascending=[True, False], kind="stable")
        ranked = ranked.reset_index(drop=True)
        p, n_permutations = float(ranked["p_max_targets"].iloc[0]), ranked["n_permutations"].max()
        if missing(p):
            state = UNDEFINED if n_permutations > 0 or ranked[leading].isna().all() else NOT_TESTED
        else:
            few = n_permutations < FEWEST_PERMUTATIONS
            state = FOUND if p < SIGNIFICANT else NOT_DECIDED if few else NOT_FOUND
        pairs, known, site = own_rows(comparisons, name), own_rows(baselines, name), sites.get(name, {})
        pairs = pairs[(pairs["representation"] == "fc_power") & (pairs["reference"] == "fc")]
        if site:
            site = {**site, "Score": float(next(iter(known.loc[known["model"] == SITE, "value"]), math.nan))}
        best, within = str(ranked["representation"].iloc[0]), leading.endswith(WITHIN_MEAN)
        led_by = leading.endswith(POOLED_MEAN), within, leading if within else f"{score}_{POOLED_MEAN}"
        about = name, score, score_label(score), 0.5 if score == "auc" else 0.0, ranked, best, *led_by, state, p
        pair = pairs.iloc[0] if len(pairs) else None
        findings.append(Finding(*about, pair, find_added(baselines, name, best), site, asked))
    return findings


def known_people(tables: GroupTables) -> str:
    """``55 people``, or ``45 to 55 people``: with a known value of each target of the prediction; empty without one."""
    folds = tables.rows("prediction")
    if folds.empty:
        n = tables.facts("prediction").get("NumberOfPeople")
        return count(n, "person") if n else ""
    both = (folds["n_train"] + folds["n_test"]).groupby(folds["target"], sort=False).max()
    tested = folds.groupby(["target", "representation", "repeat"], sort=False)["n_test"].sum()
    known = np.maximum(both, tested.groupby("target", sort=False).max())
    low, high = int(known.min()), int(known.max())
    return f"{low:,} to {count(high, 'person')}" if low < high else count(high, "person")


# The answer for a target


def describe_finding(finding: Finding, tables: GroupTables) -> list[str]:
    """Say in plain sentences what was found for a target, starting with the answer."""
    sentences = [f"{answer(finding, tables)}."]
    if finding.added is not None:
        clause = finding.added.clause(tables.title(finding.best))
        sentences.append(f"On the folds of the first repeat, {finding.label}: {clause}.")
    if finding.comparison is not None:
        sentences.append(describe_difference(finding.comparison, finding, tables))
    return sentences


def answer(finding: Finding, tables: GroupTables) -> str:
    """The best representation and its score, its test against chance, and what follows, in one line."""
    score, label = float(finding.summary[finding.tested].iloc[0]), finding.label
    n = int(finding.summary["n_permutations"].max())
    if missing(score):
        return f"No score is defined (constant predictions or one class): {finding.target} cannot be judged"
    needed = float(finding.summary["score_needed"].iloc[0])
    tests = (int(finding.summary["p_max"].notna().sum()), "representation"), (finding.questions, "target")
    corrected = " and ".join(count(number, what) for number, what in tests if number > 1)
    about = [
        "within sites that are held out" if finding.is_within else "all predictions together",
        f"chance stays below {needed:.2f} in 95 of 100 cohorts" if needed < 1 else "",
        "of so few people no score is high enough to be found" if needed >= 1 else "",
        f"corrected for {corrected}" if corrected else "",
        count(n, "permutation") + (", no smaller p is possible" if finding.p <= 1 / (1 + n) else ""),
    ]
    p = "" if missing(finding.p) else f", {say_p(finding.p)}"
    told = "; ".join(text for text in about[: len(about) if p else 1] if text)
    return f"{label} {score:.2f} with {tables.title(finding.best)}{p} ({told}): {_consequence(finding)}"


def _consequence(finding: Finding) -> str:
    if not finding.site or finding.state not in (FOUND, NOT_FOUND):
        return WORDS[finding.state]
    if finding.state == FOUND and finding.added is not None and not finding.added.adds:
        return "better than chance within sites, but nothing beyond what is known without a scan was shown"
    names = ", ".join(f"'{name}'" for name in finding.site["Columns"])
    begin = "more than" if finding.state == FOUND else "nothing beyond"
    alone = f"; the site ({names}) alone gives {show_number(finding.site['Score'])}"
    return f"{begin} the site was shown{'' if missing(finding.site['Score']) else alone}"


def describe_difference(row: pd.Series, finding: Finding, tables: GroupTables) -> str:
    """Say what a row of ``comparisons`` found by the corrected resampled t-test."""
    later, earlier = tables.title(row["representation"]), tables.title(row["reference"])
    p = float(row["p_two_sided"])
    if missing(p):
        return f"{later} and {earlier} could not be compared."
    where = ", within sites that are held out" if finding.is_within else ""
    numbers = (
        f"difference in {finding.label} over folds {row['mean_difference']:+.2f}, 95 % CI {row['ci_low']:+.2f} to "
        f"{row['ci_high']:+.2f}, corrected resampled t, {say_p(p)}"
    )
    scores = finding.summary.set_index("representation")[f"{finding.score}_{POOLED_MEAN}"]
    of_all = scores.get(row["representation"], math.nan) - scores.get(row["reference"], math.nan)
    opposite = finding.is_pooled and of_all * row["mean_difference"] < 0
    if p < SIGNIFICANT and not opposite:
        better = "better" if row["mean_difference"] > 0 else "worse"
        return f"{later} is {better} than {earlier}{where} ({numbers})."
    return f"No evidence that {later} and {earlier} differ{where} ({numbers})."


# What limits the predictions


def prediction_cautions(findings: Sequence[Finding], tables: GroupTables) -> Iterator[str]:
    """Say what limits the predictions: few people, penalties at the edge of the grid, folds without a score."""
    folds = tables.rows("prediction")
    if not findings or folds.empty:
        return
    n = int(tables.facts("prediction").get("NumberOfPeople") or (folds["n_train"] + folds["n_test"]).max())
    if n < FEW_PEOPLE:
        yield f"Only {count(n, 'person')}: the scores below are very uncertain."
    edge = float((folds["at_grid_edge"].astype(str) == "true").mean())
    if edge > 0.5:
        yield f"In {percent(edge)} of the folds the penalty is at an end of the grid: the best one may lie outside."
    skipped = sum(int(own_rows(folds, finding.target)[finding.score].isna().sum()) for finding in findings)
    if skipped:
        yield f"The score is not defined in {skipped} of {len(folds)} folds (constant values or one class); left out."


# Identification


def rank_identification(tables: GroupTables) -> pd.DataFrame:
    """One row of ``identification`` per representation, the best first; over all sessions where there are several."""
    rows = tables.rows("identification")
    whole = rows[rows["first_session"].astype(str) == "all"]
    ranked = (whole if len(whole) else rows).drop_duplicates("representation")
    return ranked.sort_values("accuracy", ascending=False, kind="stable")


def describe_identification(tables: GroupTables) -> list[str]:
    """Say how often each representation finds the person, the best first, and whether two of them differ."""
    sentences = []
    for _, row in rank_identification(tables).iterrows():
        within = ""
        if not missing(row.get("chance_within")):
            within = (
                f", within the own site {percent(row['chance_within'], 1)}; among people of the own site alone it "
                f"finds {percent(row['accuracy_within'])}"
            )
        sentences.append(
            f"{tables.title(row['representation'])} finds the person in {percent(row['accuracy'])} of "
            f"{row['n_searches']:.0f} searches (95 % CI {percent(row['ci_low'])} to {percent(row['ci_high'])} over "
            f"people; chance {percent(row['chance'], 1)}{within}; permutation {say_p(float(row['p_permutation']))})."
        )
    sentences += [_describe_searches(row, tables) for _, row in tables.rows("identification_comparisons").iterrows()]
    return sentences


def _describe_searches(row: pd.Series, tables: GroupTables) -> str:
    """Say whether two representations find other people."""
    later, earlier = tables.title(row["representation"]), tables.title(row["reference"])
    tested = (
        f"{count(row['only_representation'], 'search', 'searches')} only {later} gets right, "
        f"{row['only_reference']:.0f} only {earlier}; exact sign flips over people {say_p(float(row['p_people']))}"
    )
    if row["p_people"] < SIGNIFICANT:
        return f"{later} identifies {'better' if row['difference'] > 0 else 'worse'} than {earlier} ({tested})."
    return f"No evidence that {later} and {earlier} differ ({tested})."


# Many entries against one: transforms, controls, parcellations

SAME = "not distinguishable"
RANDOM = "random_filter"


def judge(row: Mapping[Any, Any]) -> str:
    """Say in a word whether a difference is one."""
    if not row["p_holm"] < SIGNIFICANT or row["mean_difference"] == 0:
        return SAME
    return "better" if row["mean_difference"] > 0 else "worse"


def tally(rows: pd.DataFrame) -> str:
    """``none is better, 2 are worse, 11 are not distinguishable``."""
    words = [judge(row) for row in rows.to_dict("records")]
    counted = [(words.count(word), word) for word in ("better", "worse", SAME)]
    return ", ".join(f"{number or 'none'} {'is' if number < 2 else 'are'} {word}" for number, word in counted)


def say_compared(name: str, noun: str, tables: GroupTables) -> Iterator[str]:
    """Say of every target how many entries differ from FC^alpha."""
    frame, reference = tables.rows(name), tables.title("fc_power")
    frame = frame[frame["control"] != RANDOM] if "control" in frame else frame
    for target in targets_of(frame):
        tested = own_rows(frame, target).dropna(subset=["mean_difference"])
        tested = tested[tested["representation"] != tested["reference"]]
        sentence = f"of {count(len(tested), noun)} compared with {reference}, {tally(tested)}"
        yield f"{target}: {sentence if len(tested) else f'no {noun} could be compared with {reference}'}."
