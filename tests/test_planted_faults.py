"""Faults planted in a sound cohort are named by the command, and a sound cohort is not accused."""

from __future__ import annotations

import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.core.series import z_score
from tests.command import main
from tests.planting.planted import Planted, make_cohort

PEOPLE = 24
UNITS = {"months": 12, "decades": 1 / 12}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return make_cohort(tmp_path_factory.mktemp("sound"), PEOPLE)


@pytest.fixture
def planted(sound, tmp_path):
    """A copy to spoil, and the series."""
    cohort, series = sound
    shutil.copytree(cohort.root, tmp_path / "cohort")
    return Planted(tmp_path / "cohort"), series


@pytest.fixture
def check(planted, capsys):
    """Run the check; return the findings above a note, by check, and the lines of the console."""
    cohort, _ = planted

    def run(*options: object, code: int = 0) -> tuple[pd.DataFrame, str]:
        command = [cohort.bids, cohort.out, "group", "--targets", "age", "score", "patient", "--check", *options]
        got = main([*map(str, command), "--nprocs", "1"])
        told = capsys.readouterr().err
        assert got == code, told
        assert "Traceback" not in told
        found = cohort.table("check") if code == 0 else pd.DataFrame(columns=["check", "level"])
        return found[found["level"] != "note"].set_index("check"), told

    return run


def test_a_sound_cohort_is_not_accused(check, planted):
    found, told = check()
    assert found.empty, found["finding"].tolist()
    assert f"{PEOPLE} people with scans, {PEOPLE} in the phenotype tables, {PEOPLE} in both" in told
    assert planted[0].table("check_pairs").empty
    assert "Nothing was found that would mislead" in (planted[0].out / "group.html").read_text()
    assert not list((planted[0].out / "group").glob("prediction*"))


def smooth(series):
    """Every volume with a third of the next, as another filter would have it."""
    return series[:-1] + series[1:] / 3


def without_global_signal(series):
    whole = series.mean(axis=1, keepdims=True)
    return series - whole @ (np.linalg.pinv(whole) @ series)


PROCESSED = {
    "rounding noise": lambda series: series + 1e-9 * np.random.default_rng(0).standard_normal(series.shape),
    "the first 80 %": lambda series: series[: int(0.8 * len(series))],
    "the first half": lambda series: series[: len(series) // 2],
    "another preprocessing": lambda series: without_global_signal(smooth(series)),
    "noise": lambda series: series + 0.3 * series.std() * np.random.default_rng(1).standard_normal(series.shape),
}


def test_scans_under_two_names_are_named_and_share_a_fold(check, planted):
    cohort, series = planted
    for place, process in enumerate(PROCESSED.values()):
        cohort.put(6 + place, "b", process(series[place, "a"]))
    found, told = check()
    rows = cohort.table("check_pairs").set_index("verdict").loc[["same scan"]]
    pairs = [[f"sub-{place + 1:03d}", "ses-a", f"sub-{place + 7:03d}", "ses-b"] for place in range(len(PROCESSED))]
    assert sorted(rows[["participant_id", "session", "other", "other_session"]].to_numpy().tolist()) == pairs
    assert (rows["series_correlation"] > 0.8).all()
    assert main([*map(str, [cohort.bids, cohort.out, "group"]), *QUICK, "--targets", "score"]) == 0
    folds = cohort.table("folds").pivot_table(
        index=["repeat", "fold"], columns="participant_id", values="role", aggfunc="first"
    )
    for one, _, other, _ in pairs:
        assert f"{one} and {other}" in found.loc["same scan", "finding"]
        assert f"{one} and {other}" in told
        assert (folds[one] == folds[other]).all()
        assert any((folds[one] != folds[stranger]).any() for stranger in folds)


QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "3", "--analyses", "prediction"]


def test_a_split_of_ones_own_does_not_part_two_people_who_look_alike(planted, tmp_path, capsys):
    cohort, series = planted
    cohort.put(6, "b", smooth(series[2, "a"]))
    names = cohort.phenotypes["participant_id"]
    splits = pd.DataFrame({"participant_id": names, "split": ["a" if i < 5 else "b" for i in range(PEOPLE)]})
    splits.to_csv(tmp_path / "splits.tsv", sep="\t", index=False)
    command = [cohort.bids, cohort.out, "group", *QUICK, "--targets", "score", "--folds-file", tmp_path / "splits.tsv"]
    assert main([*map(str, command)]) == 3
    told = capsys.readouterr().err
    assert "sub-003 is tested in fold a and sub-007 trains there, though they seem to share a scan" in told


