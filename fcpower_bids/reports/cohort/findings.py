"""What was found about each target and about identification, decided once, and the sentences that say it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from fcpower_bids.analyses.baselines import SITE, Added, find_added
from fcpower_bids.analyses.evaluate import FOLD_MEAN, POOLED_MEAN, WITHIN_MEAN
from fcpower_bids.analyses.features import EMBEDDING
from fcpower_bids.core.differences import POWER
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    count,
    count_people,
    missing,
    own_rows,
    percent,
    say_p,
    score_label,
)

FOUND, NOT_FOUND, NOT_DECIDED, NOT_TESTED = "found", "not found", "not decided", "not tested"
ONLY_SEEN = "only seen"
"""Every representation is of an encoder that was trained on these people."""
FEWEST_PERMUTATIONS = 20
"""Fewer cannot give a p below 0.05."""
FEW_PEOPLE, FEW_FOLDS = 100, 10
"""Fewer people or distinct folds get a caution."""
FEWEST_DIFFERENT = 6
"""People for whom sign flips can give a p below 0.05: 2 / 2^6 is, 2 / 2^5 is not."""


@dataclass(frozen=True, eq=False)
class Finding:
    """The finding about one target."""

    target: str
    score: str  # ``r`` or ``auc``
    summary: pd.DataFrame  # its rows of ``prediction_summary`` without encoders trained on these people, the best first
    leading: str  # the column of ``summary`` that says which is the best
    state: str  # whether the best of the permutation tests, corrected for representations and targets, is significant
    p: float  # that p; NaN where there was no test
    comparison: pd.Series | None  # the row of ``comparisons`` that sets FC^alpha against FC
    added: Added | None = None  # what the best representation adds to what is known without a scan
    site: Mapping[str, Any] = field(default_factory=dict)  # ``Columns`` of sites it goes with, ``Score`` of them alone
    questions: int = 1  # targets that were tested together

    @property
    def label(self) -> str:
        """The score in words."""
        return score_label(self.score)

    @property
    def chance(self) -> float:
        """Score of guessing."""
        return 0.5 if self.score == "auc" else 0.0

    @property
    def best(self) -> str:
        """Name of the best representation."""
        return str(self.summary["representation"].iloc[0])

    @property
    def is_pooled(self) -> bool:
        """Whether the score of all predictions together leads, because single folds are small."""
        return self.leading.endswith(POOLED_MEAN)

    @property
    def is_within(self) -> bool:
        """Whether the score within sites leads, because these are held out."""
        return self.leading.endswith(WITHIN_MEAN)

    def pooled(self, representation: object) -> float:
        """Score of all predictions together; NaN without the representation."""
        rows = self.summary[self.summary["representation"] == str(representation)]
        return float(rows[f"{self.score}_{POOLED_MEAN}"].iloc[0]) if len(rows) else math.nan

    def beside_site(self, so: str) -> str:
        """``r 0.75 over all predictions together, and the site ('site') alone gives 0.84``."""
        names = ", ".join(f"'{name}'" for name in self.site["Columns"])
        alone = f"the site ({names}) alone gives {self.site['Score']:.2f}"
        if missing(self.site["Score"]):
            alone = f"it goes with the site ({names})"
        return f"{self.label} {self.pooled(self.best):.2f} over all predictions together, {so} {alone}"


def find_targets(tables: GroupTables) -> list[Finding]:
    """Return what was found for every target, in the order of the tables."""
    summary, comparisons, baselines = (
        tables.rows(name) for name in ("prediction_summary", "comparisons", "prediction_baselines")
    )
    sites, findings = tables.facts("prediction").get("TargetsThatGoWithSites", {}), []
    asked = int(summary.loc[summary["p_max"].notna(), "target"].nunique()) if len(summary) else 0
    for target, part in summary.groupby("target", sort=False) if len(summary) else ():
        name = str(target)
        score = "auc" if part["auc_pooled_mean"].notna().any() else "r"
        leading, seen = f"{score}_{part['ranked_by'].iloc[0]}", seen_rows(part)
        if seen.all():
            findings.append(Finding(name, score, part.reset_index(drop=True), leading, ONLY_SEEN, math.nan, None))
            continue
        ranked = part[~seen].sort_values(leading, ascending=False, na_position="last", kind="stable")
        best, few = float(ranked["p_max_targets"].min()), ranked["n_permutations"].max() < FEWEST_PERMUTATIONS
        state = FOUND if best < SIGNIFICANT else NOT_TESTED if missing(best) else NOT_DECIDED if few else NOT_FOUND
        pairs, known = own_rows(comparisons, name), own_rows(baselines, name)
        if len(pairs):
            pairs = pairs[(pairs["representation"] == "fc_power") & (pairs["reference"] == "fc")]
        site = sites.get(name, {})
        if site:
            alone = known.loc[known["model"] == SITE, "value"] if len(known) else ()
            site = {**site, "Score": float(next(iter(alone), math.nan))}
        added = find_added(baselines, name, str(ranked["representation"].iloc[0]))
        pair = pairs.iloc[0] if len(pairs) else None
        ranked = ranked.reset_index(drop=True)
        findings.append(Finding(name, score, ranked, leading, state, best, pair, added, site, asked))
    return findings


def known_people(tables: GroupTables) -> str:
    """``55 people``, or ``45 to 55 people``: with a known value of each target of the prediction; empty without one."""
    folds = tables.rows("prediction")
    if folds.empty:
        n = tables.facts("prediction").get("NumberOfPeople")
        return count_people(n) if n else ""
    both = (folds["n_train"] + folds["n_test"]).groupby(folds["target"], sort=False).max()
    tested = folds.groupby(["target", "representation", "repeat"], sort=False)["n_test"].sum()
    known = np.maximum(both, tested.groupby("target", sort=False).max())
    low, high = int(known.min()), int(known.max())
    return f"{low:,} to {count_people(high)}" if low < high else count_people(high)


# The answer for a target


def describe_finding(finding: Finding, tables: GroupTables) -> list[str]:
    """Say in plain sentences what was found for a target, starting with the answer."""
    if finding.state == ONLY_SEEN:
        return describe_seen_prediction(finding.target, tables)
    if missing(finding.summary[finding.leading].iloc[0]):
        where = "of all predictions together" if finding.is_pooled else "in any fold"
        where = "within any site" if finding.is_within else where
        return [f"The score is not defined {where}: {finding.target} cannot be judged."]
    sentences = [_answer(finding), _highest(finding, tables)]
    if finding.added is not None:
        clause = finding.added.clause(tables.title(finding.best))
        sentences.append(f"On the folds of the first repeat, {finding.label}: {clause}.")
    if finding.comparison is not None:
        sentences.append(describe_difference(finding.comparison, finding, tables))
    return sentences + describe_seen_prediction(finding.target, tables)


def _highest(finding: Finding, tables: GroupTables) -> str:
    best, label = finding.summary.iloc[0], finding.label
    mean, pooled, sd = (float(best[f"{finding.score}_{key}"]) for key in (FOLD_MEAN, POOLED_MEAN, "fold_sd"))
    spread, text = "n/a" if missing(sd) else f"{sd:.2f}", f"Highest score: {tables.title(finding.best)},"
    if finding.is_within:
        within = f"{text} {label} within sites that are held out {best[finding.leading]:.2f}"
        return f"{within}; all predictions together, offsets of sites included, {pooled:.2f}."
    if not finding.is_pooled:
        over = f"mean {label} over {best['n_folds']:.0f} folds {mean:.2f} (SD {spread})"
        return f"{text} {over}; all predictions together {pooled:.2f}."
    text = f"{text} {label} of all predictions together {pooled:.2f}"
    if missing(mean):
        return f"{text}; single folds have none."
    return f"{text}; the mean over {best['n_folds']:.0f} small folds, {mean:.2f} (SD {spread}), is mostly noise."


def _answer(finding: Finding) -> str:
    tests = (int(finding.summary["p_max"].notna().sum()), "representation"), (finding.questions, "target")
    text = " and ".join(count(number, what) for number, what in tests if number > 1)
    corrected = f", corrected for {text}" if text else ""
    n = int(finding.summary["n_permutations"].max())
    smallest = ", the smallest that so many can give" if finding.p <= 1 / (1 + n) else ""
    permuted = f"permutation {say_p(finding.p)}{corrected}, {n:,} permutations{smallest}"
    if finding.state == NOT_TESTED:
        return "Not tested against chance: no permutations were run (--permutations)."
    if finding.state == NOT_DECIDED:
        return (
            f"Not decided: {n} permutations cannot give a p below {SIGNIFICANT:g} ({permuted}); {FEWEST_PERMUTATIONS} "
            "would do, 1,000 are better (--permutations)."
        )
    if finding.site and finding.state == FOUND and finding.added is not None and not finding.added.adds:
        return f"Better than chance within sites ({permuted}); nothing beyond what is known without a scan was shown."
    if finding.site:
        begin, joint = ("More than", "where") if finding.state == FOUND else ("Nothing beyond", "but")
        return f"{begin} the site was shown: {finding.beside_site(joint)} (within sites, {permuted})."
    if finding.state == FOUND:
        return f"Predicted better than chance ({permuted})."
    needed = float(finding.summary["score_needed"].max())
    where = "within sites" if finding.is_within else "over all predictions together"
    text = f"Nothing was found: no representation predicts it detectably better than chance ({permuted})."
    if needed >= 1:
        return f"{text} With so few people no {finding.label} is high enough to be found."
    return f"{text} The threshold was an observed {finding.label} of {needed:.2f} {where}."


def describe_difference(row: pd.Series, finding: Finding, tables: GroupTables) -> str:
    """Say what a row of ``comparisons`` found by the corrected resampled t-test."""
    later, earlier = tables.title(row["representation"]), tables.title(row["reference"])
    p = float(row["p_two_sided"])
    if missing(p):
        return f"{later} and {earlier} could not be compared."
    where = ", within sites that are held out" if finding.is_within else ""
    both = f"{later} and {earlier} differ{where}"
    of_all = finding.pooled(row["representation"]), finding.pooled(row["reference"])
    small = finding.is_pooled and not any(map(missing, of_all))
    numbers = (
        f"difference in {finding.label} over {'small ' * small}folds {row['mean_difference']:+.2f}, 95 % CI "
        f"{row['ci_low']:+.2f} to {row['ci_high']:+.2f}, corrected resampled t, {say_p(p)}"
    )
    if small:
        numbers = f"{finding.label} of all predictions together {of_all[0]:.2f} against {of_all[1]:.2f}; {numbers}"
    if small and p < SIGNIFICANT and (of_all[0] - of_all[1]) * row["mean_difference"] < 0:
        opposite = "all predictions together and single folds point in opposite directions"
        return f"It is not clear whether {both}: {opposite} ({numbers})."
    if p < SIGNIFICANT:
        better = "better" if row["mean_difference"] > 0 else "worse"
        return f"{later} is {better} than {earlier}{where} ({numbers})."
    return f"No evidence that {both} ({numbers}); {describe_power((row['ci_high'] - row['ci_low']) / 2, 2)}."


def describe_power(needed: float, digits: int, unit: str = "") -> str:
    """Half of a 95 % interval as the observed threshold, and the true difference that passes it in 80 of 100."""
    true = needed * (1 - POWER / special.ndtri(SIGNIFICANT / 2))
    return (
        f"the threshold was an observed difference of {needed:.{digits}f}{unit}, and a true one of {true:.{digits}f}"
        f"{unit} is found in 80 of 100 cohorts"
    )


# What limits the predictions


def smallest_correlation(n_people: int) -> float:
    """Smallest |r| that is significant (two-sided, 0.05) for a single correlation over so many people."""
    if n_people < 4:
        return 1.0
    t = float(special.stdtrit(n_people - 2, 1 - SIGNIFICANT / 2))
    return t / math.sqrt(n_people - 2 + t**2)


def prediction_cautions(findings: Sequence[Finding], tables: GroupTables) -> Iterator[str]:
    """Say what limits the predictions: few people, small folds, penalties at the edge, skipped folds."""
    folds, comparisons = tables.rows("prediction"), tables.rows("comparisons")
    if not findings or folds.empty:
        return
    n = int(tables.facts("prediction").get("NumberOfPeople") or (folds["n_train"] + folds["n_test"]).max())
    if n < FEW_PEOPLE:
        yield (
            f"Only {count_people(n)}: even without any cross-validation a single correlation is significant from "
            f"{smallest_correlation(n):.2f} on, and the scores below are very uncertain."
        )
    if tested := small_folds(findings, tables):
        yield (
            f"Test folds of {tested}: the r of a single fold is mostly noise (with two people it can only be 1 or -1). "
            "The score of all predictions together leads. Where there is nothing to predict it lies below "
            "chance: a negative r is no relation turned round."
        )
    if not comparisons.empty and comparisons["n_distinct"].min() < FEW_FOLDS:
        n = int(comparisons["n_distinct"].min())
        yield f"Only {count(n, 'distinct test set')}: comparisons rest on very little evidence."
    edge = float((folds["at_grid_edge"].astype(str) == "true").mean())
    if edge > 0.5:
        yield (
            f"In {percent(edge)} of the folds the selected penalty is the smallest or the largest of the grid: the "
            "best one may lie outside."
        )
    skipped = sum(int(own_rows(folds, finding.target)[finding.score].isna().sum()) for finding in findings)
    if skipped:
        yield f"The score is not defined in {skipped} of {len(folds)} folds (constant values or one class); left out."


def small_folds(findings: Sequence[Finding], tables: GroupTables) -> str:
    """Say of how many people the folds are that are too small to be scored one by one; nothing where none are."""
    folds = tables.rows("prediction")
    small = [finding.target for finding in findings if finding.is_pooled] if len(folds) else []
    if not small:
        return ""
    sizes = folds.loc[folds["target"].astype(str).isin(small), "n_test"]
    low, high = int(sizes.min()), int(sizes.max())
    return count_people(low) if low == high else f"{low} to {high} people"


# Identification


def unseen_best(tables: GroupTables, seen: bool = False) -> pd.DataFrame:
    """One row of ``identification`` per representation, the best first, of people that no encoder was trained on.

    Over all sessions where there are several. `seen`: those of encoders that were.
    """
    rows = tables.rows("identification")
    if rows.empty:
        return rows
    whole = rows[rows["first_session"].astype(str) == "all"]
    ranked = (whole if len(whole) else rows).drop_duplicates("representation")
    ranked = ranked.sort_values("accuracy", ascending=False, kind="stable")
    return ranked[seen_rows(ranked) == seen]


def describe_identification(tables: GroupTables) -> list[str]:
    """Say how often each representation finds the person, the best first, and whether two of them differ."""
    sentences = []
    for _, row in unseen_best(tables).iterrows():
        within = ""
        if not missing(row.get("chance_within")):
            within = (
                f", within the own site {percent(row['chance_within'], 1)}; among people of the own site alone it "
                f"finds {percent(row['accuracy_within'])}"
            )
        trained = ""
        if str(row["representation"]).startswith(EMBEDDING) and "n_trained" in row:
            trained = " Its encoder was trained on none of these people."
            if missing(row["n_trained"]):
                trained = " The people that its encoder was trained on are not known."
        sentences.append(
            f"{tables.title(row['representation'])} finds the person in {percent(row['accuracy'])} of "
            f"{row['n_searches']:.0f} searches (95 % CI {percent(row['ci_low'])} to {percent(row['ci_high'])} over "
            f"people; chance {percent(row['chance'], 1)}{within}; permutation {say_p(float(row['p_permutation']))})."
            + trained
        )
    sentences += [_describe_seen_identification(row, tables) for _, row in unseen_best(tables, seen=True).iterrows()]
    names = seen_names(tables)
    for _, row in tables.rows("identification_comparisons").iterrows():
        if names.isdisjoint({row["representation"], row["reference"]}):
            sentences.append(_describe_searches(row, tables))
    return sentences


def _describe_searches(row: pd.Series, tables: GroupTables) -> str:
    """Say whether two representations find other people."""
    later, earlier = tables.title(row["representation"]), tables.title(row["reference"])
    tested = (
        f"{count(int(row['only_representation']), 'search', 'searches')} only {later} gets right, "
        f"{row['only_reference']:.0f} only {earlier}; exact sign flips over people {say_p(float(row['p_people']))}"
    )
    if row["only_representation"] + row["only_reference"] < FEWEST_DIFFERENT:
        return (
            f"No evidence that {later} and {earlier} differ ({tested}); {FEWEST_DIFFERENT} people at least must differ "
            f"for a p below {SIGNIFICANT:g}."
        )
    if row["p_people"] >= SIGNIFICANT:
        needed = 100 * (row["ci_high"] - row["ci_low"]) / 2
        return f"No evidence that {later} and {earlier} differ ({tested}); {describe_power(needed, 0, ' points')}."
    return f"{later} identifies {'better' if row['difference'] > 0 else 'worse'} than {earlier} ({tested})."


# Representations whose encoder was trained on the people that they describe


def seen_rows(rows: pd.DataFrame) -> pd.Series:
    """Which rows of a summary are of an encoder that was trained on people in them."""
    if "n_trained" not in rows:
        return pd.Series(False, index=rows.index)
    return rows["n_trained"].fillna(0) > 0


def seen_names(tables: GroupTables) -> set[str]:
    """Representations of the prediction or the identification whose encoder was trained on people there."""
    parts = [tables.rows(name) for name in ("prediction_summary", "identification")]
    return {str(name) for rows in parts if len(rows) for name in rows.loc[seen_rows(rows), "representation"]}


def _describe_seen_identification(row: pd.Series, tables: GroupTables) -> str:
    """One sentence instead of the score."""
    return (
        f"{tables.title(row['representation'])} is no finding here: its encoder was trained on "
        f"{row['n_trained']:.0f} of these {row['n_people']:.0f} people ({percent(row['accuracy'])} of the searches "
        "find the person)."
    )


def describe_seen_prediction(target: str, tables: GroupTables) -> list[str]:
    """One sentence for every such representation of a target."""
    rows = own_rows(tables.rows("prediction_summary"), target)
    return [
        f"{tables.title(row['representation'])} is no finding here: its encoder was trained on "
        f"{row['n_trained']:.0f} of these people."
        for _, row in (rows[seen_rows(rows)].iterrows() if len(rows) else ())
    ]
