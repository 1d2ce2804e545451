"""Numbers of a model and of its pages, by numpy and scipy from the connectomes and the table of people."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.cli.run import main
from fcpower_bids.outputs.tables import read_table
from tests.doors.cohort import ridge
from tests.slices.clinic.planted import group, make_cohort, models

SITES, PEOPLE, NEW = 6, 120, 12
EDGES = np.triu_indices(6, 1)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Facts of a model of six sites, its table and pages of new people of known age, and where all of it is."""
    root = make_cohort(tmp_path_factory.mktemp("numbers"), 0.8, SITES, people=PEOPLE, seed=4, new=NEW)
    assert group(root, "--site-column", "site", permutations=100) == 0
    (model,) = models(root)
    assert main(["predict", str(model), str(root / "new"), "--phenotypes", str(root / "truth.tsv")]) == 0
    table = read_table(root / "new" / "group" / "predicted" / "target-age-fc.tsv").set_index("participant_id")
    return json.loads((model / "model.json").read_text()), table, root


def edges_in(folder) -> pd.DataFrame:
    """Upper triangles of the connectomes of a folder, one row per person."""
    rows = {}
    for path in sorted(folder.rglob("*_stat-pearsoncorrelation_relmat.tsv")):
        matrix = pd.read_csv(path, sep="\t", index_col=0).to_numpy(dtype=float)
        rows[re.search(r"sub-\d+", path.name).group()] = matrix[EDGES]
    return pd.DataFrame(rows).T


@pytest.fixture(scope="module")
def held_out(found):
    """Known and predicted ages, sites and motion of the training people, each site predicted from the others."""
    facts, _, root = found
    people = pd.read_csv(root / "bids" / "participants.tsv", sep="\t").set_index("participant_id")
    edges = edges_in(root / "out").loc[people.index]
    for site in people["site"].unique():
        own = people["site"] == site
        rows = (edges[~own].to_numpy(), people.loc[~own, "age"].to_numpy(), edges[own].to_numpy())
        people.loc[own, "predicted"] = ridge(*rows, facts["Penalty"])
        people.loc[own, "guess"] = people.loc[~own, "age"].mean()
    for path in (root / "out").rglob("*_qc.tsv"):
        people.loc[re.search(r"sub-\d+", path.name).group(), "fd"] = pd.read_csv(path, sep="\t")["mean_fd"].iloc[0]
    return people.assign(error=people["predicted"] - people["age"])


def radius(people: pd.DataFrame, level: float = 0.9) -> float:
    """The quantile of errors, sites weighing equally, times t / z with Satterthwaite's degrees of freedom."""
    people = people.assign(size=people["error"].abs()).sort_values("size")
    n, sites = len(people), people["site"].nunique()
    mass = (1 / people.groupby("site")["error"].transform("size") / sites).cumsum()
    quantile = people["size"].iloc[int(np.searchsorted(mass, level * (1 - 1e-12)))]
    of_site = people.groupby("site")["error"]
    between = (of_site.mean() ** 2).mean()
    square = ((people["error"] - of_site.transform("mean")) ** 2).sum() / (n - sites)
    within = square * (1 - 1 / of_site.size()).mean()
    freedom = (between + within) ** 2 / (between**2 / sites + within**2 / (n - sites))
    return float(quantile * stats.t.ppf((1 + level) / 2, freedom) / stats.norm.ppf((1 + level) / 2))


def thirds(values: pd.Series) -> np.ndarray:
    """0, 1 or 2 for the lowest, middle and highest third."""
    return np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="right")


def test_widths_are_those_of_thirds_of_the_prediction(found, held_out):
    interval, part = found[0]["Interval"], thirds(held_out["predicted"])
    assert interval["PredictedEdges"] == pytest.approx(np.quantile(held_out["predicted"], [1 / 3, 2 / 3]), rel=1e-4)
    assert interval["RadiusOfParts"] == pytest.approx([radius(held_out[part == one]) for one in range(3)], rel=1e-4)
    assert interval["Radius"] == pytest.approx(radius(held_out), rel=1e-4)
    assert (interval["Groups"], interval["Scans"]) == (SITES, PEOPLE)


def test_coverage_is_that_of_each_site_by_the_others(found, held_out):
    interval, inside = found[0]["Interval"], pd.Series(index=held_out.index, dtype=float)
    for site in held_out["site"].unique():
        own = held_out["site"] == site
        others, here = held_out[~own], held_out[own]
        edges, part = np.quantile(others["predicted"], [1 / 3, 2 / 3]), thirds(others["predicted"])
        parts = [others[part == one] for one in range(3)]
        one_width = min(map(len, parts)) < 30
        widths = [radius(others)] * 3 if one_width else [radius(each) for each in parts]
        limit = np.array(widths)[np.searchsorted(edges, here["predicted"], side="right")]
        inside[own] = (here["error"].abs() <= limit).astype(float)
    by = inside.groupby(held_out["site"]).mean()
    assert interval["CoverageByGroup"] == pytest.approx(by.to_dict())
    assert (interval["MeasuredCoverage"], interval["LeastCoverageOfAGroup"]) == pytest.approx((by.mean(), by.min()))
    for key, values in (("CoverageByThirdOfPrediction", "predicted"), ("CoverageByThirdOfValue", "age")):
        part = thirds(held_out[values])
        assert interval[key] == pytest.approx([inside[part == one].mean() for one in range(3)]), key
    still = held_out["fd"] <= held_out["fd"].median()
    assert interval["CoverageByMotion"] == pytest.approx([inside[still].mean(), inside[~still].mean()])


