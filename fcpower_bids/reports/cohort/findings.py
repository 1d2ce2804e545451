"""Findings about each target, decided once for the verdict and for the chapters, and the sentences that say them."""

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


@dataclass(frozen=True, eq=False)
class Finding:
    """The finding about one target.

    `score`: ``r`` or ``auc``. `summary`: rows of ``prediction_summary``, without those of encoders that were trained on
    these people, the best representation first. `leading`: the column of ``summary`` that says which is the best.
    `state`: whether the best of the permutation tests, corrected for the number of representations and targets, is
    significant; not decided where the permutations are too few. `p`: that p, corrected by the best of each permutation;
    NaN where there was none. `comparison`: the row of ``comparisons`` that sets FC^alpha against FC. `added`: what the
    best representation adds to what is known without a scan; None where nothing is. `site`: ``Columns`` of sites that
    the target goes with, and the ``Score`` of the site alone on the same folds; empty where it does not. `questions`:
    targets that were tested together.
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
    summary, comparisons = tables.rows("prediction_summary"), tables.rows("comparisons")
    if summary.empty:
        return []
    sites = tables.facts("prediction").get("TargetsThatGoWithSites", {})
    asked = int(summary.loc[summary["p_max"].notna(), "target"].nunique())
    baselines, found = tables.rows("prediction_baselines"), []
    for target, part in summary.groupby("target", sort=False):
        name = str(target)
        score = "auc" if part["auc_pooled_mean"].notna().any() else "r"
        leading, seen = f"{score}_{part['ranked_by'].iloc[0]}", seen_rows(part)
        if seen.all():
            whole = part.reset_index(drop=True)
            found.append(Finding(name, score, whole, leading, ONLY_SEEN, math.nan, None))
            continue
        part = part[~seen]
        ranked = part.sort_values(leading, ascending=False, na_position="last", kind="stable").reset_index(drop=True)
        best = min((float(p) for p in part["p_max_targets"] if p == p), default=math.nan)
        few = part["n_permutations"].max() < FEWEST_PERMUTATIONS
        state = FOUND if best < SIGNIFICANT else NOT_DECIDED if few else NOT_FOUND
        pairs = own_rows(comparisons, name)
        if len(pairs):
            pairs = pairs[(pairs["representation"] == "fc_power") & (pairs["reference"] == "fc")]
        site = sites.get(name, {})
        if site:
            own = own_rows(baselines, name)
            alone = own.loc[own["model"] == SITE, "value"] if len(own) else ()
            site = {**site, "Score": float(next(iter(alone), math.nan))}
        found.append(
            Finding(
                name,
                score,
                ranked,
                leading,
                NOT_TESTED if missing(best) else state,
                best,
                pairs.iloc[0] if len(pairs) else None,
                find_added(baselines, name, str(ranked["representation"].iloc[0])),
                site,
                asked,
            )
        )
    return found


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
    best = finding.summary.iloc[0]
    if missing(best[finding.leading]):
        where = "of all predictions together" if finding.is_pooled else "in any fold"
        where = "within any site" if finding.is_within else where
        return [f"The score is not defined {where}: {finding.target} cannot be judged."]
    said = [_answer(finding), _highest(finding, tables)]
    if finding.added is not None:
        clause = finding.added.clause(tables.title(finding.best))
        said.append(f"On the folds of the first repeat, {finding.label}: {clause}.")
    if finding.comparison is not None:
        said.append(describe_difference(finding.comparison, finding, tables))
    return said + describe_seen_prediction(finding.target, tables)


def _highest(finding: Finding, tables: GroupTables) -> str:
    best, score = finding.summary.iloc[0], finding.score
    mean, pooled, sd = (float(best[f"{score}_{key}"]) for key in (FOLD_MEAN, POOLED_MEAN, "fold_sd"))
    spread, said = (
        "n/a" if missing(sd) else f"{sd:.2f}",
        f"Highest score: {tables.title(finding.best)}, {finding.label}",
    )
    if finding.is_within:
        within = f"{said} within sites that are held out {best[finding.leading]:.2f}"
        return f"{within}; all predictions together, offsets of sites included, {pooled:.2f}."
    if not finding.is_pooled:
        said = f"Highest score: {tables.title(finding.best)}, mean {finding.label} over {best['n_folds']:.0f} folds"
        return f"{said} {mean:.2f} (SD {spread}); all predictions together {pooled:.2f}."
    said += f" of all predictions together {pooled:.2f}"
    if missing(mean):
        return f"{said}; single folds have none."
    return f"{said}; the mean over {best['n_folds']:.0f} small folds, {mean:.2f} (SD {spread}), is mostly noise."


def _answer(finding: Finding) -> str:
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
    if finding.state == NOT_TESTED:
        return "Not tested against chance: no permutations were run (--permutations)."
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


def describe_difference(row: pd.Series, finding: Finding, tables: GroupTables) -> str:
    """Say what a row of ``comparisons`` found by the corrected resampled t-test, and whether the errors agree."""
    later, earlier = tables.title(row["representation"]), tables.title(row["reference"])
    p, of_people = float(row["p_two_sided"]), float(row.get("p_people", math.nan))
    if missing(p):
        return f"{later} and {earlier} could not be compared."
    by_site = not missing(row.get("p_offset"))
    where = ", within sites that are held out" if by_site else ""
    both = f"{later} and {earlier} differ{where}"
    of_all = finding.pooled(row["representation"]), finding.pooled(row["reference"])
    small = finding.is_pooled and not any(map(missing, of_all))
    told = (
        f"difference in {finding.label} over {'small ' * small}folds {row['mean_difference']:+.2f}, 95 % CI "
        f"{row['ci_low']:+.2f} to {row['ci_high']:+.2f}, corrected resampled t, {say_p(p)}"
    )
    if small:
        told = f"{finding.label} of all predictions together {of_all[0]:.2f} against {of_all[1]:.2f}; {told}"
    if not missing(of_people):
        told += f"; squared errors over {'sites' if by_site else 'people'}, {say_p(of_people)}"
    if small and p < SIGNIFICANT and (of_all[0] - of_all[1]) * row["mean_difference"] < 0:
        return (
            f"It is not clear whether {both}: all predictions together and single folds point in opposite directions "
            f"({told})."
        )
    if p < SIGNIFICANT and not of_people >= SIGNIFICANT:
        better = "better" if row["mean_difference"] > 0 else "worse"
        return f"{later} is {better} than {earlier}{where} ({told})."
    if p < SIGNIFICANT or of_people < SIGNIFICANT:
        return f"It is not clear whether {both}: only one of two tests sees it ({told})."
    return f"No evidence that {both} ({told}); {describe_power((row['ci_high'] - row['ci_low']) / 2, 2)}."


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
    scores = {finding.target: finding.score for finding in findings}
    skipped = sum(int(part[scores[str(target)]].isna().sum()) for target, part in folds.groupby("target"))
    if skipped:
        yield f"The score is not defined in {skipped} of {len(folds)} folds (constant values or one class); left out."


def small_folds(findings: Sequence[Finding], tables: GroupTables) -> str:
    """Say of how many people the folds are that are too small to be scored one by one; nothing where none are."""
    small = [finding.target for finding in findings if finding.is_pooled]
    folds = tables.rows("prediction")
    if folds.empty or not small:
        return ""
    folds = folds[folds["target"].astype(str).isin(small)]
    low, high = int(folds["n_test"].min()), int(folds["n_test"].max())
    return count_people(low) if low == high else f"{low} to {high} people"


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


def describe_training(row: pd.Series) -> str:
    """Say that an encoder was trained on none of the people of a row, or that this is not known."""
    if not str(row["representation"]).startswith(EMBEDDING) or "n_trained" not in row:
        return ""
    if missing(row["n_trained"]):
        return " The people that its encoder was trained on are not known."
    return " Its encoder was trained on none of these people."


def describe_seen_identification(row: pd.Series, tables: GroupTables) -> str:
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
