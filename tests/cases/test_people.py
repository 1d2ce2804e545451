"""Tables of people are joined with the people and the sessions of the scans that are used."""

from __future__ import annotations

import json
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids import load_cohort
from fcpower_bids.core.folds import replicated_folds
from tests.cases.cohorts import PEOPLE, group, observed, read, run, write_series, write_table
from tests.referee import ridge
from tests.test_protocols import climb, inner_score

PREDICT = ("--analyses", "prediction", "--representations", "fc")
AGES = np.round(np.random.default_rng(1).uniform(20, 60, len(PEOPLE)), 1)


def of_sessions(folder, form, sessions, ages, people=PEOPLE, column="age"):
    """Write the ages of people at sessions (person, session) in one of the forms of BIDS."""
    if form == "phenotype":
        table = pd.DataFrame(ages, pd.Index(people, name="participant_id"), pd.Index(sessions, name="session_id"))
        write_table(folder / "bids" / "phenotype" / "ages.tsv", **table.stack().rename(column).reset_index())
        return
    for one, each in zip(people, ages, strict=True):
        write_table(folder / "bids" / one / f"{one}_sessions.tsv", session_id=sessions, **{column: each})


@pytest.mark.parametrize(
    ("scanned", "chosen", "in_phenotype", "in_sessions"),
    [
        (("2", "10"), (), ("ses-10", "ses-2"), ("ses-10", "ses-2")),
        (("2", "10"), ("10",), ("ses-2", "ses-10"), ("2", "10")),
        (("Post",), (), ("ses-post", "ses-pre"), ("pre", "post")),
    ],
)
def test_01_a_value_is_that_of_the_session_of_the_scan(tmp_path, scanned, chosen, in_phenotype, in_sessions):
    write_series(tmp_path, sessions=scanned)
    used = (chosen or scanned)[0].lstrip("0").lower()
    for form, column, in_table in (("phenotype", "age", in_phenotype), ("sessions", "years", in_sessions)):
        others = [3 * (one.removeprefix("ses-").lstrip("0").lower() != used) for one in in_table]
        of_sessions(tmp_path, form, in_table, AGES[:, None] + np.array(others), column=column)
    options = ("--session-label", *chosen) if chosen else ()
    group(tmp_path, *PREDICT, "--targets", "age", "years", *options)
    for column in ("age", "years"):
        assert observed(tmp_path, column) == pytest.approx(dict(zip(PEOPLE, AGES, strict=True)))


@pytest.mark.parametrize("form", ["phenotype", "sessions"])
def test_01_in_python_a_scan_has_the_values_of_its_session(tmp_path, form):
    write_series(tmp_path, sessions=("2", "10", "11"))
    of_sessions(tmp_path, form, ("2", "10"), AGES[:, None] + np.array([0, 3]))
    group(tmp_path, *PREDICT, "--targets", "age")
    cohort = load_cohort(tmp_path / "out", tmp_path / "bids", per="scan", min_time=0.0)
    ages = cohort.to_dataframe().reset_index().pivot(index="participant_id", columns="session", values="age")
    np.testing.assert_array_equal(ages["ses-2"], AGES)
    np.testing.assert_array_equal(ages["ses-10"], AGES + 3)
    assert ages["ses-11"].isna().all(), "nothing was measured then"


@pytest.mark.parametrize(
    ("place", "cell", "words"),
    [
        (3, "refused", "sub-004 has refused in one and 23.0 in the other"),
        (3, "refused", "--config-file missing_values"),
        (5, "99.5", "sub-006 has 99.5 in one and 25.0 in the other"),
        (5, "25.00", ""),
    ],
)
def test_the_person_in_whom_two_tables_differ_is_named(place, cell, words, people, tmp_path):
    ages = np.arange(20, 50)
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, age=ages)
    cells = [cell if row == place else f"{age}.0" for row, age in enumerate(ages)]
    given = write_table(tmp_path / "given.tsv", participant_id=PEOPLE, age=cells)
    options = ["--phenotypes", given, "--targets", "age"]
    if words.startswith("--config-file"):
        (tmp_path / "choices.toml").write_text('missing_values = ["age=refused"]\n')
        options, words = [*options, "--config-file", tmp_path / "choices.toml"], ""
    assert words in " ".join(group(people, *PREDICT, *options, code=3 if words else 0).err.split())


