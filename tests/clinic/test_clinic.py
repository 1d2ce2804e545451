"""Saved models and their predictions: numbers by hand, what they know of themselves, and what people are told."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.clinic.fit import (
    conformal_radius,
    fit_final_model,
    judge_skill,
    load_model,
    model_path,
    save_model,
)
from fcpower_bids.clinic.page import answer_person, fitting
from fcpower_bids.clinic.predict import apply_model
from fcpower_bids.cohort.inclusion import Quality
from fcpower_bids.core.edges import rebuild_matrix
from fcpower_bids.core.folds import deal_families
from fcpower_bids.core.series import z_score
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_table, write_table
from tests.analyses.cohorts import choose, demo_cohort
from tests.clinic.planted import group, make_cohort, models, series_with
from tests.doors.test_doors_in_pairs import ridge
from tests.planting.participant_outputs import add_output
from tests.running import run

PEOPLE, NEW = 120, 12
UNMEASURED = Quality(np.nan, np.nan, np.nan, np.nan)
EDGES = np.triu_indices(6, 1)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Facts of a model, and where it and new people are."""
    root = make_cohort(tmp_path_factory.mktemp("numbers"), 0.8, people=PEOPLE, seed=4, new=NEW)
    group(root, permutations=20)
    return json.loads((models(root)[0] / "model.json").read_text()), root


def scans_in(folder) -> pd.DataFrame:
    """Upper triangles of every connectome, one row per scan, by person."""
    paths = sorted(folder.rglob("*_stat-pearsoncorrelation_relmat.tsv"))
    rows = [pd.read_csv(path, sep="\t", index_col=0).to_numpy(dtype=float)[EDGES] for path in paths]
    return pd.DataFrame(rows, index=[re.search(r"sub-\d+", path.name).group() for path in paths])


@pytest.fixture(scope="module")
def held_out(found):
    """Known and predicted ages of the training people, each of three folds predicted from the others."""
    facts, root = found
    people = pd.read_csv(root / "bids" / "participants.tsv", sep="\t").set_index("participant_id").sort_index()
    edges = scans_in(root / "out").loc[people.index]
    people["fold"] = deal_families(np.arange(PEOPLE), 3, np.random.default_rng(0))
    for fold in range(3):
        own = people["fold"] == fold
        rows = (edges[~own].to_numpy(), people.loc[~own, "age"].to_numpy(), edges[own].to_numpy())
        people.loc[own, "predicted"] = ridge(*rows, facts["Penalty"])
        people.loc[own, "guess"] = people.loc[~own, "age"].mean()
    people["error"] = people["predicted"] - people["age"]
    return people.assign(person=people.index, size=people["error"].abs())


def half_width(residuals: pd.DataFrame) -> float:
    """The quantile of split-conformal prediction where every person weighs the same, however many scans there are."""
    people = residuals["person"].nunique() + 1
    mass = (1 / residuals.groupby("person")["size"].transform("size") / people).to_numpy()
    order = np.argsort(residuals["size"].to_numpy())
    return float(residuals["size"].to_numpy()[order][np.flatnonzero(np.cumsum(mass[order]) >= 0.9 - 1e-9)[0]])


def test_the_interval_is_that_of_the_residuals_and_measured_without_each_fold(found, held_out):
    interval = found[0]["Interval"]
    assert (interval["NominalCoverage"], interval["Scans"]) == (0.9, PEOPLE)
    assert interval["Radius"] == pytest.approx(half_width(held_out), rel=1e-4)
    held = [(own["size"] <= half_width(held_out.drop(own.index))).mean() for _, own in held_out.groupby("fold")]
    assert interval["MeasuredCoverage"] == pytest.approx(np.mean(held))


def test_skill_is_measured_against_the_guess(found, held_out):
    facts, root = found
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
    group(root, target="group", permutations=20)
    (model,) = models(root)
    run("predict", model, root / "new", code=0)
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


CHOICES = {"family_column": "family_id", "targets": ("planted_score", "g=reasoning,memory,speed"), "folds": 5}


