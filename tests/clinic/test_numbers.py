"""Numbers of a model and of its pages, by numpy and scipy from the connectomes and the table of people."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.clinic.fit import conformal_radius
from fcpower_bids.core.folds import deal_families
from fcpower_bids.core.series import z_score
from fcpower_bids.outputs.tables import read_table
from tests.clinic.planted import group, make_cohort, models, series_with
from tests.command import main
from tests.doors.test_doors_in_pairs import ridge
from tests.planting.participant_outputs import add_output

PEOPLE, NEW = 120, 12
EDGES = np.triu_indices(6, 1)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Facts of a model, its table and pages of new people, and where all of it is."""
    root = make_cohort(tmp_path_factory.mktemp("numbers"), 0.8, people=PEOPLE, seed=4, new=NEW)
    assert group(root, permutations=20) == 0
    (model,) = models(root)
    assert main(["predict", str(model), str(root / "new"), "--phenotypes", str(root / "truth.tsv")]) == 0
    table = read_table(root / "new" / "group" / "predicted" / "target-age-fc.tsv").set_index("participant_id")
    return json.loads((model / "model.json").read_text()), table, root


def scans_in(folder) -> pd.DataFrame:
    """Upper triangles of every connectome, one row per scan, by person."""
    paths = sorted(folder.rglob("*_stat-pearsoncorrelation_relmat.tsv"))
    rows = [pd.read_csv(path, sep="\t", index_col=0).to_numpy(dtype=float)[EDGES] for path in paths]
    return pd.DataFrame(rows, index=[re.search(r"sub-\d+", path.name).group() for path in paths])


@pytest.fixture(scope="module")
def held_out(found):
    """Known and predicted ages of the training people, each of three folds predicted from the others."""
    facts, _, root = found
    people = pd.read_csv(root / "bids" / "participants.tsv", sep="\t").set_index("participant_id").sort_index()
    edges = scans_in(root / "out").loc[people.index]
    people["fold"] = deal_families(np.arange(PEOPLE), 3, np.random.default_rng(0))
    for fold in range(3):
        own = people["fold"] == fold
        rows = (edges[~own].to_numpy(), people.loc[~own, "age"].to_numpy(), edges[own].to_numpy())
        people.loc[own, "predicted"] = ridge(*rows, facts["Penalty"])
        people.loc[own, "guess"] = people.loc[~own, "age"].mean()
    return people.assign(error=people["predicted"] - people["age"])


def radius(errors: pd.Series) -> float:
    """The quantile of split-conformal prediction."""
    return float(np.sort(errors.abs())[math.ceil(0.9 * (len(errors) + 1)) - 1])


def test_the_interval_is_that_of_the_residuals_and_measured_without_each_fold(found, held_out):
    interval = found[0]["Interval"]
    assert (interval["NominalCoverage"], interval["Scans"]) == (0.9, PEOPLE)
    assert interval["Radius"] == pytest.approx(radius(held_out["error"]), rel=1e-4)
    held = [
        (own["error"].abs() <= radius(held_out.loc[held_out["fold"] != fold, "error"])).mean()
        for fold, own in held_out.groupby("fold")
    ]
    assert interval["MeasuredCoverage"] == pytest.approx(np.mean(held))


def test_skill_is_measured_against_the_guess(found, held_out):
    facts, _, root = found
    skill, guess = facts["Skill"], held_out["guess"] - held_out["age"]
    assert skill["Error"] == pytest.approx(np.sqrt((held_out["error"] ** 2).mean()), rel=1e-4)
    assert skill["ErrorOfGuess"] == pytest.approx(np.sqrt((guess**2).mean()), rel=1e-6)
    written = pd.read_csv(root / "out" / "group" / "predictions.tsv", sep="\t")
    pooled = [stats.pearsonr(one["observed"], one["predicted"]).statistic for _, one in written.groupby("repeat")]
    assert skill["OverPeople"] == pytest.approx(np.mean(pooled), abs=1e-5)