@pytest.mark.parametrize("form", ["phenotype", "sessions"])
def test_01_a_person_without_a_row_of_the_session_misses_the_value(tmp_path, form):
    write_series(tmp_path, sessions=("2",))
    of_sessions(tmp_path, form, ("ses-1", "ses-2"), np.column_stack([AGES[:20] + 50, AGES[:20]]), PEOPLE[:20])
    if form == "phenotype":
        path = tmp_path / "bids" / "phenotype" / "ages.tsv"
        path.write_text(path.read_text() + "".join(f"{one}\tses-1\t99\n" for one in PEOPLE[20:]))
    else:
        of_sessions(tmp_path, form, ("ses-1",), AGES[20:, None] + 50, PEOPLE[20:])
    group(tmp_path, *PREDICT, "--targets", "age")
    assert observed(tmp_path, "age") == pytest.approx(dict(zip(PEOPLE[:20], AGES[:20], strict=True)))
    reasons = read(tmp_path, "excluded").groupby("participant_id")["reason"].agg(" ".join)
    assert set(reasons.index) == set(PEOPLE[20:])
    assert (reasons.str.contains("ses-1") & reasons.str.contains("ses-2")).all()


@pytest.mark.parametrize(("scanned", "in_table"), [(("01",), ("baseline", "followup")), (("2", "10"), ("ses-x",))])
def test_01_sessions_that_do_not_meet_are_both_listed(tmp_path, scanned, in_table):
    write_series(tmp_path, sessions=scanned)
    of_sessions(tmp_path, "phenotype", in_table, np.column_stack([AGES] * len(in_table)))
    said = group(tmp_path, *PREDICT, "--targets", "age", code=3).err
    assert "ages.tsv" in said
    assert all(f"ses-{label}" in said for label in (*scanned, *(one.removeprefix("ses-") for one in in_table)))


SPELLINGS = {
    "zeros": lambda: [str(number) for number in range(1, 31)],
    "capitals": lambda: [one.upper() for one in PEOPLE],
    "bare": lambda: [one.removeprefix("sub-") for one in PEOPLE],
}


def spelled(path, spelling, **columns):
    """Write a table as a spreadsheet does, with semicolons and in Latin-1, ids in one of the spellings."""
    frame = pd.DataFrame({"participant_id": SPELLINGS[spelling](), **columns, "ort": "Köln"})
    path.write_bytes(frame.to_csv(index=False, sep=";").encode("latin-1"))
    return path


@pytest.mark.parametrize("first", [0, 1])
def test_08_targets_folds_and_decisions_mean_the_same_people(people, first):
    of_ages, of_folds, of_decisions = np.roll(list(SPELLINGS), first)
    folds = np.arange(len(PEOPLE)) % 3 + 1
    table = spelled(people / "ages.csv", of_ages, age=AGES)
    dealt = spelled(people / "folds.csv", of_folds, first=folds).read_bytes()
    (people / "folds.csv").write_bytes(dealt.replace(b";ort", b"").replace(";Köln".encode("latin-1"), b""))
    decided = spelled(people / "out.csv", of_decisions, decision=["reject", "accept", *["doubt"] * 28])
    options = ("--phenotypes", table, "--folds-file", people / "folds.csv", "--exclude-file", decided)
    quick = ("--inner-folds", 2, "--permutations", 0, "--min-time", 0, "--nprocs", 1)
    group(people, *PREDICT, "--targets", "age", *options, quick=quick)
    assert observed(people, "age") == pytest.approx(dict(zip(PEOPLE[1:], AGES[1:], strict=True)))
    tested = read(people, "folds").query("role == 'test'").set_index("participant_id")["fold"]
    assert (tested + 1).to_dict() == dict(zip(PEOPLE[1:], folds[1:], strict=True))


def test_08_a_code_is_missing_where_it_is_declared(people):
    ages = np.where(np.arange(30) < 4, 77, AGES)
    hints = {"level": {"Levels": {"77": "refused to answer"}}, "code": {"MissingValues": [77, {"88": "of no use"}]}}
    hints |= {"option": {}, "none": {}}
    table = write_table(people / "x.tsv", participant_id=PEOPLE, **dict.fromkeys(hints, ages))
    (people / "x.json").write_text(json.dumps(hints))
    options = ("--targets", *hints, "--phenotypes", table, "--missing-values", "option=77")
    group(people, *PREDICT, *options)
    missing = {name for name in hints if PEOPLE[0] not in observed(people, name)}
    assert missing == {"level", "code", "option"}


