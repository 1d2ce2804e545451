"""Predictions through the command: one answer a person, kept with its scan, and no number of a model without skill."""

from __future__ import annotations

import json
import re
import shutil

import pandas as pd
import pytest

from fcpower_bids.clinic import page as prediction
from fcpower_bids.clinic.fit import judge_skill
from fcpower_bids.clinic.page import answer_person, fitting, say_added
from fcpower_bids.outputs.tables import read_table, write_table
from tests.clinic.planted import as_arrays, group, make_cohort, models
from tests.command import main
from tests.planting.participant_outputs import make_outputs, write_participants

TARGET = [float(7 * person % 12) for person in range(12)]
ASKED = "--analyses prediction --targets score --covariates age sex --representations fc --permutations 0"
QUICK = "--save-models --any-skill --folds 3 --inner-folds 2 --repeats 1 --nprocs 1 --min-time 60 --quiet"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Outputs of twelve people with all figures of quality, and a model of them."""
    folder = tmp_path_factory.mktemp("residuals")
    settings = make_outputs(folder, people=12, sessions="a")
    write_participants(folder / "bids" / "participants.tsv", 12, score=TARGET)
    places = [str(folder / "bids"), str(settings.output_dir), "group", "-w", str(folder / "w")]
    assert main([*places, *ASKED.split(), *QUICK.split()]) == 0
    for path in settings.output_dir.rglob("*_qc.tsv"):
        write_table(path, read_table(path).assign(volumes=40, dummy_volumes=0, censored_volumes=0))
    (model,) = (settings.output_dir / "group" / "models").iterdir()
    return settings.output_dir, model


def test_two_models_of_one_name_are_refused_before_anything_is_written(fitted, tmp_path, capsys):
    out, model = fitted
    there = shutil.copytree(out, tmp_path / "out", ignore=shutil.ignore_patterns("predicted", "sub-*_target-*"))
    other = shutil.copytree(model, tmp_path / "other" / model.name)
    for named in ([model, other], [model, model], [model, f"{other}/"]):
        assert main(["predict", *map(str, named), str(there)]) == 2
        assert f"Two models are called {model.name}" in capsys.readouterr().err
    assert not (there / "group" / "predicted").exists()


def test_a_slip_in_one_page_costs_that_page(fitted, tmp_path, monkeypatch, capsys):
    output = shutil.copytree(fitted[0], tmp_path / "out", ignore=shutil.ignore_patterns("sub-*_target-*.html"))
    say_scan = prediction.say_scan

    def one_is_broken(row, *others):
        if row["participant_id"] == "sub-02":
            raise IndexError("a slip of ours")
        return say_scan(row, *others)

    monkeypatch.setattr(prediction, "say_scan", one_is_broken)
    model = output / "group" / "models" / fitted[1].name
    assert main(["predict", str(model), str(output)]) == 4
    told = capsys.readouterr()
    assert "12 of 12 scans predicted" in told.out
    assert "sub-02 has no page. Internal error, please report it with logs/crashes/predict_sub-02_page.txt" in told.err
    assert len(list(output.glob(f"sub-*_{fitted[1].name.removesuffix('_model')}.html"))) == 11


def test_arrays_in_place_of_tables_give_the_same_predictions(fitted, tmp_path):
    """Also of the people of the model, whom it knows by the numbers of their scans."""
    out, model = fitted
    tables = []
    for folder in (shutil.copytree(out, tmp_path / "one"), as_arrays(out, tmp_path / "two")):
        assert main(["predict", str(model), str(folder)]) == 0
        tables.append(read_table(folder / "group" / "predicted" / "target-score-fc.tsv"))
    assert len(tables[0]) == 12
    assert (tables[0]["state"] == "predicted").all()
    assert (tables[0]["in_training"] == "true").all()
    assert tables[0]["sha256"].nunique() == tables[1]["sha256"].nunique() == 12
    pd.testing.assert_frame_equal(*(table.drop(columns="sha256") for table in tables), check_exact=True)


ALARM = "This model does no better than guessing the average age."


CELLS = [(0.0, 6), (0.95, 1)]
"""How much of their ages is in the connectomes of forty people, and at how many sites they were scanned."""


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Forty people of whose ages most is in their connectomes, and five new ones."""
    return make_cohort(tmp_path_factory.mktemp("planted"), 0.95, new=5)


