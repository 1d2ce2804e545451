"""Every sentence of the group page that says a number or a verdict, held against the tables that it speaks of.

A block of text of the page is read from its start: a sentence that the catalogue knows is checked, any other may hold
no digit. So a new sentence with a figure fails until it has its check here.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from fcpower_bids.outputs.tables import read_table

NUMBER = r"([+-]?\d+\.\d+)"
COUNT = r"([\d,]+)"
P = r"(p < 0\.001|p = \d\.\d{3})"
NAME = r"(FC(?:\^\d\.\d+)?|embedding [\w-]+|fisher_z)"
FEWEST_PERMUTATIONS = 20
HEADINGS = re.compile(r"Prediction of (\S+)")
Catalogue = tuple[tuple[str, Callable[..., object]], ...]
UNREAD = re.compile(r"<(script|style|svg|table|template)\b.*?</\1>|<details id=\"methods\".*?</details>", re.S)
"""The methods text has tests of its own."""
INLINE = re.compile(r"</?(b|i|em|strong|a|code|sub|sup|span)\b[^>]*>")


@dataclass
class Page:
    """A page, its tables, and the target whose section is being read."""

    folder: Path
    target: str = ""
    about: tuple[str, str] = ("", "")
    read: dict[str, int] = field(default_factory=dict)

    @cached_property
    def findings(self) -> list[str]:
        """What the check says, which the page quotes."""
        if not (self.folder / "check.tsv").is_file():
            return []
        table = self.table("check")
        return [str(one) for name in ("finding", "consequence", "remedy") for one in table[name]] if len(table) else []

    @cached_property
    def notes(self) -> list[str]:
        """Notes on the cohort, which the page quotes."""
        return self.facts("scans").get("CohortNotes", []) if (self.folder / "scans.json").is_file() else []

    def table(self, name: str) -> pd.DataFrame:
        return read_table(self.folder / f"{name}.tsv")

    @cached_property
    def people(self) -> pd.DataFrame:
        """The table of phenotypes that was read."""
        folders = (each / "bids" / "participants.tsv" for each in self.folder.parents)
        return read_table(next(each for each in folders if each.is_file()))

    def facts(self, name: str) -> dict:
        return json.loads((self.folder / f"{name}.json").read_text())

    def key(self, title: str) -> str:
        if title.startswith("embedding "):
            return title.replace(" ", ":")
        return {"FC": "fc", "fisher_z": "fisher_z"}.get(title, "fc_power")

    def rows(self, name: str, target: str = "", **keys: str) -> pd.DataFrame:
        table = self.table(name)
        for column, value in ({"target": target or self.target} | keys).items():
            table = table[table[column].astype(str) == value]
        return table


def blocks_of(page: str) -> list[str]:
    """Texts of the page without tables and drawings."""
    text = INLINE.sub("", UNREAD.sub("", page))
    return [part for each in re.split(r"<[^>]+>", text) if (part := html.unescape(re.sub(r"\s+", " ", each)).strip())]


def unchecked_sentences(
    path: Path, folder: Path, catalogue: Catalogue | None = None, without: tuple[str, ...] = ()
) -> tuple[list[str], dict[str, int]]:
    """Check what the catalogue knows; return the sentences with digits that it does not, and how often each was met."""
    page, without = Page(folder), (*WITHOUT_TABLE, *without)
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    return [one for block in blocks for one in _read(block, page, catalogue or CATALOGUE, without)], page.read


def _read(block: str, page: Page, catalogue: Catalogue, without: tuple[str, ...]) -> Iterator[str]:
    heading = HEADINGS.fullmatch(block)
    if heading:
        page.target = heading[1]
    while block:
        if said := next((one for one in page.findings if block.startswith(one)), ""):
            page.read["finding"] = page.read.get("finding", 0) + 1
            block = block[len(said) :].strip()
            continue
        for pattern, check in catalogue:
            found = re.match(pattern, block)
            if found:
                page.read[check.__name__] = page.read.get(check.__name__, 0) + 1
                check(page, *found.groups())
                block = block[found.end() :].strip()
                break
        else:
            if said := next((one for one in page.notes if block.startswith(one)), ""):
                block = block[len(said) :].strip()
                continue
            sentence, _, block = block.partition(". ")
            if re.search(r"\d", sentence) and not any(re.fullmatch(one, sentence) for one in without):
                yield sentence


WITHOUT_TABLE = (
    r"fcpower_bids \S+",
    r"Made on \S+ by fcpower_bids \S+.*",
    r"COD is 1 for perfect predictions, 0 for .*",
    r".*\(the paper, Appendix F\)",
    r".*\(Shrout and Fleiss 1979\), averaged\.?",
    r"k equally similar candidates earn 1/k .*",
    r".*\.(tsv|json|toml)",
    r"sub-\S+",
    r"FC\S*( \(values × 10\S+\))?",
    r"(Networks|Parcels|Connections) that matter( for \S+)?, FC\S*|Motion by parcel, FC\S*",
    r"Grey: every shared fold|Blue: mean and 95 % interval .*",
    r"The networks of the parcels are not known: .*",
    r"On paper the first \d+ of [\d,]+ rows; .*",
)
"""What has a digit and says nothing of this cohort; how long a table is, the tests of the page count."""


def close(said: str, value: float, digits: int | None = None) -> None:
    """The number said is the value to the digits that are shown."""
    digits = len(said.partition(".")[2]) if digits is None else digits
    assert abs(float(said.replace(",", "")) - value) <= 0.5 * 10.0**-digits + 1e-9, (said, value)


def same_p(said: str, value: float) -> None:
    assert value < 0.001 if said == "p < 0.001" else abs(float(said[4:]) - value) <= 0.0005 + 1e-9, (said, value)


def state_of(page: Page, target: str) -> str:
    """The verdict by its rule: the smallest corrected p."""
    summary = page.rows("prediction_summary", target)
    if summary["p_max_targets"].isna().all():
        return "not tested"
    if summary["p_max_targets"].min() < 0.05:
        return "found"
    return "not decided" if summary["n_permutations"].max() < FEWEST_PERMUTATIONS else "not found"


def headline(page: Page, said: str, verdict: str) -> None:
    names = re.split(r", | and ", said)
    wanted = {"can be predicted better than chance": "found", "nothing was found": "not found"}[verdict]
    order = page.table("prediction_summary")["target"].drop_duplicates()
    beside = page.facts("prediction").get("TargetsThatGoWithSites", {})
    assert names == [name for name in order if state_of(page, name) == wanted and name not in beside]


def analyses_corrected(page: Page, n: str, each: str) -> None:
    """Holm by hand over the smallest p of each analysis, times the number of what it does not correct for itself."""
    found = {}
    for name, table, column in (
        ("prediction", "prediction_summary", "p_max_targets"),
        ("modes", "edges_modes", "p_family_wise"),
        ("identification", "identification", "p_permutation"),
    ):
        if (page.folder / f"{table}.tsv").is_file():
            rows = page.table(table)
            rows = rows[~(rows["n_trained"] > 0)] if "n_trained" in rows else rows
            if "first_session" in rows and (rows["first_session"].astype(str) == "all").any():
                rows = rows[rows["first_session"].astype(str) == "all"]
            times = {"prediction": 1, "modes": rows["target"].nunique() if "target" in rows else 0}
            found[name] = min(1, rows[column].min() * times.get(name, len(rows)))
    if (page.folder / "edges_summary.tsv").is_file():
        rows = page.table("edges_summary").groupby("target")
        p = [*rows["p_max"].min(), *(rows["p_component"].min() * rows.size()).clip(upper=1).dropna()]
        found["edges"] = min(1, len(p) * min(p))
    found = {name: p for name, p in found.items() if p == p}
    assert int(n) == len(found)
    said = dict(one.split(" ", 1) for one in each.split(", "))
    assert said.keys() == found.keys()
    so_far = 0.0
    for step, name in enumerate(sorted(found, key=found.get)):
        so_far = min(1.0, max(so_far, (len(found) - step) * found[name]))
        same_p(said[name], so_far)
    page.about = ("lost", ",".join(name for name in found if found[name] < 0.05 and float(said[name][4:]) >= 0.05))


def analyses_lost(page: Page, names: str) -> None:
    assert sorted(re.split(r", | and ", names)) == sorted(page.about[1].split(","))


def lacking_headline(page: Page, said: str) -> None:
    headline(page, said, "nothing was found")


def best_identification(page: Page, title: str, share: str, within: str | None = None) -> None:
    table = page.table("identification").groupby("representation")[["accuracy", "accuracy_within"]].mean()
    close(share, 100 * table["accuracy"].max(), 0)
    assert table["accuracy"].idxmax() == page.key(title)
    if within:
        close(within, 100 * table.loc[page.key(title), "accuracy_within"], 0)


def by_chance(page: Page, share: str) -> None:
    table = page.table("identification")
    close(share, 100 * table["accuracy"].max(), 0)
    assert table.loc[table["accuracy"].idxmax(), "p_permutation"] >= 0.05


def observed_residuals(page: Page) -> None:
    assert page.facts("prediction")["Preset"]["covariates"]


def counts(page: Page, people: str, scans: str | None) -> None:
    table = page.table("scans")
    known = [table["participant_id"].nunique()]
    if (page.folder / "predictions.tsv").is_file():
        known.append(page.table("predictions")["participant_id"].nunique())
    assert int(people) in known
    if scans:
        known = [len(table)]
        if (page.folder / "identification_scans.tsv").is_file():
            searched = page.table("identification_scans").drop_duplicates(["participant_id", "session"])
            known.append(len(searched))
        assert int(scans) in known


def pivot_null(null: pd.DataFrame, values: str) -> pd.DataFrame:
    return null.pivot(index="permutation", columns=["target", "representation"], values=values)


def statistics_of(null: pd.DataFrame) -> pd.DataFrame:
    """What p compare: r, and AUC minus .5 in standard errors."""
    score, error = pivot_null(null, "score"), pivot_null(null, "standard_error").astype(float)
    return ((score - 0.5) / error).fillna(score)


def scores_for(null: pd.DataFrame, statistics: pd.Series) -> pd.Series:
    """Scores whose statistic would have been so large; the error of an AUC goes with sqrt(AUC (1 - AUC))."""
    score, error = pivot_null(null, "score").loc[0], pivot_null(null, "standard_error").astype(float).loc[0]
    odds = statistics * error / np.sqrt((score * (1 - score)).where(error.notna()))
    return (0.5 + 0.5 * odds / np.sqrt(1 + odds**2)).fillna(statistics)


def compared_scores(page: Page) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Statistics of every permutation, target and representation as they are compared, their centre and spread.

    With one target these are `statistics_of`; with more they are in standard deviations of their own permutations.
    """
    null = statistics_of(page.table("null"))
    if null.columns.get_level_values(0).nunique() == 1:
        return null, 0 * null.mean(), 1 + 0 * null.mean()
    return (null - null.mean()) / null.std(ddof=0), null.mean(), null.std(ddof=0)