@pytest.fixture(scope="module")
def model(one_session, tmp_path_factory):
    """A model of people from 20 to 60, and the folder of outputs that it may be applied to."""
    folder = shutil.copytree(one_session, tmp_path_factory.mktemp("model") / "people")
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, age=AGES, score=AGES[::-1])
    group(folder, *PREDICT, "--targets", "score", "--save-models", "--any-skill")
    return next((folder / "out" / "group" / "models").glob("*_model"))


def test_08_predict_reads_ages_as_the_group_level_does(people, model):
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, score=AGES)
    group(people, "--analyses", "check")
    hints = {"zeros": {}, "capitals": {"Levels": {"77": "refused"}}}
    for spelling, hint in hints.items():
        table = spelled(people / "new.csv", spelling, age=np.where(np.arange(30) == 3, 77, AGES))
        (people / "new.json").write_text(json.dumps({"age": hint} if hint else {}))
        run("predict", model, people / "out", "--phenotypes", table, code=0)
        rows = pd.read_csv(next((people / "out" / "group" / "predicted").glob("*fc.tsv")), sep="\t")
        old = rows["warning"].fillna("").str.contains("77 years old")
        assert rows.loc[old, "participant_id"].tolist() == ([] if hint else [PEOPLE[3]])


@pytest.mark.parametrize(
    ("tables", "options"),
    [
        ({"a.tsv": {"score": AGES}, "b.tsv": {"SCORE": AGES[::-1]}}, ("--targets", "score")),
        ({"a.tsv": {"score": AGES, "site": list("ab") * 15, "Site": list("aab") * 10}},
         ("--targets", "score", "--site-column", "Site")),
    ],
)  # fmt: skip
def test_08_columns_that_differ_by_capitals_alone_are_refused(people, tables, options):
    paths = [write_table(people / name, participant_id=PEOPLE, **columns) for name, columns in tables.items()]
    said = group(people, *PREDICT, "--phenotypes", *paths, *options, code=3).err
    names = [name for columns in tables.values() for name in columns]
    used = options[-1].lower()
    assert all(f"'{name}'" in said for name in names if name.lower() == used)
    assert all(path.name in said for path in paths)
    assert not (people / "out" / "group" / "predictions.tsv").exists()


def test_09_a_column_that_is_mostly_numbers_is_listed_as_not_predicted(people):
    words = {"age": "89+", "bmi": ".", "memory": "<5", "minutes_of_walk": "refused"}
    columns = {column: [*map(str, AGES[:-1]), word] for column, word in words.items()}
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, iq=AGES[::-1], **columns)
    terminal = group(people, *PREDICT).err
    assert read(people, "prediction_summary")["target"].unique().tolist() == ["iq"]
    reasons = read(people, "excluded").query("what == 'target'")["reason"].str.cat(sep=" ")
    check = read(people, "check").query("check == 'not predicted'")
    page = (people / "out" / "group.html").read_text().replace("&lt;", "<").replace("&#39;", "'")
    for column, word in words.items():
        for said in (reasons, (check["finding"] + check["remedy"]).str.cat(sep=" "), page, terminal):
            assert f"'{word}'" in said
            assert f"{column}={word}" in said


def test_24_an_unknown_column_comes_before_the_results_of_another_question(people):
    columns = {"age": AGES, "iq": AGES[::-1], "memory": np.roll(AGES, 5), "site": list("ab") * 15}
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, **columns)
    group(people, *PREDICT, "--targets", "age")
    before = (people / "out" / "group" / "predictions.tsv").read_bytes()
    for options, wrong, meant in (
        (("--targets", "Age"), "Age", "age"),
        (("--targets", "age", "--covariates", "iqq"), "iqq", "iq"),
        (("--targets", "iq", "--site-column", "Site"), "Site", "site"),
        (("--targets", "g=age,memry"), "memry", "memory"),
    ):
        said = group(people, *PREDICT, *options, code=3).err
        assert f"'{wrong}'" in said
        assert f"Did you mean '{meant}'?" in said
        assert "another question" not in said
        assert (people / "out" / "group" / "predictions.tsv").read_bytes() == before