def test_the_classes_of_a_scan_are_those_that_its_score_does_not_rule_out(tmp_path):
    """A third are patients, and some people have two scans."""
    root = make_cohort(tmp_path, 0.95, people=60, seed=5, new=NEW)
    truth = pd.read_csv(root / "truth.tsv", sep="\t").set_index("participant_id")
    above = truth["age"] > truth["age"].quantile(2 / 3)
    truth["group"] = np.where(above, "patient", "control")
    (root / "bids" / "participants.tsv").write_text(truth.iloc[:60].to_csv(sep="\t"))
    rng = np.random.default_rng(6)
    for person in truth.index[:20]:
        factor = (truth.loc[person, "age"] - 45) / 12
        add_output(root / "out", f"{person}_ses-b", z_score(series_with(factor, rng)))
    assert group(root, target="group", permutations=20) == 0
    (model,) = models(root)
    assert main(["predict", str(model), str(root / "new")]) == 0
    table = read_table(root / "new" / "group" / "predicted" / f"{model.name.removesuffix('_model')}.tsv")
    facts = json.loads((model / "model.json").read_text())
    assert (facts["PositiveClass"], facts["NegativeClass"]) == ("patient", "control")

    scans = pd.concat([scans_in(root / "out"), scans_in(root / "new")])
    value, known = (truth["group"] == "patient").astype(float), truth.index[:60]
    edges = scans.groupby(level=0).mean()
    folds = pd.Series(deal_families(np.arange(60), 3, np.random.default_rng(0)), known)
    residuals = []
    for fold in range(3):
        train, own = known[folds != fold], scans.loc[known[folds == fold]]
        score = ridge(edges.loc[train].to_numpy(), value[train].to_numpy(), own.to_numpy(), facts["Penalty"])
        error = score - value[own.index].to_numpy()
        residuals.append(pd.DataFrame({"person": own.index, "size": np.abs(error)}))
    residuals = pd.concat(residuals)
    radii = {name: half_width(part) for name, part in residuals.groupby(residuals["person"].map(truth["group"]))}
    assert facts["Interval"]["RadiusOfClasses"] == pytest.approx(radii, rel=1e-3)
    new = edges.loc[table["participant_id"]].to_numpy()
    scores = ridge(edges.loc[known].to_numpy(), value[known].to_numpy(), new, facts["Penalty"])
    assert table["prediction"].to_numpy() == pytest.approx(scores, abs=1e-3)
    for score, said in zip(scores, table["classes"], strict=True):
        possible = [name for name, end in (("control", 0), ("patient", 1)) if abs(score - end) <= radii[name]]
        assert sorted(str(said).replace("nan", "").split(" or ")) == (possible or [""])
    assert table[["low", "high"]].isna().all(axis=None)


def half_width(residuals: pd.DataFrame) -> float:
    """The quantile of split-conformal prediction where every person weighs the same, however many scans there are."""
    people = residuals["person"].nunique() + 1
    mass = (1 / residuals.groupby("person")["size"].transform("size") / people).to_numpy()
    order = np.argsort(residuals["size"].to_numpy())
    return float(residuals["size"].to_numpy()[order][np.flatnonzero(np.cumsum(mass[order]) >= 0.9 - 1e-9)[0]])


@pytest.mark.parametrize("n", [2, 8])
def test_few_people_claim_no_more_than_they_can(n):
    found = conformal_radius(np.arange(1.0, n + 1), np.arange(n), 0.9)
    assert found == (n, pytest.approx(n / (n + 1)))


def test_a_scan_of_a_further_person_is_covered_as_claimed():
    rng, covered = np.random.default_rng(1), []
    for _ in range(300):
        people = np.repeat(np.arange(31), rng.integers(1, 6, 31))
        residuals = rng.normal(size=31)[people] + rng.normal(size=len(people))
        seen = people < 30
        covered.append(np.mean(np.abs(residuals[~seen]) <= conformal_radius(residuals[seen], people[seen])[0]))
    assert 0.88 < np.mean(covered) < 0.95