@pytest.fixture(scope="module")
def split():
    """A cohort, and one with 30 of its people left for testing."""
    cohort = demo_cohort(90, seed=1)
    train = cohort.scans["participant_id"].str[-2:].astype(int).to_numpy() < 60
    scans = cohort.scans[train].reset_index(drop=True)
    return cohort, dataclasses.replace(cohort, scans=scans, edges=cohort.edges[train], series=())


def connectome(cohort, row):
    return rebuild_matrix(cohort.edges[row], 1.0, weighted=False)


@pytest.mark.parametrize("kernel", ["correlation", "linear"])
def test_new_people_are_predicted(split, kernel):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES, kernel=kernel), "planted_score", "fc_power")
    facts = json.loads(json.dumps(model.facts))
    found = [apply_model(model, connectome(cohort, row), cohort.parcels, UNMEASURED) for row in range(120, 180)]
    truth = cohort.phenotypes["planted_score"].loc[cohort.scans["participant_id"].iloc[120:180]]
    assert np.corrcoef([row["prediction"] for row, _ in found], truth)[0, 1] > 0.7
    assert np.mean([not warnings for _, warnings in found]) > 0.8
    assert np.mean([row["low"] <= value <= row["high"] for (row, _), value in zip(found, truth, strict=True)]) > 0.8
    assert facts["NumberOfPeople"] == 60
    (low, high), ages = facts["AgeRange"], cohort.phenotypes["age"].iloc[:60].astype(float)
    assert low < ages.min() < ages.max() < high, "the ends are of nobody"
    assert high - low < 1.4 * np.ptp(ages)
    assert facts["SecondsRange"] == [400.0, 400.0]
    assert facts["Alpha"] == 0.35


def test_a_scan_and_what_is_said_of_it_are_compared_with_the_training(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    quality = Quality(seconds=100, volumes=125, mean_fd=3.0, degrees_of_freedom=np.nan)
    warnings = " ".join(apply_model(model, connectome(cohort, 0), cohort.parcels, quality, age=95, seen=True)[1])
    for said in ("fitted on this very scan", "95 years old", "1.67 minutes, the training scans 6.67 to 6.67"):
        assert said in warnings
    assert "repetition time of 0.8 s" in warnings
    assert "motion of 3 mm" in warnings
    strange = np.corrcoef(np.random.default_rng(1).standard_normal((60, 300)))
    assert "unlike those of the training people" in apply_model(model, strange, cohort.parcels, UNMEASURED)[1][0]
    model.facts["TargetRange"] = [1e6, 2e6]
    assert "outside the values of 'planted_score'" in apply_model(model, strange, cohort.parcels, UNMEASURED)[1][-1]


def test_models_of_other_names_have_other_folders(tmp_path):
    path = model_path(tmp_path, "fluid IQ/2", "fc_power")
    assert path.name.startswith("target-fluid-IQ-2-fc-power-")
    assert path != model_path(tmp_path, "fluid-IQ/2", "fc_power")
    assert model_path(tmp_path, "age", "fc").name == "target-age-fc_model"


class Harmful:
    def __reduce__(self):
        return (print, ("code was run",))


def card(path, text):
    path.mkdir()
    (path / "model.json").write_text(text)


def with_pickle(path):
    card(path, '{"Format": "fcpower_bids model 10", "Digests": {}}')
    np.savez(path / "weights.npz", weights=np.array([Harmful()], dtype=object))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
        lambda path: card(path, '{"Format": "other"}'),
        with_pickle,
    ],
)
def test_what_is_not_a_model_is_refused_and_never_run(tmp_path, write, capsys):
    path = tmp_path / "a_model"
    write(path)
    with pytest.raises(DatasetError, match=r"a_model.*(OUTPUT_DIR/group/models|model 11 is needed)"):
        load_model(path)
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize(("old", "new"), [('"Alpha": 0.35', '"Alpha": "much"'), ('["a"]', "7")])
def test_a_changed_card_is_named(tmp_path, old, new):
    path = save_model(tmp_path / "a_model", {"weights": np.arange(3.0)}, {"Alpha": 0.35, "Parcels": ["a"], "n": np.nan})
    card = path / "model.json"
    text = " ".join(card.read_text().split()).replace("[ ", "[").replace(" ]", "]")
    card.write_text("\ufeff" + text)
    assert load_model(path)[1]["Parcels"] == ["a"], "laid out anew, with a mark of its encoding"
    assert old in text
    card.write_text(text.replace(old, new))
    with pytest.raises(DatasetError, match=r"model\.json is not the file|model 11 is needed"):
        load_model(path)


