"""Shapes in which tables, lists and scans come in, each through the command and held against its input files."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fcpower_bids
from fcpower_bids.clinic.fit import load_model
from fcpower_bids.core.probe import predict_from_arrays
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.errors import UsageError
from tests.cases.cohorts import LABELS, PEOPLE, group, observed, read, run, table, write_list, write_series, write_table
from tests.cases.test_crossings import PEOPLE as FORTY
from tests.cases.test_crossings import cohort, predictions, save_model
from tests.cases.test_models_elsewhere import with_second_runs
from tests.cases.test_people import AGES, AGES_OF_SESSIONS, PREDICT, of_sessions
from tests.cases.test_reruns import ATLAS, PLAIN, run_app

CHECK = ("--analyses", "check")


def later_alone(row, place):
    """A series of which the first session lacks a parcel, so that it has no embedding."""
    series = np.random.default_rng([row, place]).normal(size=(100, 6))
    series[:, 5] *= place > 0
    return series


@pytest.mark.parametrize("form", ["{:.1f}", "sub-{:.1f}", "{:.2f}"])
def test_an_id_that_became_a_number_with_decimals_is_that_number(form, people):
    """Not 10 for the 1.0 of a program of tables."""
    ids = [form.format(int(person[4:])) for person in PEOPLE]
    write_table(people / "bids" / "participants.tsv", participant_id=ids, age=AGES)
    rows = pd.read_csv(people / "list.tsv", sep="\t", dtype=str)
    group(people, *PREDICT, "--targets", "age")
    assert observed(people, "age") == pytest.approx(dict(zip(PEOPLE, AGES, strict=True)))
    rows.assign(participant_id=ids).to_csv(people / "list.tsv", sep="\t", index=False)
    shutil.rmtree(people / "out")
    group(people, *CHECK)
    assert sorted(read(people, "scans")["participant_id"]) == sorted(f"sub-{int(person[4:])}" for person in PEOPLE)


@pytest.mark.parametrize("form", ["10.{}", "S1.{}", "{}.5"])
def test_ids_with_points_are_those_of_a_table_with_the_same(form, people):
    ids = [form.format(number + 10) for number in range(len(PEOPLE))]
    rows = pd.read_csv(people / "list.tsv", sep="\t", dtype=str)
    for name in rows["path"]:
        (people / name).rename(people / name.removeprefix("sub-"))
    rows = rows.assign(participant_id=ids, path=rows["path"].str.removeprefix("sub-"))
    rows.to_csv(people / "list.tsv", sep="\t", index=False)
    write_table(people / "bids" / "participants.tsv", participant_id=ids, age=AGES)
    group(people, *PREDICT, "--targets", "age")
    assert list(observed(people, "age").values()) == pytest.approx(AGES)


@pytest.mark.parametrize("kind", ["a header without a name", "a column of counts", "a column of times"])
def test_a_column_that_counts_the_volumes_is_no_parcel(kind, people):
    rows = pd.read_csv(people / "list.tsv", sep="\t", dtype=str)
    for name in rows["path"]:
        frame = pd.DataFrame(np.load(people / name), columns=[f"R{number}" for number in range(6)])
        if kind != "a header without a name":
            frame.insert(0, "time", np.arange(len(frame)) * (0.8 if "times" in kind else 1))
        frame.to_csv(people / name.replace("npy", "csv"), index=kind == "a header without a name")
    rows.assign(path=rows["path"].str.replace("npy", "csv")).to_csv(people / "list.tsv", sep="\t", index=False)
    told = group(people, *CHECK, code=0 if kind == "a header without a name" else 3).err
    if kind == "a header without a name":
        loaded = fcpower_bids.load_cohort(people / "out", people / "bids", min_time=0.0)
        wanted = [np.corrcoef(np.load(people / name).T) for name in rows["path"]]
        np.testing.assert_allclose(loaded.connectomes, wanted, atol=1e-12)
    else:
        assert "grows by the same step in every row" in told


@pytest.mark.parametrize("others", [0, 3, 12])
def test_parcels_in_another_order_are_those_of_their_names(others, people):
    rows = pd.read_csv(people / "list.tsv", sep="\t", dtype=str)
    for number, name in enumerate(rows["path"]):
        order = np.random.default_rng(number).permutation(6) if number < others else np.arange(6)
        series = np.load(people / name)[:, order]
        np.savez(people / name.replace("npy", "npz"), series=series, parcels=[f"R{place}" for place in order])
    listed = rows.assign(path=rows["path"].str.replace("npy", "npz"), key="series")
    listed.to_csv(people / "list.tsv", sep="\t", index=False)
    group(people, *CHECK)
    loaded = fcpower_bids.load_cohort(people / "out", people / "bids", min_time=0.0)
    place = np.argsort([int(name[1:]) for name in loaded.parcels])
    wanted = [np.corrcoef(np.load(people / name).T) for name in rows["path"]]
    np.testing.assert_allclose(loaded.connectomes[:, place][:, :, place], wanted, atol=1e-12)


@pytest.mark.parametrize(("column", "values"), [("key", ("a", "b")), ("repetition_time", ("2.0", "3.0"))])
def test_two_rows_that_read_one_file_in_two_ways_are_refused(column, values, people):
    rows = pd.read_csv(people / "list.tsv", sep="\t", dtype=str)
    pd.concat([rows.assign(**{column: value}) for value in values]).to_csv(people / "list.tsv", sep="\t", index=False)
    assert "would be the same recording" in group(people, *CHECK, code=3).err
    pd.concat([rows, rows]).to_csv(people / "list.tsv", sep="\t", index=False)
    group(people, *CHECK)  # a row that stands twice


@pytest.mark.parametrize(("name", "meant"), [("Session", "session"), ("Decision", "decision"), ("sess", "session")])
def test_a_misspelt_column_of_decisions_rejects_nobody(name, meant, people):
    (people / "out").mkdir()
    (people / "out" / "exclude.tsv").write_text(f"participant_id\t{name}\trater\nsub-001\taccept\tme\n")
    assert f"has a column '{name}'. Write '{meant}'" in group(people, *CHECK, code=3).err


@pytest.mark.parametrize("word", ["Train", "TRAIN", "train"])
def test_train_is_no_fold_however_it_is_written(word, people):
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, age=AGES)
    folds = [word if number < 10 else f"f{number % 2}" for number in range(len(PEOPLE))]
    path = write_table(people / "folds.tsv", participant_id=PEOPLE, repeat1=folds)
    group(people, *PREDICT, "--targets", "age", "--folds-file", path)
    assert sorted(observed(people, "age")) == sorted(PEOPLE[10:])


@pytest.mark.parametrize(("first", "second"), [("F1", "f1"), ("F1", "F1 "), ("1", "1.0")])
@pytest.mark.parametrize("option", ["--family-column", "--site-column"])
def test_a_family_or_site_in_two_spellings_is_refused(option, first, second, people):
    column = [first, second, *(f"G{number // 2}" for number in range(len(PEOPLE) - 2))]
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, age=AGES, home_id=column)
    same = second.strip() == first  # blanks around a cell are never part of it
    told = group(people, *PREDICT, "--targets", "age", option, "home_id", code=0 if same else 3).err
    assert (f"one level in several ways ({first}, {second})" in told) != same


def test_choices_of_a_file_hold_in_python_and_the_call_wins(people):
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, age=AGES)
    group(people, *CHECK)
    (people / "choices.toml").write_text('participant_label = ["001", "002", "003"]\nmin_time = 0\n')
    places = people / "out", people / "bids"
    assert len(fcpower_bids.load_cohort(*places, config_file=people / "choices.toml").names) == 3
    chosen = fcpower_bids.load_cohort(*places, config_file=people / "choices.toml", participant_label=("004",))
    assert list(chosen.names) == ["sub-004"]
    with pytest.raises(UsageError, match="cannot be read"):
        fcpower_bids.load_cohort(*places, config_file=people / "absent.toml")


@pytest.mark.parametrize("kind", ["a target", "a covariate", "a row that is gone"])
def test_a_value_of_a_later_session_that_changed_is_seen(kind, tmp_path):
    """Only the second session has an embedding, so its values are those that are predicted."""
    write_series(tmp_path, sessions=("1", "2"), draw=later_alone)
    asked = ("--targets", "age", "--encoder", "random-init", "--representations", "embedding")
    rows = [(one, session, age, age % 7 + place) for one, ages in zip(PEOPLE, AGES_OF_SESSIONS, strict=True)
            for place, (session, age) in enumerate(zip(("1", "2"), ages, strict=True))]  # fmt: skip
    frame, tables = pd.DataFrame(rows, columns=["participant_id", "session_id", "age", "hours"]), []
    for changed in (False, False, True):
        if changed and "gone" in kind:
            frame = frame.drop(index=31)
        elif changed:
            frame.loc[31, "age" if "target" in kind else "hours"] += 30
        write_table(tmp_path / "bids" / "phenotype" / "ages.tsv", **frame)
        group(tmp_path, *PREDICT[:2], *asked, "--covariates", "hours", "--replace", code=4)
        tables.append((tmp_path / "out" / "group" / "predictions.tsv").read_bytes())
    assert tables[0] == tables[1] != tables[2]


@pytest.mark.parametrize("values", [np.full(30, 7.0), np.full(30, np.nan), ["x", "y", "z"] * 10])
def test_a_default_target_that_says_nothing_at_the_scans_that_are_used_costs_itself_alone(values, tmp_path):
    write_series(tmp_path, sessions=("1", "2"), draw=later_alone)
    rows = {"participant_id": [*PEOPLE, *PEOPLE], "session_id": ["1"] * 30 + ["2"] * 30}
    dose = [*np.arange(30.0), *values]
    write_table(tmp_path / "bids" / "phenotype" / "ages.tsv", **rows, age=[*AGES, *AGES + 3], dose=dose)
    asked = ("--encoder", "random-init", "--representations", "embedding")
    group(tmp_path, *PREDICT[:2], *asked, code=4)
    assert observed(tmp_path, "age") == pytest.approx(dict(zip(PEOPLE, AGES + 3, strict=True)))


@pytest.mark.parametrize("kind", ["two reconstructions", "a copy", "a run without a parcel"])
def test_a_scan_is_predicted_from_each_of_its_runs_once(kind, model_of_forty, tmp_path):
    model, new = model_of_forty, cohort(tmp_path / "new")
    with_second_runs(new)
    for person in FORTY:
        if kind == "a copy":
            shutil.copy(new / f"{person}.npy", new / f"{person}_run-2.npy")
        if kind == "a run without a parcel":
            series = np.load(new / f"{person}_run-2.npy")
            series[:, 3] = 1
            np.save(new / f"{person}_run-2.npy", series)
    group(new, *CHECK, quick=())
    if kind == "two reconstructions":
        shutil.rmtree(new / "out" / "logs" / "status")
        for path in sorted(new.joinpath("out").rglob("*_run-*"), reverse=True):
            path.rename(path.with_name(path.name.replace("_run-", "_rec-")))
    rows = predictions(new, model, code=0 if kind == "two reconstructions" else 4)
    done = rows[rows["state"] == "predicted"]
    assert len(done) == len(FORTY) * (2 if kind == "two reconstructions" else 1)
    assert done["minutes"].unique().tolist() == [4.0]
    if kind != "two reconstructions":
        why = "identical to that of" if kind == "a copy" else "1 parcels of the model have no value"
        assert rows.loc[rows["state"] == "refused", "reason"].str.contains(why).tolist() == [True] * len(FORTY)
        done = done.set_index("participant_id").loc[list(FORTY)]
    ends = ("", "_run-2") if kind == "two reconstructions" else ("",)
    edges = [np.corrcoef(np.load(new / f"{who}{end}.npy").T)[np.triu_indices(6, 1)] for who in FORTY for end in ends]
    wanted = predict_from_arrays(load_model(model).arrays, np.array(edges))[0][:, 0]
    assert np.sort(done["prediction"]) == pytest.approx(np.sort(wanted), abs=1e-9)


@pytest.mark.parametrize(("outside", "scans", "holds"), [(1, 3, True), (1, 8, True), (3, 3, False)])
def test_intervals_are_judged_by_people(outside, scans, holds, model_of_forty, tmp_path):
    """Scans of one person are right or wrong together."""
    model, who = model_of_forty, FORTY[:4]
    new = write_series(tmp_path / "new", who, [str(number) for number in range(scans)], volumes=120, seed=7)
    group(new, *CHECK, quick=())
    rows = predictions(new, model)
    middle = rows.groupby("participant_id")["prediction"].mean().loc[list(who)].to_numpy()
    score = middle + np.where(np.arange(4) < outside, 1e4, 0)
    known = write_table(tmp_path / "known.tsv", participant_id=who, age=[30] * 4, score=score)
    told = run("predict", model, new / "out", "--phenotypes", known)
    values = rows["participant_id"].map(dict(zip(who, score, strict=True)))
    inside = (rows["low"] <= values) & (values <= rows["high"])
    assert f"{inside.sum()} of {4 * scans} scans with a known score" in told.out
    right = inside.groupby(rows["participant_id"]).first().sum()
    chance = stats.binom.cdf(right, 4, load_model(model).facts["Interval"]["NominalCoverage"])
    assert (chance >= 0.05) == holds
    assert ("here the intervals do not hold" in told.out) == (not holds)


@pytest.mark.parametrize("shift", [40, 0, -10])
def test_a_model_knows_the_ages_of_all_its_sessions_and_predict_names_ages_that_are_none(shift, tmp_path):
    write_series(tmp_path, FORTY, ("1", "2"), volumes=120, signal=lambda number: 0.05 + 0.9 * number / 40)
    ages = np.tile(np.arange(30.0, 40.0), 4)
    of_sessions(tmp_path, "phenotype", ("1", "2"), np.column_stack([ages, ages + shift]), FORTY)
    write_table(tmp_path / "bids" / "participants.tsv", participant_id=FORTY, score=np.arange(40) / 40)
    model = save_model(tmp_path)
    low, high = load_model(model).facts["AgeRange"]
    youngest, oldest = min(30, 30 + shift), max(39, 39 + shift)
    assert youngest - 6 < low <= youngest, "ends are round numbers"
    assert oldest <= high < oldest + 6
    new = write_series(tmp_path / "new", FORTY[:3], volumes=120)
    group(new, *CHECK, quick=())
    known = write_table(new / "known.tsv", participant_id=FORTY[:3], age=["89+", 39 + shift, 95])
    told = run("predict", model, new / "out", "--phenotypes", known)
    assert f"The age of {FORTY[0]} is '89+', no number" in told.out
    path = new / "out" / "group" / "predicted" / f"{model.name.removesuffix('_model')}.tsv"
    warned = table(path).set_index("participant_id")["warning"].str.contains("years old")
    assert warned.loc[list(FORTY[:3])].tolist() == [False, False, True]


@pytest.mark.parametrize("kind", ["another name", "a person is gone"])
def test_recordings_that_the_input_has_no_more_are_named(kind, two_runs_done, tmp_path):
    root = shutil.copytree(two_runs_done, tmp_path, dirs_exist_ok=True) / "in"
    again = run_app(root, tmp_path / "out", *ATLAS, *PLAIN)
    assert "are not among those" not in again.err
    if kind == "another name":
        for path in sorted((root / "derivatives").rglob("*_run-1_*")):
            path.rename(path.with_name(path.name.replace("_run-1", "_run-3")))
    else:
        shutil.rmtree(root / "derivatives" / "fmriprep" / "sub-02")
    some = run_app(root, tmp_path / "out", *ATLAS, *PLAIN, "--participant-label", "01")
    assert "are not among those" not in some.err, "a run of some does not see all"
    found = run_app(root, tmp_path / "out", *ATLAS, *PLAIN, code=0)
    assert "are not among those" in found.err
    assert "now, such as sub-0" in " ".join(found.err.split())


def test_who_is_skipped_has_a_row_with_the_reason_at_both_levels(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=3, sessions=1, volumes=80))
    for path in (tmp_path / "in" / "derivatives").rglob("sub-02_*_bold.nii.gz"):
        path.unlink()
    run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN, code=0)
    (row,) = table(tmp_path / "out" / "recordings.tsv").query("recording.str.startswith('sub-02')").to_dict("records")
    assert row["state"] == "skipped"
    assert "no preprocessed BOLD series" in row["reason"]
    run(tmp_path / "in", tmp_path / "out", "group", *CHECK, "--min-time", 0, "--nprocs", 1, code=0)
    excluded = table(tmp_path / "out" / "group" / "excluded.tsv").query("participant_id == 'sub-02'")
    assert excluded["reason"].str.contains("no preprocessed BOLD series").any()


def test_who_takes_part_by_one_task_is_not_left_out_for_lacking_another(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=3, sessions=1, volumes=80))
    for path in sorted((tmp_path / "in" / "derivatives").rglob("sub-01_*task-rest_*")):
        shutil.copy(path, path.with_name(path.name.replace("task-rest", "task-nback")))
    everyone = ("--participant-label", "01", "02", "03")
    for task in ("rest", "nback"):
        assert run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN, *everyone, "--task-id", task).code == 0
    run(tmp_path / "in", tmp_path / "out", "group", *CHECK, "--task-id", "rest", "--min-time", 0, "--nprocs", 1, code=0)
    assert "person" not in table(tmp_path / "out" / "group" / "excluded.tsv")["what"].tolist()
    assert len(table(tmp_path / "out" / "group" / "scans.tsv")) == 3


@pytest.mark.parametrize("words", [("b={out}", "c={link}"), ("a={out}", "A={other}")])
def test_a_site_or_its_folder_stands_once(words, tmp_path):
    write_list(tmp_path / "one", LABELS[:12])
    for name in ("out", "other"):
        told = run(tmp_path, tmp_path / name, "group", "-d", f"list={tmp_path}/one/list.tsv", *CHECK, "--min-time", 0)
        assert told.code == 0, told.err
    (tmp_path / "link").symlink_to(tmp_path / "out")
    given = [word.format(**{name: tmp_path / name for name in ("out", "other", "link")}) for word in words]
    told = run(tmp_path, tmp_path / "results", "group", "-d", *given, *CHECK, code=2)
    assert "names a site or a folder twice" in told.err


@pytest.mark.parametrize("odd", ["another order", "fewer parcels", "other parcels", "a matrix", "equal columns"])
def test_an_odd_scan_costs_a_corpus_itself_alone(odd, tmp_path):
    rows = []
    for number, person in enumerate(PEOPLE[:6]):
        series, parcels = np.random.default_rng(number).standard_normal((60, 6)), [f"R{place}" for place in range(6)]
        if number == 3:
            order = {"another order": [5, 0, 3, 1, 2, 4], "fewer parcels": [0, 1, 2, 3, 4]}.get(odd, range(6))
            parcels = [f"{'Q' if odd == 'other parcels' else 'R'}{place}" for place in order]
            stored = series[:, [0] * 6] if odd == "equal columns" else series[:, order]
            stored = np.corrcoef(stored.T) if odd == "a matrix" else stored
        np.savez(tmp_path / f"{person}.npz", x=stored if number == 3 else series, parcels=parcels)
        kind = "matrix" if number == 3 and odd == "a matrix" else "series"
        rows.append({"participant_id": person, "path": f"{person}.npz", "key": "x", "kind": kind, "repetition_time": 2})
    pd.DataFrame(rows).to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    (tmp_path / "bids" / "dataset_description.json").write_text('{"Name": "Study", "BIDSVersion": "1.9.0"}')
    given = ("-d", f"list={tmp_path}/list.tsv", "--steps", 0, "--corpus", tmp_path / "corpus", "--nprocs", 1)
    run(tmp_path / "bids", tmp_path / "out", "pretrain", *given, code=0)
    packed = table(tmp_path / "corpus" / "recordings.tsv").set_index("subject")
    kept = [person for number, person in enumerate(PEOPLE[:6]) if odd == "another order" or number != 3]
    assert sorted(f"sub-{person}" for person in packed.index) == kept
    assert len(table(tmp_path / "corpus" / "excluded.tsv")) == 6 - len(kept)
    written = np.load(tmp_path / "corpus" / "series.npy")
    for person in kept:
        series = np.random.default_rng(PEOPLE.index(person)).standard_normal((60, 6))
        start = int(packed.loc[person[4:], "offset"])
        np.testing.assert_allclose(written[start : start + 60], stats.zscore(series, ddof=1), atol=5e-3)
