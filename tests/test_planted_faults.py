"""Faults planted in a sound cohort are named by the command, and a sound cohort is not accused."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest

from tests.planting.planted import Planted, make_cohort, without_global_signal

PEOPLE = 24


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
def check(planted):
    """Run the check; return the findings above a note, by check, and the lines of the console."""
    cohort, _ = planted

    def run(*options: object, code: int = 0) -> tuple[pd.DataFrame, str]:
        asked = ("--targets", "age", "score", "patient", "--analyses", "check", *options, "--nprocs", "1")
        told = cohort.group(*asked, code=code).err
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
    cohort.group(*QUICK, "--targets", "score")
    folds = cohort.table("folds").pivot(index=["repeat", "fold"], columns="participant_id", values="role")
    for one, _, other, _ in pairs:
        assert f"{one} and {other}" in found.loc["same scan", "finding"]
        assert f"{one} and {other}" in told
        assert (folds[one] == folds[other]).all()
        assert any((folds[one] != folds[stranger]).any() for stranger in folds)


QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "3", "--analyses", "prediction"]


def test_a_split_of_ones_own_does_not_part_two_people_who_look_alike(planted, tmp_path):
    cohort, series = planted
    cohort.put(6, "b", smooth(series[2, "a"]))
    names = cohort.phenotypes["participant_id"]
    splits = pd.DataFrame({"participant_id": names, "split": ["a" if i < 5 else "b" for i in range(PEOPLE)]})
    splits.to_csv(tmp_path / "splits.tsv", sep="\t", index=False)
    told = cohort.group(*QUICK, "--targets", "score", "--folds-file", tmp_path / "splits.tsv", code=3).err
    said = (
        "sub-003 is tested in fold a and sub-007 trains there, though they are of one family, or seem to share a scan"
    )
    assert said in told


def test_a_target_made_of_site_is_named_with_its_share_and_so_are_relatives_and_lost_zeros(check, planted):
    cohort, _ = planted
    table = cohort.phenotypes
    means = dict(zip(sorted(set(table["site"])), [-2.0, 1.0, 3.0, 0.0], strict=True))
    score = table["site"].map(means) + np.random.default_rng(0).standard_normal(PEOPLE)
    family = [f"F{row // 2}" for row in range(PEOPLE)]
    names = table["participant_id"].str.replace("sub-0*", "", regex=True)
    cohort.phenotypes = table.assign(participant_id=names, score=score, family=family)
    found, told = check()
    between = sum(
        len(part) * (part.mean() - score.mean()) ** 2 for _, part in score.groupby(table["site"])
    ) / ((score - score.mean()) ** 2).sum()  # fmt: skip
    assert found.loc["site and target", "value"] == pytest.approx(between)
    assert f"{100 * between:.0f} % of the variance of score" in found.loc["site and target", "finding"]
    assert "--site-column site" in found.loc["site and target", "remedy"]
    assert "--family-column family" in found.loc["families", "remedy"]
    assert f"{PEOPLE} participant_id of the phenotype tables match scans only without" in told


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
