"""Choices of the group level that meet, against an independent computation from the files."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest

from fcpower_bids import load_cohort
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.demo.dataset import make_dataset
from fcpower_bids.demo.signals import DemoDesign
from tests.cases import cohorts
from tests.cases.cohorts import QUICK, read, run, store_matrices, table, write_series, write_table
from tests.running import run_app

PEOPLE = tuple(f"sub-{number:03d}" for number in range(1, 41))
RANDOM = np.random.default_rng(5)
SCORE = np.linspace(0, 1, len(PEOPLE)) + 0.05 * RANDOM.standard_normal(len(PEOPLE))
AGE = np.round(RANDOM.uniform(20, 60, len(PEOPLE)))
PREDICT = (*QUICK[:6], "--permutations", 39, *QUICK[8:], "--analyses", "prediction", "--representations", "fc")
group = partial(cohorts.group, quick=PREDICT)


def cohort(folder, **columns):
    """Forty people whose score is in one connection."""
    write_series(folder, PEOPLE, volumes=120, signal=lambda number: 0.05 + 0.9 * float(np.clip(SCORE[number], 0, 1)))
    about = {"score": SCORE, "age": AGE, "site": ["a", "b"] * 20} | columns
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, **about)
    return folder


def models(folder):
    return sorted((folder / "out" / "group" / "models").glob("*_model"))


def save_model(folder, *options):
    """The only model of a run with a score as target."""
    group(folder, "--targets", "score", "--save-models", *options)
    (model,) = models(folder)
    return model


def predictions(folder, model, code=0):
    """Rows of the predictions of a model, once it is applied with this exit code."""
    run("predict", model, folder / "out", code=code)
    return pd.read_csv(folder / "out" / "group" / "predicted" / f"{model.name.removesuffix('_model')}.tsv", sep="\t")


def test_a_model_of_earlier_data_does_not_stay_where_none_can_be_made(tmp_path):
    save_model(cohort(tmp_path))
    noise = np.random.default_rng(0).permutation(SCORE)
    write_table(tmp_path / "bids" / "participants.tsv", participant_id=PEOPLE, score=noise)
    found = group(tmp_path, "--targets", "score", "--save-models", code=3)
    assert "does no better than" in found.err
    assert not models(tmp_path)


def test_scans_that_were_cleaned_by_another_file_of_one_name_are_refused_and_other_choices_named(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=8, sessions=1, volumes=90))
    strategy, out = tmp_path / "mine.yml", {name: tmp_path / name for name in ("out", "other", "filtered")}
    ways = {"out": ["csf"], "other": ["^global_signal$"], "filtered": ["csf"]}
    for name, columns in ways.items():
        strategy.write_text(json.dumps({"methods": "x.", "columns": columns}))
        more = ("--motion-filter-type", "lp", "--band-stop-min", "6") if name == "filtered" else ()
        options = ("--atlas", "builtin", "--nprocs", 1, "--min-time", 0, "--strategy", strategy, *more)
        assert run_app(tmp_path / "in", out[name], *options).code == 0
    wanted = ("--targets", "planted_score", "--save-models", "--any-skill")
    run(tmp_path / "in", out["out"], "group", *QUICK, *wanted, "--analyses", "prediction", code=0)
    (model,) = (out["out"] / "group" / "models").glob("*fc_model")
    tables = {}
    for name, folder in out.items():
        run("predict", model, folder)
        tables[name] = table(folder / "group" / "predicted" / f"{model.name.removesuffix('_model')}.tsv")
    assert set(tables["out"]["state"]) == {"predicted"}
    assert set(tables["out"]["differences"]) == {"n/a"}
    assert set(tables["other"]["state"]) == {"refused"}
    assert tables["other"]["reason"].str.contains(r"nuisance strategy mine.yml \(").all()
    assert set(tables["filtered"]["state"]) == {"predicted"}
    assert tables["filtered"]["differences"].str.contains("--motion-filter-type lp").all()


def test_a_training_scan_is_known_whatever_the_order_of_parcels_and_who_had_no_target_is_none(tmp_path):
    score = SCORE.copy()
    score[:6] = np.nan
    model = save_model(cohort(tmp_path / "one", score=score))
    again = predictions(tmp_path / "one", model)
    known = dict(zip(PEOPLE, np.isfinite(score), strict=True))
    assert again.set_index("participant_id")["in_training"].to_dict() == known
    other = tmp_path / "two"
    cohort(other)
    names = [f"p{number}" for number in range(6)]
    order = [3, 1, 0, 5, 4, 2]
    rows = pd.read_csv(tmp_path / "one" / "list.tsv", sep="\t")
    assert len(rows) == len(PEOPLE)
    for folder, places in ((tmp_path / "one", range(6)), (other, order)):
        for name in rows["path"]:
            values = np.load(tmp_path / "one" / name)
            frame = pd.DataFrame(values, columns=names)[[names[place] for place in places]]
            frame.to_csv(folder / name.replace(".npy", ".tsv"), sep="\t", index=False)
        rows.assign(path=rows["path"].str.replace(".npy", ".tsv")).to_csv(folder / "named.tsv", sep="\t", index=False)
    for folder in (other, tmp_path / "one"):
        model = save_model(folder, "--replace", "-d", f"list={folder / 'named.tsv'}")
    moved = predictions(other, model).set_index("participant_id")
    here = predictions(tmp_path / "one", model).set_index("participant_id")
    np.testing.assert_allclose(moved["prediction"], here["prediction"], rtol=1e-12)
    assert moved["in_training"].to_dict() == known


@pytest.mark.parametrize(
    ("target", "options", "named"),
    [
        (("old=age>=40",), ("--preset", "cbig"), ("'age'", "cbig")),
        (("g=age,score",), ("--preset", "cbig"), ("'age'", "cbig")),
        (("g=old,score", "old=age>=40"), ("--preset", "cbig"), ("'age'", "cbig")),
        (
            ("score",),
            ("--sites", "hold-out", "--site-column", "site", "--covariates", "site"),
            ("'site' is a covariate",),
        ),
    ],
)
def test_what_is_made_of_a_covariate_is_no_target_and_a_site_that_is_held_out_none(target, options, named, tmp_path):
    cohort(tmp_path, sex=["F", "M"] * 20)
    found = group(tmp_path, "--targets", *target, *options, code=3)
    assert all(words in found.err for words in named)


def test_minutes_of_someone_with_a_session_of_unknown_length_are_not_known(tmp_path):
    folder = write_series(tmp_path, PEOPLE, sessions=("1", "2"), volumes=60)
    rows = store_matrices(folder)
    rows["minutes"] = [5.0 + number % 7 for number in range(len(rows))]
    rows.loc[rows["session_id"].eq(2) & rows["participant_id"].isin(PEOPLE[:10]), "minutes"] = np.nan
    rows.to_csv(folder / "list.tsv", sep="\t", index=False, na_rep="n/a")
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, score=SCORE)
    group(folder, "--targets", "score", "--covariates", "minutes")
    assert set(read(folder, "predictions")["participant_id"]) == set(PEOPLE[10:])


def test_who_is_gone_has_no_prediction_and_no_page_of_it(tmp_path):
    model = save_model(cohort(tmp_path))
    predictions(tmp_path, model)
    (tmp_path / "out" / "sub-001_another-model.html").write_text("")
    pd.read_csv(tmp_path / "list.tsv", sep="\t").iloc[3:].to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    group(tmp_path, "--targets", "score", "--replace", quick=(*QUICK, "--analyses", "check"))
    people = predictions(tmp_path, model)["participant_id"].tolist()
    assert people == list(PEOPLE[3:])
    pages = {path.name.partition("_")[0] for path in (tmp_path / "out").glob("sub-*_target-*.html")}
    assert pages == set(people)
    assert (tmp_path / "out" / "sub-001_another-model.html").is_file()


def test_the_page_of_a_run_that_was_stopped_shows_what_was_done_and_nothing_of_other_people(tmp_path, monkeypatch):
    cohort(tmp_path)
    both = (*PREDICT[:10], "--nprocs", 1, "--analyses", "prediction", "edges", "--representations", "fc")
    assert "better than chance" in group(tmp_path, "--targets", "score", quick=both).err
    page = tmp_path / "out" / "group.html"
    assert "better than chance" in page.read_text()

    def stopped(*_):
        raise KeyboardInterrupt

    def stop_without_some(n):
        pd.read_csv(tmp_path / "list.tsv", sep="\t").iloc[n:].to_csv(tmp_path / "list.tsv", sep="\t", index=False)
        group(tmp_path, "--targets", "score", quick=both, code=130)
        return group(tmp_path, "--reports-only", quick=()).err

    monkeypatch.setitem(ANALYSES, "edges", stopped)
    assert "\nscore: r" in stop_without_some(10)
    assert not (tmp_path / "out" / "group" / "edges.tsv").exists()
    monkeypatch.setitem(ANALYSES, "prediction", stopped)
    assert "better than chance" not in stop_without_some(5) + page.read_text()
    monkeypatch.setattr("fcpower_bids.workflows.group.check_first", stopped)
    assert "\nscore: r" not in stop_without_some(1)


def test_a_list_has_one_name_whatever_it_is_called(tmp_path, monkeypatch):
    cohort(tmp_path)
    check = (*QUICK, "--analyses", "check")
    for name in ("list", "mine", "list"):
        group(tmp_path, "-d", f"{name}={tmp_path / 'list.tsv'}", quick=check)
    monkeypatch.chdir(cohort(tmp_path / "another", age=AGE + 1))
    for name in ("list", "other"):  # another list of this name
        group(tmp_path, "-d", f"{name}=list.tsv", quick=check, code=2)
    assert len(read(tmp_path, "scans")) == len(PEOPLE)


def test_strata_of_the_folds_are_no_business_of_a_model_of_one_target(tmp_path):
    cohort(tmp_path, dx=["x", "y", "y", "x"] * 10)
    options = ("--targets", "score", "dx", "--save-models", "--stratify", "--any-skill")
    group(tmp_path, *options)
    assert len(models(tmp_path)) == 2


def test_curves_of_identification_need_no_phenotypes(tmp_path):
    folder = write_series(tmp_path, PEOPLE[:20], sessions=("1", "2"), volumes=60)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE[:20], irrelevant=AGE[:20])
    quick = (*QUICK, "--analyses", "learning_curves", "--representations", "fc")
    group(folder, quick=quick)
    assert len(read(folder, "identification_curves"))


def test_scans_of_unknown_length_weigh_the_same_and_others_by_their_minutes(tmp_path):
    folder = write_series(tmp_path, PEOPLE[:6], sessions=("1", "2"))
    check, unknown = (*QUICK, "--analyses", "check"), "the length of some is not known"
    assert unknown not in group(folder, quick=check).err
    rows = store_matrices(folder)
    rows.to_csv(folder / "list.tsv", sep="\t", index=False)
    found = group(folder, "--replace", quick=check)
    assert unknown in found.err
    matrices = [np.load(folder / name) for name in rows["path"]]
    rows.assign(minutes=[10.0, 4.0] * 6).to_csv(folder / "list.tsv", sep="\t", index=False)
    group(folder, "--replace", quick=check)
    loaded = load_cohort(folder / "out", folder / "bids", min_time=0)
    expected = [(10 * first + 4 * second) / 14 for first, second in zip(matrices[::2], matrices[1::2], strict=True)]
    np.testing.assert_allclose(loaded.connectomes, expected, atol=1e-12)