def test_10_a_composite_is_of_those_who_have_all_its_measures(people):
    random = np.random.default_rng(4)
    common = random.standard_normal(30)
    missing = {
        "f": {"two": range(5, 12)},
        "g": {"one": [3], "three": range(20, 30)},
        "h": {"one": range(8), "two": range(8), "three": [9]},
    }
    composites = {}
    for name, holes in missing.items():
        measures = pd.DataFrame({column: common + random.standard_normal(30) for column in ("one", "two", "three")})
        for column, rows in holes.items():
            measures.loc[list(rows), column] = np.nan
        composites[name] = measures.add_prefix(name)
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, **pd.concat(composites.values(), axis=1))
    targets = [f"{name}={','.join(measures)}" for name, measures in composites.items()]
    group(people, *PREDICT, "--targets", *targets)
    predictions, folds = read(people, "predictions").dropna(subset="observed"), read(people, "folds")
    for name, measures in composites.items():
        complete, table = measures.dropna(), predictions[predictions["target"] == name]
        assert sorted(table["participant_id"]) == [PEOPLE[row] for row in complete.index]
        for fold, part in table.groupby("fold"):
            train = folds[(folds["fold"] == fold) & (folds["role"] == "train")]["participant_id"].map(PEOPLE.index)
            of_train = complete.loc[complete.index.intersection(train)]
            z = (complete - of_train.mean()) / of_train.std(ddof=0)
            weights = np.linalg.svd(z.loc[of_train.index])[2][0]
            expected = (z @ (weights * np.sign(weights.sum()))).loc[part["participant_id"].map(PEOPLE.index)]
            assert part["observed"].to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-6)


@pytest.mark.parametrize("shift", [0, 500])
def test_25_all_rows_are_judged(tmp_path, model, shift):
    folder = write_series(tmp_path, seed=5)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, score=AGES + shift)
    group(folder, "--analyses", "check")
    said = run("predict", model, folder / "out", code=0).out
    path = next((folder / "out" / "group" / "predicted").glob("*fc.tsv"))
    rows = pd.read_csv(path, sep="\t")
    known = rows["participant_id"].map(dict(zip(PEOPLE, AGES + shift, strict=True)))
    inside = int(((rows["low"] <= known) & (known <= rows["high"])).sum())
    assert f"{inside} of 30 scans with a known score lie in their intervals" in said
    assert ("do not hold" in said) == (shift > 0)
    assert json.loads(path.with_suffix(".json").read_text())["Coverage"]["Inside"] == inside


def test_a_covariate_that_no_scan_has_is_named(people):
    write_table(people / "bids" / "participants.tsv", participant_id=PEOPLE, age=AGES)
    options = ("--analyses", "edges", "--targets", "age", "--representations", "fc")
    said = group(people, *options, "--covariates", "degrees_of_freedom", code=3).err
    assert "'degrees_of_freedom' is known of nobody" in said
    assert "participant_id" not in said


@pytest.mark.parametrize("without", ["a row", "a site", "one of two sites"])
def test_people_without_a_site_change_places_among_themselves(without, tmp_path):
    fd = np.random.default_rng(4).uniform(0.1, 0.3, len(PEOPLE))
    write_series(tmp_path, signal=lambda row: (AGES[row] - 20) / 50, mean_fd=fd)
    about = {"participant_id": PEOPLE, "age": AGES + 40 * (np.arange(30) % 2), "site": ["north", "south"] * 15}
    people = pd.DataFrame(about)
    people.loc[[4, 9], "site"] = np.nan
    people = people.drop([4, 9]) if without == "a row" else people
    if without == "one of two sites":
        people["scanner"] = np.repeat(["a", "b"], 15)
    write_table(tmp_path / "bids" / "participants.tsv", **people)
    asked = ("--analyses", "prediction", "qc_fc", "edges", "--representations", "fc", "--permutations", 20)
    group(tmp_path, *asked, "--targets", "age")
    motion = read(tmp_path, "qcfc")["r"]
    edges = load_cohort(tmp_path / "out", tmp_path / "bids", min_time=0.0).features("fc")
    labels = people.set_index("participant_id").reindex(PEOPLE).iloc[:, 1:].fillna("n/a")
    known = labels.agg("/".join, axis=1)
    sites = np.column_stack([known == name for name in known.unique()]).astype(float)
    left = [values - sites @ np.linalg.lstsq(sites, values, rcond=None)[0] for values in (edges, fd)]
    r = [np.corrcoef(column, left[1])[0, 1] for column in left[0].T]
    assert motion.to_numpy() == pytest.approx(r, abs=1e-6)