def test_exchanged_sessions_are_named(check, planted):
    cohort, series = planted
    cohort.put(4, "b", series[9, "b"])
    cohort.put(9, "b", series[4, "b"])
    found, _ = check()
    assert "sub-005 and sub-010" in found.loc["swapped sessions", "finding"]
    rows = cohort.table("check_pairs").set_index("verdict").loc["swapped sessions"]
    assert {tuple(row) for row in rows[["participant_id", "other"]].to_numpy().tolist()} == {
        ("sub-005", "sub-010"),
        ("sub-010", "sub-005"),
    }


def test_labels_that_moved_by_one_are_named(check, planted):
    """In the second session half of the people have the scan of the one before; 60 parcels show some of them."""
    cohort, series = planted
    half = list(range(PEOPLE // 2))
    for person in half:
        cohort.put(person, "b", series[half[person - 1], "b"])
    found, told = check()
    rows = cohort.table("check_pairs").set_index("verdict").loc[["another name"]]
    moved = rows[rows["session"] == "ses-b"]
    assert len(moved) >= 3
    for row in moved.itertuples():
        assert int(row.other[4:]) - 1 == half[int(row.participant_id[4:]) - 1 - 1]
    assert f"{len(rows)} scans are far from the other scans of the same person" in found.loc["another name", "finding"]
    assert "--exclude-file" in found.loc["another name", "remedy"]
    assert "near another person's" in told


def test_families_that_nobody_declared_are_named(check, planted):
    cohort, _ = planted
    table = cohort.phenotypes
    cohort.phenotypes = table.assign(Family_ID=[f"F{max(row - 5, 0)}" for row in range(PEOPLE)])
    found, _ = check()
    assert found.loc["families", "n"] == 6
    assert "--family-column Family_ID" in found.loc["families", "remedy"]
    assert check("--family-column", "Family_ID")[0].empty
    cohort.phenotypes = table.assign(
        Family_ID=[f"F{row % (PEOPLE // 2)}" for row in range(PEOPLE)],
        site=["x" if row < PEOPLE // 2 else "y" for row in range(PEOPLE)],
    )
    found, _ = check("--family-column", "Family_ID", "--site-column", "site")
    assert found.loc["families across sites", "n"] == PEOPLE // 2
    assert "write the site into 'Family_ID'" in found.loc["families across sites", "remedy"]
    cohort.phenotypes = table.assign(twin_pair=np.arange(PEOPLE) % 2)  # a group, not a family
    assert check()[0].empty


def test_a_tiny_site_and_sites_that_connectomes_tell_are_noted(check, planted, monkeypatch):
    cohort, series = planted
    rng = np.random.default_rng(5)
    second = np.arange(PEOPLE) % 2 == 1
    artefact = rng.standard_normal((120, 1)) @ rng.standard_normal((1, 60))
    for (person, session), each in series.items():
        cohort.put(person, session, each + 0.5 * second[person] * each.std() * artefact, mean_fd=0.1)
    site = np.where(second, "two", "one").astype(object)
    site[[0, 2]] = "tiny"
    cohort.phenotypes = cohort.phenotypes.assign(site=site)
    found, _ = check("--site-column", "site")
    assert found.empty
    notes = cohort.table("check").set_index("check")
    assert "tiny (2)" in notes.loc["small site", "finding"]
    told = notes.loc["site and connectome"]
    assert told["value"] > 0.8
    assert told["n"] == PEOPLE - 2
    assert told["remedy"] == "Read the score within sites, or use --sites hold-out."
    assert (
        f"{100 * told['value']:.0f} % of the people of a site are recognised, where chance is 50 %." in told["finding"]
    )
    monkeypatch.setattr("fcpower_bids.check.columns.MOST_PEOPLE", 20)
    cohort.phenotypes = cohort.phenotypes.assign(site=np.where(second, "two", "one"))
    check("--site-column", "site")
    drawn = cohort.table("check").set_index("check").loc["site and connectome"]
    assert drawn["n"] == 20
    assert drawn["value"] > 0.8
    assert drawn["finding"].endswith(
        f"{100 * drawn['value']:.0f} % of the people of a site are recognised, where chance is 50 % (of 20 people "
        "drawn at random)."
    )


def test_a_table_of_the_dataset_without_people_is_said_where_its_column_is_asked_for(check, planted):
    cohort, _ = planted
    cohort.phenotypes = cohort.phenotypes.iloc[:0]
    _, told = check(code=3)
    assert "The column 'age' is missing for everybody: its table has no rows; leave it out." in told


def test_people_without_scan_and_scans_without_phenotypes_are_counted(check, planted):
    cohort, _ = planted
    table = cohort.phenotypes
    nobody = table.iloc[:3].assign(participant_id=["sub-901", "sub-902", "sub-903"])
    cohort.phenotypes = pd.concat([table.iloc[2:], nobody])
    found, told = check()
    assert found.empty
    counts = f"{PEOPLE} people with scans, {PEOPLE + 1} in the phenotype tables, {PEOPLE - 2} in both"
    assert counts in told
    notes = cohort.table("check").set_index("check")
    assert notes.loc["scans and phenotypes", "n"] == 5
    excluded = cohort.table("excluded")
    assert {"sub-001", "sub-002", "sub-901", "sub-902", "sub-903"} <= set(excluded["participant_id"])


def test_a_target_made_of_site_is_named_with_its_share(check, planted):
    cohort, _ = planted
    table = cohort.phenotypes
    means = dict(zip(sorted(set(table["site"])), [-2.0, 1.0, 3.0, 0.0], strict=True))
    score = table["site"].map(means) + np.random.default_rng(0).standard_normal(PEOPLE)
    cohort.phenotypes = table.assign(score=score)
    found, _ = check()
    between = sum(
        len(part) * (part.mean() - score.mean()) ** 2 for _, part in score.groupby(table["site"])
    ) / ((score - score.mean()) ** 2).sum()  # fmt: skip
    assert found.loc["site and target", "value"] == pytest.approx(between)
    assert f"{100 * between:.0f} % of the variance of score" in found.loc["site and target", "finding"]
    assert check("--covariates", "site")[0].empty
    cohort.phenotypes = table.rename(columns={"site": "Site_ID"}).assign(score=score)
    assert "'Site_ID'" in check()[0].loc["site and target", "finding"]


def test_codes_among_the_values_are_named_and_can_be_declared(check, planted):
    cohort, _ = planted
    ages = cohort.phenotypes["age"].clip(upper=70)
    codes = {"first": -1, "second": 99, "third": 0, "fourth": -818}
    columns = {name: ages.where(~ages.index.isin([1, 5, 8]), code) for name, code in codes.items()}
    cohort.phenotypes = cohort.phenotypes.assign(**columns)
    targets = ("--targets", *codes)
    found, _ = check(*targets)
    found = found.loc["repeated extreme value"]
    assert sorted(found["value"]) == sorted(codes.values())
    assert (found["n"] == 3).all()
    declared = [f"{name}={code}" for name, code in codes.items()]
    assert all(f"missing_values {words}" in " ".join(found["remedy"]) for words in declared)
    assert check(*targets, "--missing-values", *declared)[0].empty
    excluded = cohort.table("excluded")
    read = excluded[excluded["reason"].str.endswith("read as missing")].set_index("participant_id")["reason"]
    assert sorted(read.index) == ["sub-002", "sub-006", "sub-009"]
    assert all(name in reason for name in codes for reason in read)
    hints = {name: {"Levels": {str(code): "not known"}} for name, code in codes.items()}
    (cohort.bids / "participants.json").write_text(json.dumps(hints))
    assert check(*targets)[0].empty


def test_codes_inside_the_range_and_single_ones_are_named(check, planted):
    cohort, _ = planted
    table, rng = cohort.phenotypes, np.random.default_rng(0)
    inside = rng.permutation(np.r_[[99.0] * 4, np.linspace(13, 110, PEOPLE - 4).round()])
    short = np.r_[-1, rng.integers(0, 9, PEOPLE - 1)]
    filled = table["score"].where(table.index > 7, 0.25)
    cohort.phenotypes = table.assign(score=filled, inside=inside, short=short)
    found, _ = check("--targets", "inside", "short")
    said = found.loc[["repeated extreme value", "repeated value"], ["n", "value"]].to_numpy().tolist()
    assert sorted(said) == [[1, -1], [4, 99], [8, 0.25]]
    assert any("short is -1 in 1 person and nothing like it" in one for one in found["finding"])
    codes = ["score=0.25", "inside=99", "short=-1"]
    assert check("--targets", "inside", "short", "--missing-values", *codes)[0].empty


def test_a_site_in_another_unit_is_named(check, planted):
    cohort, _ = planted
    table = cohort.phenotypes
    there = table["site"] == "s2"
    columns = {name: table["age"].where(~there, factor * table["age"]) for name, factor in UNITS.items()}
    cohort.phenotypes = table.assign(**columns)
    rows = check("--targets", *columns)[0].loc["units by site"]
    for name, ages in columns.items():
        ratio = ages[there].median() / ages[~there].median()
        (row,) = rows[rows["finding"].str.contains(f"The median {name} of site")].to_dict("records")
        assert (row["n"], row["value"]) == (there.sum(), pytest.approx(ratio))
        assert f"The median {name} of site s2 is {ratio:.3g} times that of the others" in row["finding"]


def test_covariates_that_hold_the_target_are_named(check, planted):
    cohort, _ = planted
    table, rng = cohort.phenotypes, np.random.default_rng(0)
    iq = 3 * table["score"] + 0.1 * table["age"] + 0.3 * rng.standard_normal(PEOPLE)
    cohort.phenotypes = table.assign(iq=iq, years=table["age"])
    found, _ = check("--covariates", "iq", "years")
    design = np.column_stack([np.ones(PEOPLE), iq, table["age"]])
    left = table["score"] - design @ np.linalg.lstsq(design, table["score"], rcond=None)[0]
    share = 1 - left.pow(2).sum() / (PEOPLE - 3) / table["score"].var()
    row = found[found["finding"].str.contains("variance of score")].loc["covariates and target"]
    assert row["value"] == pytest.approx(share)
    assert f"iq and years explain {100 * share:.0f} % of the variance of score" in row["finding"]
    assert "covariates and target" not in check("--covariates", "mean_fd")[0].index


def spread_of_classes(cohort, patient):
    """Mean distance of one class from its other people over that of the rest, by numpy from the connectomes."""
    rows = []
    for path in sorted(cohort.out.glob("**/*ses-a*stat-pearsoncorrelation_relmat.tsv")):
        values, vectors = np.linalg.eigh(pd.read_csv(path, sep="\t", index_col=0).to_numpy())
        values = np.where(values > 1e-10 * values[-1], values, 0)
        edges = ((vectors * values**0.35) @ vectors.T)[np.triu_indices(len(values), 1)]
        rows.append((edges - edges.mean()) / np.linalg.norm(edges - edges.mean()))
    means = []
    for group in (patient, ~patient):
        own, n = np.array(rows)[group], group.sum()
        apart = [np.linalg.norm(one - np.delete(own, place, 0).mean(axis=0)) for place, one in enumerate(own)]
        means.append(np.mean(apart) * np.sqrt((n - 1) / n))
    return means[0] / means[1]


def test_classes_whose_connectomes_are_spread_differently_are_noted(check, planted):
    """Short and noisy scans of patients; distances by numpy from the files."""
    cohort, series = planted
    patient = np.arange(PEOPLE) % 3 == 0
    cohort.phenotypes = cohort.phenotypes.assign(patient=patient.astype(float))
    check()
    assert "spread of classes" not in cohort.table("check")["check"].tolist()
    rng = np.random.default_rng(0)
    for (person, session), each in series.items():
        if patient[person]:
            cohort.put(person, session, each[:60] + 1.5 * each.std() * rng.standard_normal((60, each.shape[1])))
    check("--min-time", "60")
    row = cohort.table("check").set_index("check").loc["spread of classes"]
    assert row["value"] == pytest.approx(spread_of_classes(cohort, patient), rel=1e-4)
    assert row["level"] == "note"
    quick = ("--targets", "age", "patient", "--analyses", "prediction", "--repeats", "1", "--permutations", "0")
    assert main([*map(str, (cohort.bids, cohort.out, "group")), *quick, "--min-time", "60", "--nprocs", "1"]) == 0
    page = (cohort.out / "group.html").read_text()
    for target, is_there in (("patient", True), ("age", False)):
        section = page.partition(f"<h2><bdi>Prediction of {target}</bdi></h2>")[2].partition("<h2>")[0]
        assert "Highest score" in section
        assert (row["finding"] in section) == is_there


def test_too_few_matches_are_refused(check, planted):
    cohort, _ = planted
    table = cohort.phenotypes
    names = [name if row < 9 else f"X{name[4:]}" for row, name in enumerate(table["participant_id"])]
    cohort.phenotypes = table.assign(participant_id=names)
    _, told = check(code=3)
    for word in ("24 people have scans", "24 are in the phenotype tables", "only 9", "sub-X010"):
        assert word in told
    assert not (cohort.out / "group").exists()


def test_a_target_that_goes_with_minutes_or_motion_is_named(check, planted):
    cohort, series = planted
    table = cohort.phenotypes.set_index("participant_id")
    for person in range(PEOPLE):
        longer = table["patient"].iloc[person] == 1
        cohort.put(person, "a", series[person, "a"][: 120 if longer else 100], mean_fd=0.01 * person)
        cohort.put(person, "b", series[person, "b"], mean_fd=0.01 * person)
    cohort.phenotypes = table.assign(score=np.arange(PEOPLE) / 7).reset_index()
    found, _ = check()
    assert found.loc["motion and target", "value"] == pytest.approx(1)
    assert found.loc["motion and target", "finding"].startswith("score goes with the mean FD")
    assert set(found.loc[["amount of data and target"], "value"].round(6)) == {1.0}
    assert found.loc[["amount of data and target"], "finding"].str.startswith("patient goes with").all()


def test_a_site_with_one_class_is_named(check, planted):
    cohort, _ = planted
    table = cohort.phenotypes
    site = table["site"].replace({"s3": "s1", "s2": "s0"})
    patient = np.where(site == "s1", 1, np.arange(PEOPLE) % 5 == 0)
    cohort.phenotypes = table.assign(patient=patient.astype(float), site=site)
    found, _ = check()
    assert "s1" in found.loc["classes per site", "finding"]


def test_averages_that_are_no_connectomes_are_counted(check, planted):
    """Two sessions averaged over their Fisher z, as the prediction does where it is asked to."""
    cohort, series = planted
    check("--preset", "paper")
    told = cohort.table("check").set_index("check").loc["negative eigenvalues"]
    lowest, negative = [], []
    for person in range(PEOPLE):
        two = [np.corrcoef(z_score(series[person, session]).T) for session in "ab"]
        mean = np.tanh(np.mean([np.arctanh(fc - np.eye(len(fc))) for fc in two], axis=0))
        values = np.linalg.eigvalsh(mean + np.eye(len(mean)))
        lowest.append(values[0])
        negative.append((values < -1e-6).sum())
    assert told["n"] == sum(value < -1e-6 for value in lowest)
    assert told["value"] == pytest.approx(min(lowest), rel=1e-4)
    table = cohort.table("check_combined").set_index("participant_id").sort_index()
    assert table["negative_eigenvalues"].tolist() == negative
    np.testing.assert_allclose(table["lowest_eigenvalue"], lowest, atol=1e-5)
    check()
    assert (cohort.table("check_combined")["negative_eigenvalues"] == 0).all()


def test_the_check_is_not_done_twice_and_other_choices_do_not_matter(planted, capsys):
    cohort, _ = planted
    base = [*map(str, [cohort.bids, cohort.out, "group"]), "--targets", "score", "--check"]
    assert main(base) == 0
    assert "check ..." in capsys.readouterr().err
    assert main([*base, "--repeats", "3"]) == 0
    assert "check ..." not in capsys.readouterr().err
    assert main([*base, "--covariates", "age"]) == 0
    assert "check ..." in capsys.readouterr().err


def test_pairs_that_a_site_makes_alike_are_not_called_relatives(check, planted):
    """Three people of one scanner share a pattern over parcels, each at times of their own: their series disagree."""
    cohort, series = planted
    table, rng = cohort.phenotypes, np.random.default_rng(0)
    there = np.flatnonzero(table["site"] == "s2")
    pattern = rng.standard_normal((1, 60))
    for person, session in itertools.product(there[:3], "ab"):
        each = series[person, session]
        cohort.put(person, session, each + 1.5 * each.std() * rng.standard_normal((len(each), 1)) @ pattern)
    found, _ = check()
    row = found.loc["alike at one site"]
    pairs = cohort.table("check_pairs")
    assert (pairs["series_correlation"] < 0.4).all()
    assert set(pairs["participant_id"]) | set(pairs["other"]) == set(table["participant_id"].iloc[there[:3]])
    assert row["n"] == len(pairs) >= 3
    assert f"{len(pairs)} pairs of scans of different people at site s2 are unusually alike" in row["finding"]
    assert "unusually alike" not in found.index
    for session in "ab":
        cohort.put(there[2], session, series[there[2], session])
    found, _ = check()
    assert "alike at one site" not in found.index, "two may be twins"
    assert "unusually alike" in found.index
