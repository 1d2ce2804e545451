"""Predictions through the command: what covariates leave is called so, and damaged figures of quality are named."""

from __future__ import annotations

import html
import shutil

import pandas as pd
import pytest

from fcpower_bids.clinic import page as prediction
from fcpower_bids.clinic.page import fitting
from fcpower_bids.outputs.tables import read_json, read_table, write_table
from tests.clinic.planted import as_arrays
from tests.command import main
from tests.planting.participant_outputs import make_outputs, write_participants

TARGET = [float(7 * person % 12) for person in range(12)]
ASKED = "--analyses prediction --targets score --covariates age sex --representations fc --permutations 0"
QUICK = "--save-models --accept-no-skill --folds 3 --inner-folds 2 --repeats 1 --nprocs 1 --min-time 60 --quiet"


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


def test_the_headline_names_what_was_taken_off(fitted):
    out, model = fitted
    assert main(["predict", str(model), str(out), "--participant-label", "01", "--accept-no-skill"]) == 0
    (row,) = read_table(out / "group" / "predicted" / "target-score-fc.tsv").to_dict("records")
    (page,) = out.glob("sub-01_target-*.html")
    ends = [fitting(row[key], row["high"] - row["low"]) for key in ("low", "high", "prediction")]
    said = f"score, without what goes with age and sex: between {ends[0]} and {ends[1]}; best guess {ends[2]}."
    assert said in html.unescape(page.read_text())
    assert abs(row["prediction"]) < pd.Series(TARGET).mean()  # a residual, not a score


def test_a_figure_of_quality_that_is_none_is_the_fault_of_its_table(fitted):
    out, model = fitted
    path = next(out.rglob("sub-02_*_qc.tsv"))
    whole = path.read_text()
    try:
        path.write_text(whole.replace("\t40\t", "\tmany\t"))
        options = ["--participant-label", "02", "--accept-no-skill"]
        assert main(["predict", str(model), str(out), *options]) == 5
    finally:
        path.write_text(whole)
    rows = read_table(out / "group" / "predicted" / "target-score-fc.tsv")
    (row,) = rows[rows["participant_id"] == "sub-02"].to_dict("records")
    assert row["state"] == "refused"
    assert f"{path.name} has 'many' for" in row["reason"]


def test_two_models_of_one_name_are_refused_before_anything_is_written(fitted, tmp_path, capsys):
    out, model = fitted
    there = shutil.copytree(out, tmp_path / "out", ignore=shutil.ignore_patterns("predicted", "sub-*_target-*"))
    other = shutil.copytree(model, tmp_path / "other" / model.name)
    for models in ([model, other], [model, model], [model, f"{other}/"]):
        assert main(["predict", *map(str, models), str(there), "--accept-no-skill"]) == 2
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
    assert main(["predict", str(model), str(output), "--accept-no-skill"]) == 4
    told = capsys.readouterr()
    assert "12 of 12 scans predicted" in told.out
    assert "sub-02 has no page. Internal error, please report it with logs/crashes/predict_sub-02_page.txt" in told.err
    assert len(list(output.glob(f"sub-*_{fitted[1].name.removesuffix('_model')}.html"))) == 11


def test_arrays_in_place_of_tables_give_the_same_predictions(fitted, tmp_path):
    """Also of the people of the model, whom it knows by the numbers of their scans."""
    out, model = fitted
    tables = []
    for folder in (shutil.copytree(out, tmp_path / "one"), as_arrays(out, tmp_path / "two")):
        assert main(["predict", str(model), str(folder), "--accept-no-skill"]) == 0
        tables.append(read_table(folder / "group" / "predicted" / "target-score-fc.tsv"))
    assert len(tables[0]) == 12
    assert (tables[0]["state"] == "predicted").all()
    assert (tables[0]["in_training"] == "true").all()
    assert tables[0]["sha256"].nunique() == tables[1]["sha256"].nunique() == 12
    pd.testing.assert_frame_equal(*(table.drop(columns="sha256") for table in tables), check_exact=True)


@pytest.mark.parametrize(
    ("rejected", "gone"),
    [
        ({"sub-04": ["ses-a", "ses-b"]}, {}),
        ({"sub-04": ["ses-a"]}, {}),
        ({"sub-04": ["ses-b"], "sub-03": ["ses-a"]}, {}),
        ({}, {"sub-04": ["ses-a"]}),
    ],
)
def test_a_prediction_is_kept_as_long_as_its_scan_takes_part(fitted, tmp_path, rejected, gone):
    """Asked for one person after others were rejected: what one run for everyone writes now."""
    tables = {}
    for folder in ("some", "all"):
        settings = make_outputs(tmp_path / folder, people=6, sessions="ab")
        for path in settings.output_dir.rglob("*_qc.tsv"):
            write_table(path, read_table(path).assign(volumes=40, dummy_volumes=0, censored_volumes=0))
        words = ["predict", str(fitted[1]), str(settings.output_dir), "--accept-no-skill"]
        assert main(words) == 0
        rows = "".join(f"{person}\t{one}\n" for person, each in rejected.items() for one in each)
        (settings.output_dir / "exclude.tsv").write_text("participant_id\tsession\n" + rows)
        for person, each in gone.items():
            for one in each:
                shutil.rmtree(settings.output_dir / person / one)
        assert main([*words, *(["--participant-label", "01"] if folder == "some" else [])]) in (0, 4, 5)
        name = fitted[1].name.removesuffix("_model")
        pages = [path.read_text() for path in sorted(settings.output_dir.glob(f"sub-*_{name}.html"))]
        predicted, beside = (
            read_table(settings.output_dir / "group" / "predicted" / f"{name}{end}.tsv") for end in ("", "_reference")
        )
        beside = beside.sort_values(["scan", "measure"], ignore_index=True)
        tables[folder] = predicted, beside, ["There is no prediction" in page for page in pages]
    *some, pages = tables["some"]
    for table, other in zip(some, tables["all"], strict=False):
        pd.testing.assert_frame_equal(table, other, rtol=1e-12)
    assert pages == tables["all"][2]
    assert len(pages) == 6


@pytest.mark.parametrize(
    ("target", "cut", "said"),
    [
        ("old=score>=6", ["score", 6.0], "old (1.0: score of 6 or more): "),
        ("late=score>=-1.5", ["score", -1.5], "late (1.0: score of -1.5 or more): "),
        ("two", None, "two: "),
    ],
)
def test_a_class_that_was_cut_is_named_by_what_it_was_cut_from(tmp_path, target, cut, said):
    settings = make_outputs(tmp_path, people=12, sessions="a")
    score = [value - 8 * (cut is not None and cut[1] < 0) for value in TARGET]
    write_participants(tmp_path / "bids" / "participants.tsv", 12, score=score, two=[value // 6 for value in TARGET])
    places = [str(tmp_path / "bids"), str(settings.output_dir), "group"]
    asked = ASKED.replace("score --covariates age sex", target)
    assert main([*places, *asked.split(), *QUICK.split()]) == 0
    for path in settings.output_dir.rglob("*_qc.tsv"):
        write_table(path, read_table(path).assign(volumes=40, dummy_volumes=0, censored_volumes=0))
    (model,) = (settings.output_dir / "group" / "models").iterdir()
    card = read_json(model / "model.json")
    assert [card.get(key) for key in ("CutColumn", "CutAt")] == (cut or [None, None])
    assert main(["predict", str(model), str(settings.output_dir), "--accept-no-skill"]) == 0
    page = html.unescape(next(settings.output_dir.glob("sub-03_target-*.html")).read_text())
    assert said in page
    assert ("or more)</" in page) == (cut is not None)