AGES_OF_SESSIONS = AGES[:, None] + np.array([0, 3])


@pytest.mark.parametrize("lacking", [(), (4, 9), tuple(range(0, 30, 3))])
def test_01_who_is_described_by_a_later_session_has_the_values_of_that(lacking, tmp_path):
    """An embedding of the first session cannot be made, so the second alone is compared, for FC too."""

    def draw(row, place):
        series = np.random.default_rng([row, place]).normal(size=(100, 6))
        series[:, 5] *= not (place == 0 and row in lacking)
        return series

    write_series(tmp_path, sessions=("1", "2"), draw=draw)
    of_sessions(tmp_path, "phenotype", ("1", "2"), AGES_OF_SESSIONS)
    asked = ("--targets", "age", "--encoder", "random-init", "--representations", "fc", "embedding")
    group(tmp_path, *PREDICT, *asked, "--covariates", "scans", code=4 if lacking else 0)
    later = np.isin(np.arange(30), lacking)
    counts = np.column_stack([np.ones(30), 2.0 - later])
    folds = read(tmp_path, "folds")
    seen = read(tmp_path, "predictions").query("representation == 'fc'").set_index("participant_id")["observed"]
    for _, fold in folds.groupby("fold"):
        train, test = (np.isin(PEOPLE, fold.loc[fold["role"] == role, "participant_id"]) for role in ("train", "test"))
        ages = AGES_OF_SESSIONS[np.arange(30), later.astype(int)]
        left = ages - counts @ np.linalg.lstsq(counts[train], ages[train], rcond=None)[0]
        assert seen[np.array(PEOPLE)[test]].to_numpy() == pytest.approx(left[test], abs=1e-6)


def test_01_at_more_minutes_the_sessions_that_are_long_enough_give_the_values(tmp_path):
    shift = np.random.default_rng(2).uniform(0, 40, 30)
    ages = np.round(np.column_stack([AGES, AGES + shift]), 2)

    def draw(row, place):
        series = np.random.default_rng([row, place, 9]).normal(size=(60 if place == 0 and row % 2 else 150, 6))
        series[:, 1] += series[:, 0] * (ages[row, place] - 20) / 30
        return series

    write_series(tmp_path, sessions=("1", "2"), draw=draw)
    of_sessions(tmp_path, "phenotype", ("1", "2"), ages)
    (tmp_path / "choices.toml").write_text("scan_minutes = [4]\n")
    quick = ("--folds", 3, "--repeats", 1, "--min-time", 0, "--nprocs", 1, "--random-seed", 0)
    asked = ("--analyses", "learning_curves", "--targets", "age", "--config-file", tmp_path / "choices.toml")
    group(tmp_path, *asked, quick=quick)
    rows = read(tmp_path, "learning_curves").query("minutes == 4 and representation == 'fc'")
    rows = rows[rows["n_people"] == rows["n_people"].max()].sort_values("fold")
    long_enough = [(1,) if row % 2 else (0, 1) for row in range(30)]
    edges = []
    for row, places in enumerate(long_enough):
        parts = [stats.zscore(draw(row, place)[:120], ddof=1) for place in places]
        whole = np.concatenate(parts)
        edges.append((whole.T @ whole / (119 * len(parts)))[np.triu_indices(6, 1)])
    kernel, values = np.corrcoef(edges), ages[np.arange(30), [places[0] for places in long_enough]]
    for fold, r in zip(replicated_folds(30, 3, 5, 1, 0), rows["r"], strict=True):
        inner = np.full(30, -1)
        for number, places in enumerate(fold.inner):
            inner[places] = number
        penalty, _ = climb(partial(inner_score, kernel, values, (fold.train, inner)), 1.0)
        predicted = ridge(kernel, values, fold.train, fold.test, penalty)
        assert r == pytest.approx(np.corrcoef(predicted, values[fold.test])[0, 1], abs=1e-6)


@pytest.mark.parametrize(("labels", "code"), [(("1", "01"), 3), (("A", "a"), 3), (("1", "10"), 0)])
def test_a_session_in_two_spellings_is_refused(labels, code, tmp_path):
    write_series(tmp_path, sessions=labels)
    told = group(tmp_path, "--analyses", "check", code=code).err
    assert ("one session in two spellings" in told) == (code == 3)