def answer(
    page: Page,
    p: str,
    tests: str | None,
    targets: str | None,
    alone: str | None,
    permutations: str,
    smallest: str | None,
) -> None:
    null, *_ = compared_scores(page)
    largest, own = null.iloc[1:].max(axis=1), null[page.target]
    value = (1 + (largest >= own.iloc[0].max() - 1e-12).sum()) / len(null)
    same_p(p, value)
    assert int(tests or 1) == own.shape[1]
    assert int(targets or alone or 1) == null.columns.get_level_values(0).nunique()
    assert int(permutations.replace(",", "")) == len(null) - 1
    assert bool(smallest) == (value <= 1 / len(null))


def found(page: Page, *said: str) -> None:
    answer(page, *said)
    assert state_of(page, page.target) == "found"


SHOWN = {"More than the site was shown": "found", "more than the site was shown": "found"}


def beside_site(page: Page, target: str, label: str, pooled: str, column: str, alone: str, verdict: str) -> None:
    """The score of all predictions together, and that of the means of the sites, from the table of phenotypes."""
    score = {"AUC": "auc", "r": "r"}[label]
    scores = {
        str(name): float(np.mean([pooled_score(part, score) for _, part in own.groupby("repeat")]))
        for name, own in page.rows("predictions", target).groupby("representation")
    }
    ranked = page.rows("prediction_summary", target).set_index("representation")
    best = ranked[f"{score}_{ranked['ranked_by'].iloc[0]}"].idxmax()
    close(pooled, scores[best])
    people = page.people
    means = people.groupby(column)[target].transform("mean")
    close(alone, pooled_score(pd.DataFrame({"observed": people[target], "predicted": means}), score))
    assert state_of(page, target) == SHOWN.get(verdict, "not found")


