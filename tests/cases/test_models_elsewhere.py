"""Models and encoders that meet other scans than those they were made of, through the commands."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.clinic.fit import load_model
from fcpower_bids.core.probe import predict_from_arrays
from fcpower_bids.workflows.group import complete_cohort, load_series_encoder, open_cohort
from tests.cases.cohorts import QUICK, run, table, write_series, write_table
from tests.cases.test_crossings import PEOPLE, PREDICT, SCORE, cohort, group, models, predictions, save_model
from tests.command import parse_settings


def with_second_runs(folder, people=PEOPLE, volumes=120, **columns):
    """Add a second run of some people to the list; `columns`: values of both runs."""
    first = pd.read_csv(folder / "list.tsv", sep="\t", dtype=str).assign(run="1")
    second = first[first["participant_id"].isin(people)].assign(run="2")
    second["path"] = second["path"].str.replace(".npy", "_run-2.npy")
    random = np.random.default_rng(9)
    for name in second["path"]:
        series = random.standard_normal((volumes, 6))
        series[:, 1] += series[:, 0]
        np.save(folder / name, series)
    for name, (one, two) in columns.items():
        first[name], second[name] = one, two
    pd.concat([first, second]).to_csv(folder / "list.tsv", sep="\t", index=False)


@pytest.mark.parametrize(("volumes", "limit"), [(120, ("--max-mean-fd", 0.3)), (60, ("--min-time", 200))])
def test_a_run_that_was_left_out_is_no_training_scan(volumes, limit, tmp_path):
    with_second_runs(cohort(tmp_path), volumes=volumes, mean_fd=(0.1, 0.5))
    model = save_model(tmp_path, *limit)
    assert predictions(tmp_path, model)["in_training"].tolist() == [True] * len(PEOPLE)
    (tmp_path / "out" / "exclude.tsv").write_text("participant_id\trun\n" + "".join(f"{who}\t1\n" for who in PEOPLE))
    rows = predictions(tmp_path, model, code=4).query("state == 'predicted'")  # what is rejected has a row, too
    assert rows["scan"].str.contains("run-2").all()
    assert rows["in_training"].tolist() == [False] * len(PEOPLE)


@pytest.mark.parametrize("kind", ["two runs", "two runs of two lengths", "one run cannot be used"])
def test_the_runs_of_a_scan_are_predicted_as_one(kind, model_of_forty, tmp_path):
    """As the model was fitted: from the correlations of the z-scored runs, put end to end."""
    with_second_runs(cohort(tmp_path / "new"), volumes=60 if "lengths" in kind else 120, mean_fd=(0.1, 0.3))
    group(tmp_path / "new", "--analyses", "check", quick=QUICK)
    if kind == "one run cannot be used":
        for path in (tmp_path / "new" / "out").rglob("*_run-2_*qc.tsv"):
            path.write_text(path.read_text().replace("0.3", "much"))
    rows = predictions(tmp_path / "new", model_of_forty, code=4 if "cannot" in kind else 0)
    done = rows[rows["state"] == "predicted"].set_index("participant_id").loc[list(PEOPLE)]
    lost = rows[rows["state"] != "predicted"]
    assert lost["scan"].str.contains("run-2").tolist() == [True] * (len(PEOPLE) if "cannot" in kind else 0)
    assert done["scan"].str.contains("run-").all() == ("cannot" in kind)
    facts, arrays = load_model(model_of_forty).facts, load_model(model_of_forty).arrays
    edges = []
    for who in PEOPLE:
        runs = [np.load(tmp_path / "new" / f"{who}{end}.npy") for end in ("", "_run-2")[: 1 + ("two" in kind)]]
        whole = np.concatenate([stats.zscore(series, ddof=1) for series in runs])
        weights = sum(len(series) - 1 for series in runs)
        edges.append((whole.T @ whole / weights)[np.triu_indices(6, 1)])
        assert done.loc[who, "minutes"] == pytest.approx(sum(map(len, runs)) * 2 / 60)
    wanted = predict_from_arrays(arrays, np.array(edges))[0][:, 0]
    assert done["prediction"].to_numpy() == pytest.approx(wanted, abs=1e-9)
    assert facts["NumberOfScans"] == len(PEOPLE)


@pytest.mark.parametrize("others", [("rest", "nback"), ("nback", "nback"), ("rest", "rest")])
def test_a_model_of_one_task_takes_runs_of_that_task_alone_where_there_are_any(others, model_of_forty, tmp_path):
    with_second_runs(cohort(tmp_path / "new"), task=others)
    group(tmp_path / "new", "--task-id", *set(others), "--analyses", "check", quick=QUICK)
    rows = predictions(tmp_path / "new", model_of_forty, code=4 if others == ("rest", "nback") else 0)
    done, refused = rows[rows["state"] == "predicted"], rows[rows["state"] == "refused"]
    assert len(done) == len(PEOPLE)
    assert done["differences"].astype(str).str.contains("task nback, the model's rest").all() == (others[0] == "nback")
    assert done["minutes"].unique().tolist() == [4.0 if others == ("rest", "nback") else 8.0]
    assert refused["scan"].str.contains("task-nback").tolist() == [True] * len(refused)


def test_models_that_are_not_made_and_predictions_that_are_replaced_are_named(tmp_path):
    cohort(tmp_path)
    wanted = ("--targets", "score", "--save-models")
    found = group(tmp_path, *wanted, "--representations", "fisher_z", "--name", "z", quick=PREDICT[:-2])
    assert "--save-models makes no model" in found.err
    group(tmp_path, *wanted)
    group(tmp_path, *wanted, "--name", "fewer", "--participant-label", *PEOPLE[1:])
    (first,), (other,) = models(tmp_path), (tmp_path / "out" / "group" / "fewer" / "models").glob("*_model")
    texts = [run("predict", model, tmp_path / "out").out for model in (first, first, other, other, first)]
    assert ["of another model is replaced" in text for text in texts] == [False, False, True, False, True]


def test_parcels_without_names_are_those_of_the_model_only_where_they_are_as_many(model_of_forty, tmp_path):
    write_series(tmp_path / "nine", PEOPLE[:4], parcels=9)
    write_table(tmp_path / "nine" / "bids" / "participants.tsv", participant_id=PEOPLE[:4], score=SCORE[:4])
    group(tmp_path / "nine", quick=(*QUICK, "--analyses", "check"))
    rows = predictions(tmp_path / "nine", model_of_forty, code=5)
    assert rows["reason"].str.contains("9 parcels have no names, and those of the model were 6").all()


SITE = np.array(["a", "b"] * 20)
HIGH = np.where([np.median(SCORE[site == SITE]) for site in SITE] < SCORE, "high", "low")


@pytest.mark.parametrize(("target", "values", "score"), [("score", SCORE, "r"), ("half", HIGH, "auc")])
def test_the_score_beside_the_p_of_a_model_is_that_of_the_p(target, values, score, tmp_path):
    shifted = values + 1.5 * (SITE == "b") if score == "r" else values
    cohort(tmp_path, **{target: shifted})
    options = ("--targets", target, "--site-column", "site", "--sites", "hold-out", "--save-models")
    group(tmp_path, *options)
    (model,) = models(tmp_path)
    skill = json.loads((model / "model.json").read_text())["Skill"]
    people = table(tmp_path / "out" / "group" / "predictions.tsv").astype({"observed": float, "predicted": float})
    assert people["fold"].nunique() == 2
    of_sites = []
    for _, site in people.groupby("fold"):  # twenty people each
        ones, zeros = (site["predicted"][site["observed"] == one].to_numpy() for one in (1, 0))
        wins = (ones[:, None] > zeros).mean() if score == "auc" else np.nan
        of_sites.append(wins if score == "auc" else np.arctanh(np.corrcoef(site["observed"], site["predicted"])[0, 1]))
    expected = np.mean(of_sites) if score == "auc" else np.tanh(np.mean(of_sites))
    assert skill["OverPeople"] == pytest.approx(expected, abs=1e-9)
    found = run("predict", model, tmp_path / "out")
    words = f"{score.upper() if score == 'auc' else 'r'} {expected:.2f} over people within sites that were held out"
    assert words in found.out + found.err


def test_a_value_that_means_missing_is_no_known_score(tmp_path):
    score = SCORE.copy()
    score[::4] = 0
    (tmp_path / "c.toml").write_text('missing_values = ["score=0"]\n')
    options = ("--targets", "score", "--config-file", tmp_path / "c.toml")
    model = save_model(cohort(tmp_path / "old", score=score), *options)
    new = tmp_path / "new"
    write_series(new, PEOPLE[:12], volumes=120, seed=3, signal=lambda number: float(np.clip(SCORE[number], 0, 0.9)))
    write_table(new / "bids" / "participants.tsv", participant_id=PEOPLE[:12], score=score[:12])
    group(new, *options, quick=(*QUICK, "--analyses", "check"))
    predictions(new, model)
    name = model.name.removesuffix("_model")
    coverage = json.loads((new / "out" / "group" / "predicted" / f"{name}.json").read_text())["Coverage"]
    assert coverage["Known"] == (score[:12] != 0).sum() == 9


def test_runs_are_read_with_all_parcels_by_the_encoder_of_the_others(tmp_path):
    cohort(tmp_path)
    with_second_runs(tmp_path, PEOPLE[1:6:2])
    for person in PEOPLE[::6]:  # the cohort leaves this parcel out
        series = np.load(tmp_path / f"{person}.npy")
        series[:, -1] = 0
        np.save(tmp_path / f"{person}.npy", series)
    options = ("--encoder", "random-init", "--representations", "fc", "embedding")
    group(tmp_path, "--targets", "score", *options, code=4)  # they have no embedding
    words = (tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={tmp_path / 'list.tsv'}", *QUICK, *options)
    settings = parse_settings(list(map(str, words)))
    opened = open_cohort(settings)
    assert len(opened.parcels) == 5
    used = complete_cohort(opened, settings).embeddings["randominit"]
    embed = load_series_encoder(tuple(f"parcel{number:04d}" for number in range(1, 7)), settings, {})
    for scan in np.flatnonzero(opened.scans["n_runs"] > 1):
        person = opened.scans["participant_id"].iloc[scan]
        runs = [np.load(tmp_path / f"{person}{ending}.npy") for ending in ("", "_run-2")]
        joined = np.concatenate([(values - values.mean(0)) / values.std(0, ddof=1) for values in runs])
        np.testing.assert_allclose(used[scan], embed(joined, 2.0), atol=1e-5)


def test_runs_of_sites_are_not_read_by_another_model_than_that_of_the_stored_embeddings(tmp_path):
    options = ("--encoder", "random-init", "--representations", "fc", "embedding", "--analyses", "check")
    for number, site in enumerate(("one", "two")):
        write_series(tmp_path / site, PEOPLE, seed=number)
        with_second_runs(tmp_path / site, PEOPLE[number:2])
        write_table(tmp_path / site / "bids" / "participants.tsv", participant_id=PEOPLE)
        group(tmp_path / site, *options, quick=QUICK)
    words = [f"{site}={tmp_path / site / 'out'}" for site in ("one", "two")]
    words = [tmp_path / "one" / "bids", tmp_path / "out", "group", "-d", *words, *QUICK, *options]
    assert run(*words).code == 0
    other = run(*words, "--random-seed", 1, code=2)
    assert "are of other weights or were read otherwise (seed)" in other.err


def test_people_of_one_site_alone_have_no_baseline_of_sites(tmp_path):
    """Embeddings are at one of two sites, and the target goes with the site."""
    for number, site in enumerate(("one", "two")):
        write_series(tmp_path / site, PEOPLE, seed=number)
        about = {"score": SCORE + 3 * number, "age": SCORE[::-1]}
        write_table(tmp_path / site / "bids" / "participants.tsv", participant_id=PEOPLE, **about)
        encoder = () if number else ("--encoder", "random-init")
        group(tmp_path / site, "--analyses", "check", *encoder, quick=QUICK)
    words = [f"{site}={tmp_path / site / 'out'}" for site in ("one", "two")]
    words = ["group", "-d", *words, *QUICK, "--targets", "score", "--analyses", "prediction"]
    words += ["--representations", "fc", "embedding"]
    assert run(tmp_path / "one" / "bids", tmp_path / "out", *words).code == 0
    rows = table(tmp_path / "out" / "group" / "prediction_baselines.tsv")
    assert set(rows["n_people"]) == {"40"}
    assert "site" not in set(rows["model"])