@pytest.mark.parametrize(("share", "sites"), CELLS)
def test_a_model_is_saved_and_used_where_the_test_finds_skill_and_refused_where_not(
    tmp_path, capsys, monkeypatch, share, sites
):
    root = make_cohort(tmp_path, share, sites, new=5)
    options = ["--site-column", "site"] if sites > 1 else []
    code, said = group(root, *options), capsys.readouterr().err
    found = share > 0.9
    assert code == (0 if found else 3)
    if not found:
        assert models(root) == []
        assert re.search(r"no better than guessing the average age \(p .*, r .* over held-out people.*do not use", said)
        with monkeypatch.context() as patched:  # as earlier versions did
            patched.setattr("fcpower_bids.clinic.fit.refuse_without_skill", lambda facts: None)
            assert group(root, *options) == 0
    (model,) = models(root)
    skill = json.loads((model / "model.json").read_text())["Skill"]
    row = read_table(root / "out" / "group" / "prediction_summary.tsv").iloc[0]
    assert (skill["P"], skill["OverPeople"]) == (row["p_max_targets"], row["r_pooled_mean"])
    assert skill["Found"] == found
    assert not found or skill["Error"] < 0.85 * skill["ErrorOfGuess"]
    code, said = main(["predict", str(model), str(root / "new")]), capsys.readouterr()
    assert code == (0 if found else 3)
    assert (ALARM.removesuffix(".") in said.err) != found
    assert len(list((root / "new").glob("*.html"))) == (5 if found else 0)


def test_what_is_known_without_a_scan_is_set_beside_the_model(cohort):
    assert group(cohort) == 0
    (model,) = models(cohort)
    skill = json.loads((model / "model.json").read_text())["Skill"]
    table = read_table(cohort / "out" / "group" / "prediction_baselines.tsv").set_index("model")
    both, added = table.loc["known and connectome"], skill["Added"]
    alone = table.loc[both["over"]]
    assert [added["alone"], added["together"]] == pytest.approx([alone["value"], both["value"]], abs=0.005)
    assert (added["p"], added["adds"]) == (both["p_adds"], bool(both["adds"]))
    assert say_added(skill) == []
    (said,) = say_added({"Added": {"over": "sex alone", "alone": 0.2, "together": 0.21, "p": 0.4, "adds": False}})
    assert "adds nothing that was shown: sex alone 0.20, with it 0.21" in said


def test_a_model_that_was_not_tested_is_refused_with_the_remedy(cohort, capsys):
    assert group(cohort, "--name", "untested", permutations=0) == 3
    told = capsys.readouterr().err
    assert "Whether this model does better than guessing the average age was not tested" in told
    assert "--permutations 1000" in told


def test_an_error_above_that_of_the_guess_is_no_skill_whatever_the_test_found():
    residuals = pd.DataFrame({"residual": [3.0, -3.0], "guess": [2.0, -2.0]})
    tested = {"P": 0.01, "Permutations": 200, "OverPeople": 0.5}
    found = judge_skill(tested, residuals, "r")
    assert (found["Found"], found["Error"], found["ErrorOfGuess"]) == (False, 3.0, 2.0)
    assert judge_skill(tested, residuals.assign(guess=5.0), "r")["Found"]


ROW = {"participant_id": "sub-01", "state": "predicted", "quality": "ok", "cautions": "", "warning": "", "reason": ""}
ROW |= {
    "classes": "",
    "minutes": 9.8,
    "mean_fd": 0.412,
    "differences": "",
    "low": 33.0,
    "high": 57.0,
    "sha256": "0123" * 16,
}
FACTS = {"Target": "age", "PositiveClass": None, "Covariates": [], "Skill": {"Found": True}}
FACTS["Interval"] = {"NominalCoverage": 0.9, "MeasuredCoverage": 0.884, "Scans": 1000, "Radius": 12.13, "Least": 0.0}


def answer(*rows):
    """Of scans with a prediction each, or refused ones."""
    scans = [ROW | row | {"scan": f"sub-01_ses-{name}_task-rest"} for name, row in zip("ab", rows, strict=False)]
    return answer_person(scans, pd.DataFrame(columns=["scan", "measure", "z", "scans"]), FACTS)


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