def answer_beside_site(
    page: Page, verdict: str, label: str, pooled: str, column: str, alone: str, *permuted: str
) -> None:
    answer(page, *permuted)
    beside_site(page, page.target, label, pooled, column, alone, verdict)


def highest_within(page: Page, title: str, label: str, within: str, pooled: str) -> None:
    score = {"AUC": "auc", "r": "r"}[label]
    table = page.rows("prediction_sites")
    own = table[table["over"] == "within sites"].set_index("representation")["value"]
    assert own.idxmax() == page.key(title)
    close(within, own.max())
    close(pooled, pooled_scores(page, score)[page.key(title)])


def site_errors(page: Page) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Squared errors within sites, and errors of sites, by representation: each site is a fold."""
    table = page.rows("predictions")
    error = table["observed"] - table["predicted"]
    site = [table["representation"], table["repeat"], table["fold"]]
    offsets = error.groupby([table["representation"], table["fold"]]).mean().unstack(0)
    within = (error - error.groupby(site).transform("mean")) ** 2
    return within.groupby([table["representation"], table["fold"]]).sum().unstack(0), offsets


def offset(page: Page, *said: str) -> None:
    """``no difference`` or ``smaller``, then the difference and its p."""
    (row,) = (each for _, each in page.rows("comparisons", representation="fc_power", reference="fc").iterrows())
    _, offsets = site_errors(page)
    close(said[-2], (offsets["fc_power"].abs() - offsets["fc"].abs()).mean())
    same_p(said[-1], row["p_offset"])
    gain = (offsets["fc"] ** 2 - offsets["fc_power"] ** 2).to_numpy()
    flips = np.array(list(itertools.product([-1, 1], repeat=len(gain)))) @ gain
    assert row["p_offset"] == pytest.approx(np.mean(np.abs(flips) >= abs(gain.sum()) - 1e-12), abs=0.02)
    assert (len(said) == 3) == (row["p_offset"] < 0.05)


def not_found(page: Page, *said: str) -> None:
    *permuted, label, needed, true = said
    answer(page, *permuted)
    assert state_of(page, page.target) == "not found"
    null, centre, spread = compared_scores(page)
    largest = np.sort(null.iloc[1:].max(axis=1))[::-1]
    each = centre + spread * largest[int(np.ceil(0.05 * len(null))) - 2]
    deviation = (null.iloc[1:] * spread).std(ddof=0)
    close(needed, scores_for(page.table("null"), each)[page.target].max())
    close(true, scores_for(page.table("null"), each + 0.84 * deviation)[page.target].max())
    assert label == ("AUC" if page.rows("prediction")["auc"].notna().any() else "r")


def highest(page: Page, title: str, label: str, folds: str, mean: str, sd: str, pooled: str) -> None:
    score = {"AUC": "auc", "r": "r"}[label]
    table = page.rows("prediction")
    assert table["n_test"].median() >= 10
    means = table.groupby("representation")[score].mean()
    assert means.idxmax() == page.key(title)
    spread_of_folds(page, title, score, folds, mean, sd)
    close(pooled, pooled_scores(page, score)[page.key(title)])


def added(page: Page, known: str, label: str, alone: str, title: str, gain: str, p: str | None, *of: str) -> None:
    """What is known by least squares on the folds of the first repeat; the rest from the table."""
    rows = page.rows("prediction_baselines", *of).set_index("model")
    assert known == rows.loc["known", "known"]
    assert rows.loc["known", "score"] == {"AUC": "auc", "r": "r"}[label]
    close(alone, rows.loc["known", "value"])
    row = rows[rows["representation"] == page.key(title)].iloc[0]
    close(gain, row["gain"])
    assert (p is None) == np.isnan(row["p_adds"])
    if p:
        same_p(p, row["p_adds"])


def changed_by_combat(page: Page, label: str, before: str, after: str) -> None:
    score = {"AUC": "auc", "r": "r"}[label]
    scores = pooled_scores(page, score)
    best = max(scores, key=scores.__getitem__)
    close(before, page.rows("prediction_summary", representation=best)["score_unharmonised"].item())
    close(after, pooled_score(page.rows("predictions", representation=best, repeat="0"), score))


def beside_known(page: Page, target: str, label: str, *said: str) -> None:
    known, alone, title, both, again, gain, p, nothing = said
    assert title == again
    assert state_of(page, target) == "found"
    rows = page.rows("prediction_baselines", target).set_index("representation")
    row = rows.loc[page.key(title)]
    close(both, row["value"])
    chance = 0.5 if label == "AUC" else 0.0
    close(gain, row["value"] - np.nanmax([rows.loc[rows["model"] == "known", "value"].iloc[0], chance]))
    added(page, known, label, alone, title, gain, None if p == "not tested" else p, target)
    assert (nothing is not None) == (row["p_adds"] >= 0.05)


def highest_of_small_folds(
    page: Page, title: str, label: str, pooled: str, folds: str | None, mean: str | None, sd: str | None
) -> None:
    score = {"AUC": "auc", "r": "r"}[label]
    assert page.rows("prediction")["n_test"].median() < 10
    scores = pooled_scores(page, score)
    assert max(scores, key=scores.__getitem__) == page.key(title)
    close(pooled, scores[page.key(title)])
    if folds and mean and sd:
        spread_of_folds(page, title, score, folds, mean, sd)


def spread_of_folds(page: Page, title: str, score: str, folds: str, mean: str, sd: str) -> None:
    own = page.rows("prediction", representation=page.key(title))
    assert int(folds) == len(own)
    close(mean, own[score].mean())
    close(sd, own[score].std())


def pooled_scores(page: Page, score: str) -> dict[str, float]:
    """Score of all predictions of a repeat together, mean over repeats, of every representation."""
    return {
        str(name): float(np.mean([pooled_score(part, score) for _, part in own.groupby("repeat")]))
        for name, own in page.rows("predictions").groupby("representation")
    }


def pooled_score(part: pd.DataFrame, score: str) -> float:
    if score == "r":
        return float(part["observed"].corr(part["predicted"]))
    classes = part["observed"].isin([0.0, 1.0]).all()
    weights = np.ones(len(part)) if classes else part["observed"].abs()
    return float(roc_auc_score(part["observed"] > 0, part["predicted"], sample_weight=weights))


def difference(
    page: Page, better: str | None, label: str, mean: str, low: str, high: str, p: str, people: str | None
) -> pd.Series:
    (row,) = (each for _, each in page.rows("comparisons", representation="fc_power", reference="fc").iterrows())
    score = {"AUC": "auc", "r": "r"}[label]
    folds = page.rows("prediction").pivot_table(index=["repeat", "fold"], columns="representation", values=score)
    close(mean, (folds["fc_power"] - folds["fc"]).mean())
    close(low, row["ci_low"])
    close(high, row["ci_high"])
    same_p(p, row["p_two_sided"])
    assert (people is None) == np.isnan(row["p_people"])
    if people is not None:
        same_p(people, row["p_people"])
    if better:
        assert (better == "better") == (row["mean_difference"] > 0)
        assert row["p_two_sided"] < 0.05
    return row


def is_better(page: Page, title: str, better: str, *said: str) -> None:
    row = difference(page, better, *said)
    assert not row["p_people"] >= 0.05


def half_better(page: Page, title: str, better: str, *said: str) -> None:
    row = difference(page, better, *said)
    assert row["p_people"] >= 0.05


def only_people_differ(page: Page, title: str, *said: str) -> None:
    row = difference(page, None, *said)
    assert row["p_two_sided"] >= 0.05 > row["p_people"]


def opposite(page: Page, title: str, label: str, *said: str) -> None:
    row = difference(page, None, label, *said)
    scores = pooled_scores(page, row["score"])
    assert row["p_two_sided"] < 0.05
    assert (scores["fc_power"] - scores["fc"]) * row["mean_difference"] < 0


def no_evidence(page: Page, title: str, *said: str) -> None:
    row = difference(page, None, *said[:-2])
    assert row["p_two_sided"] >= 0.05
    assert not row["p_people"] < 0.05
    close(said[-2], (row["ci_high"] - row["ci_low"]) / 2)
    close(said[-1], (row["ci_high"] - row["ci_low"]) / 2 * 2.8 / 1.96)


def identified(page: Page, title: str, share: str, n: str, low: str, high: str, chance: str, *within: str) -> None:
    scans = page.table("identification_scans")
    own = scans[scans["representation"] == page.key(title)]
    assert int(n) == len(own)
    close(share, 100 * own["credit"].mean(), 0)
    table = page.table("identification").set_index("representation").loc[page.key(title)]
    close(low, 100 * table["ci_low"], 0)
    close(high, 100 * table["ci_high"], 0)
    close(chance, 100 / own["participant_id"].nunique())
    guessing, found, p = within
    same_p(p, table["p_permutation"])
    assert (guessing is None) == (table["n_sites"] == 1)
    if guessing is not None:
        close(guessing, 100 * table["chance_within"])
        close(found, 100 * table["accuracy_within"], 0)


def identifies_better(
    page: Page, title: str, better: str, other: str, wins: str, _: str, losses: str, __: str, p: str
) -> None:
    wide = page.table("identification_scans").pivot_table(
        index=["participant_id", "session"], columns="representation", values="credit"
    )
    net = wide[page.key(title)] - wide[page.key(other)]
    assert int(wins) == (net > 0).sum()
    assert int(losses) == (net < 0).sum()
    table = page.table("identification_comparisons").set_index(["representation", "reference"])
    row = table.loc[(page.key(title), page.key(other))]
    same_p(p, row["p_people"])
    assert row["p_people"] < 0.05
    assert (better == "better") == (net.sum() > 0)


def motion(page: Page, title: str, median: str, n: str, chance: str, share: str, p: str, distance: str | None) -> None:
    edges = page.table("qcfc")
    own = edges[edges["representation"] == page.key(title)]
    close(median, own["r"].abs().median())
    close(share, 100 * (own["q"] < 0.05).mean())
    summary = page.table("qcfc_summary").set_index("representation").loc[page.key(title)]
    assert int(n) == summary["n_people"]
    close(chance, summary["median_abs_r_chance"])
    same_p(p, summary["p_all"])
    if distance:
        close(distance, own["r"].abs().corr(own["distance"], method="spearman"))


def sites(
    page: Page, target: str, title: str, label: str, within: str, scored: str, n_sites: str, pooled: str, *rest: str
) -> None:
    table = page.rows("prediction_sites", target, representation=page.key(title)).set_index("over")
    each = table.loc[["site"]]
    assert int(n_sites) == len(each)
    assert int(scored or n_sites) == each["value"].notna().sum()
    each = each.dropna(subset=["value"])
    if label == "r":
        z = np.average(np.arctanh(each["value"]), weights=each["n_compared"] - 3)
        close(within, float(np.tanh(z)))
    else:
        close(within, float(np.average(each["value"], weights=each["n_compared"])))
    people = page.rows("predictions", target, representation=page.key(title))
    score = {"AUC": "auc", "r": "r"}[label]
    close(pooled, float(np.mean([pooled_score(part, score) for _, part in people.groupby("repeat")])))
    if rest[0]:
        row = table.loc["random effects"]
        for said, column in zip(rest[1:], ("value", "ci_low", "ci_high"), strict=True):
            close(said, row[column])


def sites_too_small(page: Page, target: str, title: str, n: str) -> None:
    table = page.rows("prediction_sites", target, representation=page.key(title))
    each = table[table["over"] == "site"]
    assert int(n) == len(each)
    assert each["value"].isna().all()


def further_sites(page: Page, n: str) -> None:
    """Which have a line is a matter of `tests/slices/sites/test_page.py`."""
    tables = [
        page.table(name) for name in ("prediction_sites", "harmonisation") if (page.folder / f"{name}.tsv").exists()
    ]
    assert int(n) + 4 in [each["target"].nunique() for each in tables]


def taken_by_combat(page: Page, said: str) -> None:
    """Shares of variance between the sites, from the table of phenotypes."""
    facts = page.facts("prediction")
    people = page.people
    parts = re.findall(r"(\d+) % of (?:the variance|that) of (\S+?)(?=,| and|$)", said)
    assert [name for _, name in parts] == list(facts["TargetsThatGoWithSites"])
    for share, name in parts:
        values, sites = people[name], people[facts["SiteColumn"]]
        between = values.groupby(sites).transform("mean").var(ddof=0) / values.var(ddof=0)
        close(share, 100 * between, 0)


def few_people(page: Page, n: str, smallest: str) -> None:
    assert int(n) == page.table("predictions")["participant_id"].nunique()
    n, r = int(n), float(smallest)
    p = [2 * stats.t.sf(each * np.sqrt((n - 2) / (1 - each**2)), n - 2) for each in (r - 0.006, r + 0.006)]
    assert p[0] > 0.05 > p[1]


def small_folds(page: Page, low: str, high: str | None) -> None:
    tested = page.table("prediction")["n_test"]
    assert (int(low), int(high or low)) == (tested.min(), tested.max())


def few_sets(page: Page, n: str) -> None:
    folds = page.table("folds")
    tests = folds[folds["role"] == "test"].groupby(["repeat", "fold"])["participant_id"].apply(frozenset)
    assert int(n) <= tests.nunique()
    assert int(n) == page.table("comparisons")["n_distinct"].min()


def skipped_folds(page: Page, skipped: str, total: str) -> None:
    table = page.table("prediction")
    binary = table.groupby("target")["auc"].transform(lambda values: values.notna().any())
    assert int(skipped) == table["auc"].where(binary, table["r"]).isna().sum()
    assert int(total) == len(table)


def edge_of_grid(page: Page, share: str) -> None:
    close(share, 100 * (page.table("prediction")["at_grid_edge"].astype(str).str.lower() == "true").mean(), 0)


def minutes(page: Page, median: str, low: str, high: str, fd: str, fd_low: str, fd_high: str) -> None:
    scans = page.table("scans")
    length = scans["seconds"] / 60
    for said, value in zip((median, low, high), (length.median(), length.min(), length.max()), strict=True):
        close(said, value)
    motion = scans["mean_fd"]
    for said, value in zip((fd, fd_low, fd_high), (motion.median(), motion.min(), motion.max()), strict=True):
        close(said, value)


def recordings(page: Page, n: str, people: str) -> None:
    scans = page.table("scans")
    assert int(n) == scans["n_runs"].sum()
    assert int(people) == scans["participant_id"].nunique()


def protocol(page: Page, repeats: str, outer: str, inner: str) -> None:
    folds = page.table("folds")
    assert int(repeats) == folds["repeat"].nunique()
    assert int(outer) == folds["fold"].nunique()
    assert int(inner) == folds.loc[folds["inner_fold"] >= 0, "inner_fold"].nunique()


def permutations(page: Page, number: str) -> None:
    null = page.table("null")
    assert int(number.replace(",", "")) == null["permutation"].max()


def smallest_p(page: Page, p: str) -> None:
    close(p, 1 / (1 + page.table("null")["permutation"].max()))


def null_p(page: Page, said: str) -> None:
    for title, p in re.findall(rf"{NAME} {P}", said):
        null = statistics_of(page.rows("null", representation=page.key(title))).iloc[:, 0]
        same_p(p, (1 + (null[1:] >= null[0] - 1e-12).sum()) / len(null))


def scatter(page: Page, said: str) -> None:
    for title, r, low, high, n in re.findall(rf"{NAME} r = {NUMBER} \(95 % CI {NUMBER} to {NUMBER}\), n = (\d+)", said):
        means = (
            page.rows("predictions", representation=page.key(title))
            .groupby("participant_id")[["observed", "predicted"]]
            .mean()
        )
        value = means["observed"].corr(means["predicted"])
        assert int(n) == len(means)
        for shown, z in ((r, 0.0), (low, -1.96), (high, 1.96)):
            close(shown, float(np.tanh(np.arctanh(value) + z / np.sqrt(len(means) - 3))))


def chance(page: Page, share: str) -> None:
    close(share, 100 / page.table("identification_scans")["participant_id"].nunique())


def lengths(page: Page, said: str) -> None:
    table = page.table("identification_length")
    for part in said.rstrip(".").split("; "):
        title = re.match(NAME, part)[1]
        own = table[table["representation"] == page.key(title)]
        for share, length in re.findall(r"(\d+) % with (\d+\.\d) min", part):
            at = own[(own["minutes"] - float(length)).abs() <= 0.05 + 1e-9]
            close(share, 100 * at["accuracy"].mean(), 0)


def found_of(page: Page, said: str) -> None:
    scans = page.table("identification_scans")
    for title, hits, n in re.findall(rf"{NAME}: (\d+) of (\d+)", said):
        own = scans[scans["representation"] == page.key(title)]
        assert int(n) == len(own)
        assert int(hits) == (own["credit"] >= 1).sum()


def exponents(page: Page, said: str) -> None:
    table = page.table("identification_alpha").sort_values("alpha", ascending=False)
    first, last, low, high, best, i_first, i_last, i_best = re.findall(r"\d+(?:\.\d+)?", said)[:8]
    close(first, table["alpha"].max(), 2)
    close(last, table["alpha"].min(), 2)
    close(low, 100 * table["accuracy"].iloc[0], 0)
    close(high, 100 * table["accuracy"].iloc[-1], 0)
    at_best = table[np.isclose(table["alpha"], float(best))]["accuracy"].iloc[0]
    assert at_best == table["accuracy"].max()
    close(i_first, table["i_diff"].iloc[0] * (100 if table["i_diff"].abs().max() < 2 else 1))
    close(i_last, table["i_diff"].iloc[-1] * (100 if table["i_diff"].abs().max() < 2 else 1))
    assert np.isclose(float(i_best), table.set_index("alpha")["i_diff"].idxmax())


def alarms(page: Page, n: str) -> None:
    assert int(n) == (page.table("check")["level"] == "alarm").sum()


def things(page: Page, serious: str, notes: str) -> None:
    table = page.table("check")
    assert int(serious) == (table["level"] != "note").sum()
    assert int(notes) == (table["level"] == "note").sum()


def nothing_misleads(page: Page) -> None:
    table = page.table("check")
    assert table.empty or (table["level"] == "note").all()


def nobody_left_out(page: Page) -> None:
    assert page.table("excluded").empty


def undeclared(page: Page) -> None:
    assert page.facts("prediction").get("FamilyColumn") in (None, "n/a")


def declared(page: Page, column: str) -> None:
    assert page.facts("prediction")["FamilyColumn"] == column
    folds = page.table("folds")
    assert set(folds["role"]) <= {"train", "test", "excluded"}


PERMUTED = (
    rf"\(permutation {P}(?:, corrected for (?:(\d+) representations(?: and (\d+) targets)?|(\d+) targets))?, {COUNT} "
    r"permutations"
    r"(, the smallest that so many can give)?\)"
)
BESIDE = (
    rf"(r|AUC) {NUMBER} over all predictions together, (?:where|but|and) the site \('([\w, ']+)'\) alone gives {NUMBER}"
)
TESTS = (
    rf"\(difference in (r|AUC) over folds {NUMBER}, 95 % CI {NUMBER} to {NUMBER}, corrected resampled t, {P}(?:; "
    rf"squared errors (?:over people|within sites, over \d+ sites), {P})?\)"
)
SMALL_TESTS = (
    rf"\((r|AUC) of all predictions together {NUMBER} against {NUMBER}; (?:squared errors over people, {P}; )?"
    rf"difference in (?:r|AUC) over small folds {NUMBER}, 95 % CI {NUMBER} to {NUMBER}, corrected resampled t, {P}\)"
)
WHERE = "(?:, within sites that are held out)?"


def compared(pattern: str, check: Callable[..., object], before: int = 1) -> Catalogue:
    """A sentence that compares FC^alpha with FC, as it is and where single folds are small; groups before the tests."""

    def in_small_folds(page: Page, *said: str) -> None:
        label, one, other, people, *rest = said[before : before + 8]
        scores = pooled_scores(page, {"AUC": "auc", "r": "r"}[label])
        close(one, scores["fc_power"])
        close(other, scores["fc"])
        assert page.rows("prediction")["n_test"].median() < 10
        check(page, *said[:before], label, *rest, people, *said[before + 8 :])

    in_small_folds.__name__ = check.__name__
    return (pattern.replace("TESTS", TESTS), check), (pattern.replace("TESTS", SMALL_TESTS), in_small_folds)


CATALOGUE: Catalogue = (
    (r"Corrected for (\d+) analyses \(Holm\): ([^.]*(?:\.\d[^.]*)+)\.(?!\d)", analyses_corrected),
    (r"Significant by itself alone, and no finding of this page: ([^.]+)\.", analyses_lost),
    (r"Nothing predicts (.+?) detectably\.", lacking_headline),
    (r"(.+?) (can be predicted better than chance)\.", headline),
    (rf"{NAME} identifies (\d+) % of the scans(?:, (\d+) % within the own site)?\.", best_identification),
    (r"No person is identified better than by chance \(at most (\d+) % of the searches find the person\)\.", by_chance),
    (rf"In this cohort {NAME} finds (\d+) % of the people in another session\.", best_identification),
    (r"(\d+) people(?:, (\d+) scans)?$", counts),
    (rf"(\S+): {BESIDE}(?:;|:) (more than the site was shown|nothing beyond the site was shown)\.", beside_site),
    (
        rf"(More than the site was shown|Nothing beyond the site was shown): {BESIDE} "
        rf"{PERMUTED.replace('permutation', 'within sites, permutation', 1)}\.",
        answer_beside_site,
    ),
    (
        rf"Highest score: {NAME}, (r|AUC) within sites that are held out {NUMBER}; all predictions together, offsets "
        rf"of sites included, {NUMBER}\.",
        highest_within,
    ),
    (
        rf"No evidence that the offset of a new site differs between them \(difference in size {NUMBER}, {P}\)\.",
        offset,
    ),
    (
        rf"The offset of a new site is (smaller|larger) under {NAME} than under FC \(difference in size {NUMBER}, {P}\)"
        r"\.",
        lambda page, better, _, *said: offset(page, better, *said),
    ),
    (rf"Predicted better than chance {PERMUTED}\.", found),
    (
        rf"Known without a scan \((.+?)\): (r|AUC) {NUMBER} on the folds of the first repeat; {NAME} adds {NUMBER}"
        rf"(?: \(permutation {P}\))?\.",
        added,
    ),
    (
        rf"(r|AUC) {NUMBER} from the features as they are, {NUMBER} after ComBat \(all predictions of the first "
        r"repeat, on the same folds\)\.",
        changed_by_combat,
    ),
    (
        rf"(\S+), (r|AUC): (.+?) alone {NUMBER}, with {NAME} {NUMBER}; {NAME} adds {NUMBER} "
        rf"\((not tested|{P[1:-1]})(, nothing beyond was shown)?\)\.",
        beside_known,
    ),
    (
        rf"Nothing was found: no representation predicts it detectably better than chance {PERMUTED}\. The "
        rf"threshold was an observed (r|AUC) of {NUMBER} (?:over all predictions together|within sites), and a true "
        rf"one of {NUMBER} is found in 80 of 100 cohorts\.",
        not_found,
    ),
    (
        rf"Highest score: {NAME}, mean (r|AUC) over (\d+) folds {NUMBER} \(SD {NUMBER}\); all predictions together "
        rf"{NUMBER}\.",
        highest,
    ),
    (
        rf"Highest score: {NAME}, (r|AUC) of all predictions together {NUMBER}; (?:single folds have none|the mean "
        rf"over (\d+) small folds, {NUMBER} \(SD {NUMBER}\), is mostly noise)\.",
        highest_of_small_folds,
    ),
    *compared(
        rf"No evidence that {NAME} and FC differ{WHERE} TESTS; the threshold was an observed difference of "
        rf"{NUMBER}, and a true one of {NUMBER} is found in 80 of 100 cohorts\.",
        no_evidence,
    ),
    *compared(
        rf"It is not clear whether {NAME} and FC differ{WHERE}: only one of two tests sees it TESTS\.",
        only_people_differ,
    ),
    *compared(
        rf"It is not clear whether {NAME} and FC differ: all predictions together and single folds point in opposite "
        r"directions TESTS\.",
        opposite,
    ),
    *compared(rf"{NAME} is (better|worse) than FC{WHERE} TESTS\.", is_better, 2),
    *compared(
        rf"{NAME} scores (better|worse) than FC{WHERE}, but only one of two tests sees it TESTS:", half_better, 2
    ),
    (
        rf"{NAME} finds the person in (\d+) % of (\d+) searches \(95 % CI (\d+) % to (\d+) % over people; "
        rf"chance {NUMBER} %(?:, within the own site {NUMBER} %; among people of the own site alone it finds (\d+) %)?"
        rf"; permutation {P}\)\.",
        identified,
    ),
    (
        rf"{NAME} identifies (better|worse) than {NAME} \((\d+) search(?:es)? only {NAME} gets "
        rf"right, (\d+) only {NAME}; exact "
        rf"sign flips over people {P}\)\.",
        identifies_better,
    ),
    (
        rf"{NAME}: median \|r\| with mean FD is {NUMBER} over (\d+) people \(chance gives {NUMBER}\); {NUMBER} % of "
        rf"the edges are significant after control of the false discovery rate; all edges together, permutation {P}"
        r"(?:; Spearman "
        rf"correlation of \|r\| with distance {NUMBER})?\.",
        motion,
    ),
    (
        rf"(\S+) from {NAME}: within sites (r|AUC) {NUMBER} \((?:(\d+) of )?(\d+) sites\), all "
        rf"together {NUMBER}(; over sites that "
        rf"may differ {NUMBER}, 95 % CI {NUMBER} to {NUMBER})?\.",
        sites,
    ),
    (rf"(\S+) from {NAME}: no site of (\d+) sites has enough people for a score of its own\.", sites_too_small),
    (
        r"(\d+) more targets are in the table; the best of none scores further above what it scores within sites\.",
        further_sites,
    ),
    (
        r" ?ComBat does not keep the target: it takes what target and site share \((.+?) lies? between sites\), so",
        taken_by_combat,
    ),
    (
        rf"Only (\d+) people: even without any cross-validation a single correlation is significant from "
        rf"{NUMBER} on, and the scores below are very uncertain\.",
        few_people,
    ),
    (
        r"Test folds of (\d+)(?: to (\d+))? (?:people|person): .*? \(with two people it can only be 1 or -1\)\.",
        small_folds,
    ),
    (
        r"Score of all predictions together, since a mean over folds of (\d+)(?: to (\d+))? (?:people|person) is "
        r"mostly noise;",
        small_folds,
    ),
    (r"Only (\d+) distinct test sets?: comparisons rest on very little evidence\.", few_sets),
    (r"The score is not defined in (\d+) of (\d+) folds \(constant values or one class\); left out\.", skipped_folds),
    (r"In (\d+) % of the folds the selected penalty is the smallest or the largest of the grid: .*?\.", edge_of_grid),
    (
        rf"Scans have {NUMBER} cleaned minutes \(median; {NUMBER} to {NUMBER}\) and a mean FD of {NUMBER} mm \(median; "
        rf"{NUMBER} to {NUMBER}\)\.",
        minutes,
    ),
    (r"(\d+) recordings of (\d+) people; (?=none stands out)", recordings),
    (r"Nested cross-validation \((\d+) × (\d+) outer and (\d+) inner folds, protocol '\w+'\): .*?\.", protocol),
    (rf"Permutations: {COUNT} per target(?:, as asked for \(--permutations\)\.|: as many as .*?;)", permutations),
    (r"the smallest p is (\d\.\d+)\.", smallest_p),
    (r"The line is the score of the true targets, the grey bars those of permuted ones: (.*)\.$", null_p),
    (r"One dot per person, .*?\(people taken as independent\): (.*?)\. Averaging", scatter),
    (rf"Mean of both directions .*? dashed: chance, {NUMBER} %\.", chance),
    (r"First minutes of every cleaned scan, up to the shortest: (.*)", lengths),
    (r"One mark per search: .*? Found: (.*)", found_of),
    (r"From α = (.*?\(highest at α = [\d.]+\) and Idiff from .*?\(highest at α = [\d.]+\))\..*", exponents),
    (r"The check found (\d+) things? that would mislead; read it first\.", alarms),
    (r"(\d+) things? to look at, (\d+) notes?\.", things),
    (r"Nothing was found that would mislead\.", nothing_misleads),
    (r"Observed is the residual of the covariates, fitted to the training people of each fold\.", observed_residuals),
    (r"No person and no recording was left out at group level\.", nobody_left_out),
    (r"Relatives were not declared \(--family-column\); .*?\.", undeclared),
    (r"Families \('(\w+)'\) are never split between training and test people\.", declared),
)