def columns_of(folder: Path) -> dict[str, list]:
    """Every list, array and column of a model folder."""
    found: dict[str, list] = {}

    def walk(name: str, value: object) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                walk(f"{name}/{key}", each)
            found[f"{name} in order"] = list(value.values())
        elif isinstance(value, list):
            found[name] = value
            for key in value[0] if value and isinstance(value[0], dict) else ():
                found[f"{name}/{key}"] = [each.get(key) for each in value]

    walk("card", json.loads((folder / "model.json").read_text()))
    for path in folder.glob("*.tsv"):
        table = read_table(path)
        found |= {f"{path.name}/{name}": table[name].tolist() for name in table}
    with np.load(folder / "weights.npz") as arrays:
        found |= {name: arrays[name].ravel().tolist() for name in arrays.files if arrays[name].ndim}
    return found


def test_the_only_list_that_is_as_long_as_the_cohort_is_that_of_digests(found, tmp_path):
    root = found[1]
    folder = shutil.copytree(models(root)[0], tmp_path / "model")
    columns = columns_of(folder)
    assert [name for name, values in columns.items() if len(values) >= PEOPLE] == ["card/TrainingScans"]
    people = read_table(root / "bids" / "participants.tsv")
    numbers = [one for values in columns.values() for one in values if isinstance(one, float)]
    assert not set(np.round(people["age"].to_numpy(), 6)) & set(np.round(numbers, 6))
    write_table(folder / "residuals.tsv", people[["age"]])  # a fault that was in models of an earlier format
    assert len(columns_of(folder)["residuals.tsv/age"]) == PEOPLE


def test_two_models_of_one_name_are_refused_before_anything_is_written(found, tmp_path):
    root = found[1]
    (model,) = models(root)
    there = shutil.copytree(root / "new", tmp_path / "out")
    other = shutil.copytree(model, tmp_path / "other" / model.name)
    for named in ([model, other], [model, model], [model, f"{other}/"]):
        assert f"Two models are called {model.name}" in run("predict", *named, there, code=2).err
    assert not (there / "group" / "predicted").exists()


def test_a_table_with_ages_of_refused_scans_alone_is_no_fault_at_the_end(found, tmp_path):
    (model,), there = models(found[1]), shutil.copytree(found[1] / "new", tmp_path / "new", symlinks=True)
    broken = next(there.rglob("*_stat-pearsoncorrelation_relmat.tsv"))
    broken.write_text("no\tmatrix\n")
    person = re.search(r"sub-\d+", broken.name).group()
    ages = tmp_path / "ages.tsv"
    ages.write_text(f"participant_id\tage\n{person}\t40\n")
    assert "has no number in its column" not in run("predict", model, there, "--phenotypes", ages).err
    table = read_table(next((there / "group" / "predicted").glob("*.tsv"))).set_index("participant_id")
    assert table["state"].ne("predicted").pipe(lambda refused: refused.index[refused].tolist()) == [person]


