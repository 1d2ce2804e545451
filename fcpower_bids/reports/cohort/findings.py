"""Findings about each target, decided once for the verdict and for the sections."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from fcpower_bids.analyses.baselines import SITE, Added, find_added
from fcpower_bids.analyses.evaluate import FOLD_MEAN, OF_CLASSES, POOLED_MEAN, SPREAD, WITHIN_MEAN
from fcpower_bids.core.differences import POWER
from fcpower_bids.reports.cohort.pretraining_overlap import describe_seen_prediction, seen_rows
from fcpower_bids.reports.cohort.tables import SIGNIFICANT, GroupTables, count, missing, percent, say_p

FOUND, NOT_FOUND, NOT_DECIDED, NOT_TESTED = "found", "not found", "not decided", "not tested"
ONLY_SEEN = "only seen"
"""Every representation is of an encoder that was trained on these people."""
FEWEST_PERMUTATIONS = 20
"""Fewer cannot give a p below 0.05."""
FEW_PEOPLE, FEW_FOLDS = 100, 10
"""Fewer people or distinct folds get a caution."""


@dataclass(frozen=True, eq=False)
class Finding:
    """The finding about one target.

    `score`, `label`: ``r`` or ``auc``, and how a sentence calls it. `summary`: rows of ``prediction_summary``, without
    those of encoders that were trained on these people, the best representation first. `leading`: the column of
    ``summary`` that says which is the best. `state`: whether the best of the permutation tests, corrected for the
    number of representations and targets, is significant; not decided where the permutations are too few. `p`: that p,
    corrected by the best of each permutation; NaN where there was none. `comparison`: the row of ``comparisons`` that
    sets FC^alpha against FC. `added`: what the best representation adds to what is known without a scan; None where
    nothing is. `site`: ``Columns`` of sites that the target goes with, and the ``Score`` of the site alone on the same
    folds; empty where it does not. `questions`: targets that were tested together.
    """

    target: str
    score: str
    summary: pd.DataFrame
    leading: str
    state: str
    p: float
    comparison: pd.Series | None
    added: Added | None = None
    site: Mapping[str, Any] = field(default_factory=dict)
    questions: int = 1

    @property
    def label(self) -> str:
        """The score in words."""
        return "AUC" if self.score == "auc" else "r"

    @property
    def chance(self) -> float:
        """Score of guessing."""
        return 0.5 if self.score == "auc" else 0.0

    @property
    def is_pooled(self) -> bool:
        """Whether the score of all predictions together leads, because single folds are small."""
        return self.leading.endswith(POOLED_MEAN)

    @property
    def is_within(self) -> bool:
        """Whether the score within sites leads, because these are held out."""
        return self.leading.endswith(WITHIN_MEAN)

    def pooled(self, representation: str) -> float:
        """Score of all predictions together; NaN without the representation."""
        rows = self.summary[self.summary["representation"] == representation]
        return float(rows[f"{self.score}_{POOLED_MEAN}"].iloc[0]) if len(rows) else math.nan

    def beside_site(self, so: str) -> str:
        """``r 0.75 over all predictions together, and the site ('site') alone gives 0.84``."""
        pooled = self.pooled(str(self.summary["representation"].iloc[0]))
        names = ", ".join(f"'{name}'" for name in self.site["Columns"])
        if self.site["Score"] != self.site["Score"]:
            return f"{self.label} {pooled:.2f} over all predictions together, {so} it goes with the site ({names})"
        alone = f"the site ({names}) alone gives {self.site['Score']:.2f}"
        return f"{self.label} {pooled:.2f} over all predictions together, {so} {alone}"


def find_targets(tables: GroupTables) -> list[Finding]:
    """Return what was found for every target, in the order of the tables."""
    summary, comparisons = tables.frame("prediction_summary"), tables.rows("comparisons")
    if summary is None:
        return []
    sites = tables.facts("prediction").get("TargetsThatGoWithSites", {})
    parts = summary.groupby("target", sort=False)
    asked = int(summary.loc[summary["p_max"].notna(), "target"].nunique())
    rows = tables.rows("prediction_baselines")
    return [_find(str(target), part, comparisons, sites.get(str(target), {}), rows, asked) for target, part in parts]


def smallest_p_of_targets(tables: GroupTables) -> float:
    """The smallest p of a target, corrected for representations and targets."""
    return float(np.fmin.reduce([finding.p for finding in find_targets(tables)], initial=np.nan))


def _find(
    target: str,
    part: pd.DataFrame,
    comparisons: pd.DataFrame,
    site: Mapping[str, Any],
    baselines: pd.DataFrame,
    questions: int,
) -> Finding:
    score = "auc" if part["auc_pooled_mean"].notna().any() else "r"
    leading = f"{score}_{part['ranked_by'].iloc[0]}"
    seen = seen_rows(part)
    if seen.all():
        return Finding(target, score, part.reset_index(drop=True), leading, ONLY_SEEN, math.nan, None)
    part = part[~seen]
    ranked = part.sort_values(leading, ascending=False, na_position="last", kind="stable")
    p_values = [float(p) for p in part["p_max_targets"].tolist() if p == p]
    best = min(p_values, default=math.nan)
    few = part["n_permutations"].max() < FEWEST_PERMUTATIONS
    state = NOT_TESTED if not p_values else FOUND if best < SIGNIFICANT else NOT_DECIDED if few else NOT_FOUND
    pair = _pair(comparisons, target)
    ranked = ranked.reset_index(drop=True)
    added = find_added(baselines, target, str(ranked["representation"].iloc[0]))
    if site:
        own = baselines[baselines["model"] == SITE] if len(baselines) else baselines
        scores = zip(own.get("target", ()), own.get("value", ()), strict=True)
        alone = [value for name, value in scores if str(name) == target]
        site = {**site, "Score": float(alone[0]) if alone else math.nan}
    return Finding(target, score, ranked, leading, state, best, pair, added, site, questions)


def _pair(comparisons: pd.DataFrame, target: str) -> pd.Series | None:
    if comparisons.empty:
        return None
    rows = comparisons[
        (comparisons["target"].astype(str) == target)
        & (comparisons["representation"] == "fc_power")
        & (comparisons["reference"] == "fc")
    ]
    return rows.iloc[0] if len(rows) else None


def known_people(tables: GroupTables) -> str:
    """``55 people``, or ``45 to 55 people``: with a known value of each target of the prediction; empty without one."""
    folds = tables.rows("prediction")
    if folds.empty:
        n = tables.facts("prediction").get("NumberOfPeople")
        return count(int(n), "person", "people") if n else ""
    both = (folds["n_train"] + folds["n_test"]).groupby(folds["target"], sort=False).max()
    tested = folds.groupby(["target", "representation", "repeat"], sort=False)["n_test"].sum()
    known = np.maximum(both, tested.groupby("target", sort=False).max())
    low, high = int(known.min()), int(known.max())
    return f"{low:,} to {count(high, 'person', 'people')}" if low < high else count(high, "person", "people")


def describe_finding(finding: Finding, tables: GroupTables) -> list[str]:
    """Say in plain sentences what was found for a target, starting with the answer."""
    if finding.state == ONLY_SEEN:
        return describe_seen_prediction(finding.target, tables)
    best = finding.summary.iloc[0]
    if best[finding.leading] != best[finding.leading]:
        where = "of all predictions together" if finding.is_pooled else "in any fold"
        where = "within any site" if finding.is_within else where
        return [f"The score is not defined {where}: {finding.target} cannot be judged."]
    said = [_answer(finding, best), _highest(finding, best, tables), *_added(finding, best, tables)]
    said += [*_taken_by_combat(finding, best, tables), *_spread_apart(finding, tables)]
    if finding.comparison is not None:
        said.append(describe_difference(finding.comparison, finding, tables))
    return said + describe_seen_prediction(finding.target, tables)


def _highest(finding: Finding, best: pd.Series, tables: GroupTables) -> str:
    score, name = finding.score, tables.title(str(best["representation"]))
    mean, pooled = float(best[f"{score}_{FOLD_MEAN}"]), float(best[f"{score}_{POOLED_MEAN}"])
    if finding.is_within:
        within = f"{finding.label} within sites that are held out {best[finding.leading]:.2f}"
        return f"Highest score: {name}, {within}; all predictions together, offsets of sites included, {pooled:.2f}."
    if not finding.is_pooled:
        spread = f"mean {finding.label} over {best['n_folds']:.0f} folds {mean:.2f} (SD {_sd(best, score)})"
        return f"Highest score: {name}, {spread}; all predictions together {pooled:.2f}."
    said = f"Highest score: {name}, {finding.label} of all predictions together {pooled:.2f}"
    if mean != mean:
        return f"{said}; single folds have none."
    return (
        f"{said}; the mean over {best['n_folds']:.0f} small folds, {mean:.2f} (SD {_sd(best, score)}), is mostly noise."
    )


def _added(finding: Finding, best: pd.Series, tables: GroupTables) -> list[str]:
    """Compare with what is known without any scan, on the same folds."""
    if finding.added is None:
        return []
    clause = finding.added.clause(tables.title(str(best["representation"])))
    return [f"On the folds of the first repeat, {finding.label}: {clause}."]


def _taken_by_combat(finding: Finding, best: pd.Series, tables: GroupTables) -> list[str]:
    """Compare with the features as they are, on the same folds."""
    before, pooled = best.get("score_unharmonised", np.nan), tables.rows("prediction_pooled")
    if missing(before) or pooled.empty:
        return []
    own = (pooled["target"].astype(str) == finding.target) & (pooled["representation"] == best["representation"])
    after = pooled.loc[own & (pooled["repeat"] == 0), finding.score].iloc[0]
    return [
        f"{finding.label} {before:.2f} from the features as they are, {after:.2f} after ComBat (all predictions of the "
        "first repeat, on the same folds)."
    ]


def _spread_apart(finding: Finding, tables: GroupTables) -> list[str]:
    """Repeat what the check found of the classes, where they are spread differently."""
    rows = tables.rows("check")
    if rows.empty:
        return []
    own = rows[(rows["check"] == SPREAD) & rows["finding"].str.startswith(OF_CLASSES.format(finding.target))]
    return [f"{row['finding']} {row['consequence']}" for _, row in own.iterrows()]


def _sd(row: pd.Series, score: str) -> str:
    return "n/a" if row[f"{score}_fold_sd"] != row[f"{score}_fold_sd"] else f"{row[f'{score}_fold_sd']:.2f}"


def _answer(finding: Finding, best: pd.Series) -> str:
    tests = (int(finding.summary["p_max"].notna().sum()), "representation"), (finding.questions, "target")
    said = " and ".join(count(number, what) for number, what in tests if number > 1)
    corrected = f", corrected for {said}" if said else ""
    n = int(finding.summary["n_permutations"].max())
    smallest = ", the smallest that so many can give" if finding.p <= 1 / (1 + n) else ""
    permuted = f"permutation {say_p(finding.p)}{corrected}, {n:,} permutations{smallest}"
    if finding.site and finding.state in (FOUND, NOT_FOUND):
        if finding.state == FOUND and finding.added is not None and not finding.added.adds:
            return (
                f"Better than chance within sites ({permuted}); nothing beyond what is known without a scan was shown."
            )
        begin, joint = ("More than", "where") if finding.state == FOUND else ("Nothing beyond", "but")
        return f"{begin} the site was shown: {finding.beside_site(joint)} (within sites, {permuted})."
    if finding.state == FOUND:
        return f"Predicted better than chance ({permuted})."
    if finding.state == NOT_DECIDED:
        return (
            f"Not decided: {n} permutations cannot give a p below {SIGNIFICANT:g} ({permuted}); {FEWEST_PERMUTATIONS} "
            "would do, 1,000 are better (--permutations)."
        )
    if finding.state == NOT_FOUND:
        needed, powered = (float(finding.summary[name].max()) for name in ("score_needed", "score_powered"))
        where = "within sites" if finding.is_within else "over all predictions together"
        said = f"Nothing was found: no representation predicts it detectably better than chance ({permuted})."
        if needed >= 1:
            return f"{said} With so few people no {finding.label} is high enough to be found."
        found = "none is" if powered >= 1 else f"a true one of {powered:.2f} is"
        return (
            f"{said} The threshold was an observed {finding.label} of {needed:.2f} {where}, and {found} found in 80 of "
            "100 cohorts."
        )
    return "Not tested against chance: no permutations were run (--permutations)."


def describe_difference(row: pd.Series, finding: Finding, tables: GroupTables) -> str:
    """Say what a row of ``comparisons`` found, the interval and the p of the corrected resampled t-test."""
    later, earlier = tables.title(str(row["representation"])), tables.title(str(row["reference"]))
    if row["p_two_sided"] != row["p_two_sided"]:
        return f"{later} and {earlier} could not be compared."
    by_site = row.get("p_offset", math.nan) == row.get("p_offset", math.nan)
    of_people, where = float(row.get("p_people", math.nan)), ", within sites that are held out" if by_site else ""
    counted = f"within sites, over {count(int(row['n_blocks']), 'site')}" if by_site else "over people"
    of_all = finding.pooled(str(row["representation"])), finding.pooled(str(row["reference"]))
    small = finding.is_pooled and not any(math.isnan(each) for each in of_all)
    numbers = [
        f"difference in {finding.label} over {'small ' * small}folds {row['mean_difference']:+.2f}, 95 % CI "
        f"{row['ci_low']:+.2f} to {row['ci_high']:+.2f}, corrected resampled t, {say_p(float(row['p_two_sided']))}"
    ]
    if of_people == of_people:
        numbers.insert(0 if small else 1, f"squared errors {counted}, {say_p(of_people)}")
    if small:
        numbers.insert(0, f"{finding.label} of all predictions together {of_all[0]:.2f} against {of_all[1]:.2f}")
    if small and row["p_two_sided"] < SIGNIFICANT and (of_all[0] - of_all[1]) * row["mean_difference"] < 0:
        return (
            f"It is not clear whether {later} and {earlier} differ: all predictions together and single folds point "
            f"in opposite directions ({'; '.join(numbers)})."
        )
    said = _judge_difference(row, f"{later}", f"{earlier}", where, "; ".join(numbers))
    return f"{said} {_describe_offset(row, later, earlier)}" if by_site else said


def _judge_difference(row: pd.Series, later: str, earlier: str, where: str, numbers: str) -> str:
    clear, of_people = row["p_two_sided"] < SIGNIFICANT, float(row.get("p_people", math.nan))
    if not clear and of_people < SIGNIFICANT:
        return (
            f"It is not clear whether {later} and {earlier} differ{where}: only one of two tests sees it ({numbers})."
        )
    if not clear:
        power = describe_power((row["ci_high"] - row["ci_low"]) / 2, 2)
        return f"No evidence that {later} and {earlier} differ{where} ({numbers}); {power}."
    better = "better" if row["mean_difference"] > 0 else "worse"
    if of_people >= SIGNIFICANT:
        rest = "there is no evidence in the errors" if where else "over people there is no evidence"
        return f"{later} scores {better} than {earlier}{where}, but only one of two tests sees it ({numbers}): {rest}."
    return f"{later} is {better} than {earlier}{where} ({numbers})."


def describe_power(needed: float, digits: int, unit: str = "") -> str:
    """Half of a 95 % interval as the observed threshold, and the true difference that passes it in 80 of 100."""
    true = needed * (1 - POWER / special.ndtri(SIGNIFICANT / 2))
    return (
        f"the threshold was an observed difference of {needed:.{digits}f}{unit}, and a true one of {true:.{digits}f}"
        f"{unit} is found in 80 of 100 cohorts"
    )


def _describe_offset(row: pd.Series, later: str, earlier: str) -> str:
    """The level of a new site, which is its own question."""
    numbers = f"difference in size {row['offset_difference']:+.2f}, {say_p(float(row['p_offset']))}"
    if row["p_offset"] >= SIGNIFICANT:
        return f"No evidence that the offset of a new site differs between them ({numbers})."
    better = "smaller" if row["offset_difference"] < 0 else "larger"
    return f"The offset of a new site is {better} under {later} than under {earlier} ({numbers})."


def smallest_correlation(n_people: int) -> float:
    """Smallest |r| that is significant (two-sided, 0.05) for a single correlation over so many people."""
    if n_people < 4:
        return 1.0
    t = float(special.stdtrit(n_people - 2, 1 - SIGNIFICANT / 2))
    return t / math.sqrt(n_people - 2 + t**2)


def prediction_cautions(findings: Sequence[Finding], tables: GroupTables) -> list[str]:
    """Say what limits the predictions: few people, small folds, penalties at the edge, skipped folds."""
    if not findings:
        return []
    folds, said = tables.rows("prediction"), []
    if folds.empty:
        return []
    n = int(tables.facts("prediction").get("NumberOfPeople") or (folds["n_train"] + folds["n_test"]).max())
    if n < FEW_PEOPLE:
        said.append(
            f"Only {count(n, 'person', 'people')}: even without any cross-validation a single correlation is "
            f"significant from {smallest_correlation(n):.2f} on, and the scores below are very uncertain."
        )
    if tested := small_folds(findings, tables):
        said.append(
            f"Test folds of {tested}: the r of a single fold is mostly noise (with two people it can only be 1 or -1). "
            "The score of all predictions together leads. Where there is nothing to predict it lies below "
            "chance: a negative r is no relation turned round."
        )
    return said + _fold_cautions(findings, folds, tables)


def small_folds(findings: Sequence[Finding], tables: GroupTables) -> str:
    """Say of how many people the folds are that are too small to be scored one by one; nothing where none are."""
    small = [finding.target for finding in findings if finding.is_pooled]
    folds = tables.rows("prediction")
    if folds.empty or not small:
        return ""
    folds = folds[folds["target"].astype(str).isin(small)]
    low, high = int(folds["n_test"].min()), int(folds["n_test"].max())
    return count(low, "person", "people") if low == high else f"{low} to {high} people"


def _fold_cautions(findings: Sequence[Finding], folds: pd.DataFrame, tables: GroupTables) -> list[str]:
    said = []
    comparisons = tables.rows("comparisons")
    if not comparisons.empty and comparisons["n_distinct"].min() < FEW_FOLDS:
        n = int(comparisons["n_distinct"].min())
        said.append(f"Only {count(n, 'distinct test set')}: comparisons rest on very little evidence.")
    edge = float((folds["at_grid_edge"].astype(str) == "true").mean())
    if edge > 0.5:
        said.append(
            f"In {percent(edge)} of the folds the selected penalty is the smallest or the largest of the grid: the "
            "best one may lie outside."
        )
    scores = {finding.target: finding.score for finding in findings}
    skipped = sum(int(part[scores[str(target)]].isna().sum()) for target, part in folds.groupby("target"))
    if skipped:
        said.append(
            f"The score is not defined in {skipped} of {len(folds)} folds (constant values or one class); left out."
        )
    return said


def by_representation(frame: pd.DataFrame, target: str) -> dict[str, pd.DataFrame]:
    """Rows of a target by representation, in the order of the table."""
    if frame.empty:
        return {}
    own = frame[frame["target"].astype(str) == target]
    return {str(name): part for name, part in own.groupby("representation", sort=False)}