def test_skill_is_measured_against_the_guess(found, held_out):
    facts, _, root = found
    skill, guess = facts["Skill"], held_out["guess"] - held_out["age"]
    assert skill["Error"] == pytest.approx(np.sqrt((held_out["error"] ** 2).mean()), rel=1e-4)
    assert skill["ErrorOfGuess"] == pytest.approx(np.sqrt((guess**2).mean()), rel=1e-6)
    of_site = held_out.groupby("site").apply(lambda one: stats.pearsonr(one["age"], one["predicted"]).statistic)
    assert skill["OverSites"] == pytest.approx(
        np.average(of_site, weights=held_out["site"].value_counts().sort_index())
    )
    assert skill["WidthOfInterval"] == pytest.approx(2 * radius(held_out), rel=1e-4)
    written = pd.read_csv(root / "out" / "group" / "predictions.tsv", sep="\t")
    pooled = [stats.pearsonr(one["observed"], one["predicted"]).statistic for _, one in written.groupby("repeat")]
    assert skill["OverPeople"] == pytest.approx(np.mean(pooled), abs=1e-5)
    for site, scores in facts["HeldOutScores"]["site"].items():
        errors = held_out.loc[held_out["site"] == site, "error"]
        told = (scores["Scans"], scores["MeanError"], scores["SD"], scores["MAE"])
        assert told == pytest.approx((len(errors), errors.mean(), errors.std(), errors.abs().mean()), rel=1e-3)


def test_gaps_of_new_people_are_measured_from_the_line_of_the_training(found, held_out):
    facts, table, root = found
    known = pd.read_csv(root / "truth.tsv", sep="\t").set_index("participant_id")["age"][table.index]
    line = stats.linregress(held_out["age"], held_out["predicted"])
    told = facts["PredictedOnKnown"]
    assert (told["slope"], told["intercept"]) == pytest.approx((line.slope, line.intercept), rel=1e-3)
    assert table["gap"].to_numpy() == pytest.approx((table["prediction"] - known).to_numpy(), abs=1e-6)
    expected = table["prediction"] - line.intercept - line.slope * known
    assert table["gap_corrected"].to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-3)
    rest = held_out["predicted"] - line.intercept - line.slope * held_out["age"]
    sd = np.sqrt((rest**2).sum() / (PEOPLE - 2))
    away = (known - held_out["age"].mean()) ** 2 / ((held_out["age"] - held_out["age"].mean()) ** 2).sum()
    assert table["gap_error"].to_numpy() == pytest.approx((sd * np.sqrt(1 + 1 / PEOPLE + away)).to_numpy(), rel=1e-4)
    reference = pd.read_csv(root / "bids" / "participants.tsv", sep="\t").set_index("participant_id")
    own = edges_in(root / "out").loc[reference.index].to_numpy()
    ages = ridge(own, reference["age"].to_numpy(), edges_in(root / "new").loc[table.index].to_numpy(), facts["Penalty"])
    assert table["prediction"].to_numpy() == pytest.approx(ages, abs=1e-3)


def test_the_end_of_the_command_counts_who_is_inside(found):
    _, table, root = found
    known = pd.read_csv(root / "truth.tsv", sep="\t").set_index("participant_id")["age"][table.index]
    about = json.loads((root / "new" / "group" / "predicted" / "target-age-fc.json").read_text())["KnownValues"]
    error = table["prediction"] - known
    inside = (error.abs() <= table["high"] - table["prediction"]).sum()
    assert (about["people"], about["inside"]) == (NEW, inside)
    assert (about["mean_error"], about["mean_absolute_error"]) == pytest.approx((error.mean(), error.abs().mean()))


def test_a_page_states_these_numbers(found):
    facts, table, root = found
    person, row = next(iter(table.iterrows()))
    page = html.unescape((root / "new" / f"{person}_target-age-fc.html").read_text())
    width = row["high"] - row["low"]
    digits = max(int(np.ceil(-np.log10(width / 10))), 0)
    assert (
        f"age: between {row['low']:.{digits}f} and {row['high']:.{digits}f}; best guess {row['prediction']:.{digits}f}."
        in page
    )
    interval = facts["Interval"]
    assert f"it held in {100 * interval['MeasuredCoverage']:.0f}, in the worst part" in page
    shares = interval["CoverageByThirdOfValue"]
    uneven = not all(0.85 <= share <= 0.95 for share in shares)
    low, middle, high = (f"{100 * share:.0f} %" for share in shares)
    of_thirds = f"in {low} of the lowest third, {middle} of the middle third, {high} of the highest"
    assert (f"By known age it held unevenly: {of_thirds}" in page) == uneven
    skill = facts["Skill"]
    assert f"error {skill['Error']:.3g}, that of the guess {skill['ErrorOfGuess']:.3g}" in page