@pytest.mark.parametrize(("share", "sites"), [(0.0, 6), (0.95, 1)])
def test_a_model_is_saved_and_used_where_the_test_finds_skill_and_refused_where_not(
    tmp_path, monkeypatch, share, sites
):
    """By how much of their ages is in the connectomes of forty people, and at how many sites they were scanned."""
    root = make_cohort(tmp_path, share, sites, new=5)
    options = ["--site-column", "site"] if sites > 1 else []
    found = share > 0.9
    said = group(root, *options, code=0 if found else 3)
    if not found:
        assert models(root) == []
        assert re.search(r"no better than guessing the average age \(p .*, r .* over held-out people.*do not use", said)
        with monkeypatch.context() as patched:  # as earlier versions did
            patched.setattr("fcpower_bids.clinic.fit.refuse_without_skill", lambda facts: None)
            group(root, *options)
    (model,) = models(root)
    skill = json.loads((model / "model.json").read_text())["Skill"]
    row = read_table(root / "out" / "group" / "prediction_summary.tsv").iloc[0]
    assert (skill["P"], skill["OverPeople"]) == (row["p_max_targets"], row["r_pooled_mean"])
    assert skill["Found"] == found
    assert not found or skill["Error"] < 0.85 * skill["ErrorOfGuess"]
    said = run("predict", model, root / "new", code=0 if found else 3).err
    assert ("This model does no better than guessing the average age" in said) != found
    assert len(list((root / "new").glob("*.html"))) == (5 if found else 0)


def test_what_is_known_without_a_scan_is_set_beside_the_model(tmp_path):
    cohort = make_cohort(tmp_path, 0.95)
    told = group(cohort, "--name", "untested", permutations=0, code=3)
    assert "This model was not tested against guessing the average age" in told
    assert "--permutations 1000" in told
    group(cohort)
    (model,) = models(cohort)
    skill = json.loads((model / "model.json").read_text())["Skill"]
    table = read_table(cohort / "out" / "group" / "prediction_baselines.tsv").set_index("model")
    both = table.loc["known and connectome"]
    said = re.search(r" ([-.\d]+), with the connectome ([-.\d]+); .* adds \S+ \(p [<=] ([.\d]+)\)", skill["Beside"])
    alone, together, p = map(float, said.groups())
    assert [alone, together] == pytest.approx([table.loc[both["over"], "value"], both["value"]], abs=0.005)
    assert p == pytest.approx(max(both["p_adds"], 0.001), abs=0.0005)


def test_an_error_above_that_of_the_guess_is_no_skill_whatever_the_test_found():
    residuals = pd.DataFrame({"residual": [3.0, -3.0], "guess": [2.0, -2.0]})
    tested = {"P": 0.01, "Permutations": 200, "OverPeople": 0.5}
    found = judge_skill(tested, residuals, "r")
    assert (found["Found"], found["Error"], found["ErrorOfGuess"]) == (False, 3.0, 2.0)
    assert judge_skill(tested, residuals.assign(guess=5.0), "r")["Found"]


ROW = {"participant_id": "sub-01", "state": "predicted", "quality": "ok", "cautions": "", "warning": "", "reason": ""}
ROW |= {"classes": "", "minutes": 9.8, "mean_fd": 0.412, "differences": "", "low": 33.0, "high": 57.0}
ROW |= {"sha256": "0123" * 16}
FACTS = {"Target": "age", "PositiveClass": None, "Covariates": [], "Skill": {"Found": True}}
FACTS["Interval"] = {"NominalCoverage": 0.9, "MeasuredCoverage": 0.884, "Scans": 1000, "Radius": 12.13, "Least": 0.0}


def answer(*rows):
    """Of scans with a prediction each, or refused ones."""
    scans = [ROW | row | {"scan": f"sub-01_ses-{name}_task-rest"} for name, row in zip("ab", rows, strict=False)]
    return answer_person(scans, FACTS)


def test_a_person_with_several_scans_gets_one_answer():
    found = answer({"prediction": 40.0}, {"prediction": 50.0})
    assert found["headline"] == "age: between 33 and 57; best guess 45."
    assert "mean of 2 scans, which give 40, 50; the interval is that of a single scan" in found["sentences"][0]
    found = answer({"prediction": 40.0}, {"prediction": 70.0})
    assert "They differ by more than an interval is wide" in found["sentences"][1]
    found = answer({"state": "refused", "reason": "It lacks parcels."})
    assert (found["level"], found["headline"]) == ("stop", "There is no prediction.")


@pytest.mark.parametrize(
    ("value", "width", "words"),
    [(45.61, 47.1, "46"), (0.1234, 0.3, "0.12"), (1234.0, 900.0, "1,230"), (-0.4, 20.0, "0")],
)
def test_digits_fit_the_interval(value, width, words):
    assert fitting(value, width) == words
