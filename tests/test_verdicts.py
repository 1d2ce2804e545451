"""What the tables say of people, sites and questions, against the tables and series that they come from."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.settings import Group, Inputs
from tests.command import parse_settings
from tests.planting.planted import make_cohort, make_sites
from tests.running import FOOT

QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "2", "--replace"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """A cohort without any relation of phenotypes and connectomes."""
    return make_cohort(tmp_path_factory.mktemp("verdicts"), 16)[0]


def run(cohort, *options):
    """The page of the application on the cohort."""
    cohort.group(*QUICK, "--targets", "score", *options)
    return re.sub(r"\s+", " ", (cohort.out / "group.html").read_text())


def test_every_p_follows_from_its_table(cohort):
    run(cohort, "--permutations", "39", "--analyses", "prediction", "fingerprinting")
    null = cohort.table("null").pivot_table(index="permutation", columns="representation", values="score")
    largest = null.iloc[1:].max(axis=1)
    summary = cohort.table("prediction_summary").set_index("representation")
    for name in null:
        assert summary.loc[name, "p_permutation"] == (1 + (null[name][1:] >= null[name][0]).sum()) / 40
        assert summary.loc[name, "p_max"] == (1 + (largest >= null[name][0]).sum()) / 40
    assert summary["score_needed"].iloc[0] == pytest.approx(largest.max())  # one of 40 is the only p below 0.05

    searches = cohort.table("identification_scans").pivot_table(
        index=["participant_id", "session"], columns="representation", values="credit"
    )
    net = (searches["fc_power"] - searches["fc"]).groupby("participant_id").sum().to_numpy()
    net = net[net != 0]
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(net))).reshape(len(net), -1) if len(net) else np.ones((0, 1))
    exact = np.mean(np.abs(net @ signs) >= abs(net.sum()) - 1e-9)
    assert cohort.table("identification_comparisons")["p_people"].iloc[0] == pytest.approx(exact)


def test_many_targets_are_tested_against_the_best_of_all(cohort):
    """The best of all targets and representations, in standard deviations of permutations; AUC in standard errors."""
    run(cohort, "--permutations", "39", "--analyses", "prediction", "--targets", "score", "age", "patient")
    pivot = cohort.table("null").pivot(index="permutation", columns=["target", "representation"])
    null = ((pivot["score"] - 0.5) / pivot["standard_error"].astype(float)).fillna(pivot["score"])
    z = (null - null.mean()) / null.std(ddof=0)
    largest = z.iloc[1:].max(axis=1)
    summary = cohort.table("prediction_summary").set_index(["target", "representation"])
    for key in null:
        assert summary.loc[key, "p_max_targets"] == (1 + (largest >= z.loc[0, key] - 1e-12).sum()) / 40


def test_families_flip_together_and_are_whole_in_folds(cohort):
    table = cohort.phenotypes
    cohort.phenotypes = table.assign(family_id=[f"F{row // 2}" for row in range(len(table))])
    run(cohort, "--analyses", "prediction", "--family-column", "family_id", "--permutations", "0")
    options = [*QUICK, "--targets", "score", "--family-column", "family_id"]
    told = cohort.group(*options, "--folds", "9", code=3).err
    assert "prediction: 8 families are fewer than 9 folds; use --folds 4 or fewer." in told
    cohort.phenotypes = table.assign(family_id=["F"] * 5 + [f"F{row}" for row in range(11)])
    said = "A family of 5 is larger than one of 4 folds of 16 people; use --folds 3 or fewer, or check --family-column."
    assert said in cohort.group(*options, code=3).err


@pytest.fixture(scope="module")
def sited(tmp_path_factory):
    return make_sites(tmp_path_factory.mktemp("sites"), 24)


def begin(sited, *options):
    return run(sited, "--analyses", "prediction", *options)


def test_the_site_is_not_taken_for_a_finding_and_its_table_follows_from_the_predictions(sited):
    """Whether the column is named or recognised by the check: people change places within it."""
    page = begin(sited, "--permutations", "99")
    alarm = sited.table("check").set_index("check").loc["site and target"]
    assert alarm["level"] == "alarm"
    free = sited.table("prediction_summary").set_index("representation")
    assert free.loc["fc_power", "r_pooled_mean"] > 0.5
    assert (free["p_max"] > 0.05).all()
    assert "predicted better than chance" not in page
    begin(sited, "--permutations", "99", "--site-column", "site")
    note = sited.table("check").set_index("check").loc["site and target"]
    assert note["level"] == "note"
    assert note["consequence"].startswith("Permutations stay within the sites")
    pd.testing.assert_frame_equal(sited.table("prediction_summary").set_index("representation"), free)
    table = sited.table("prediction_sites").set_index(["representation", "over", "site"])
    people = sited.table("predictions").merge(sited.phenotypes[["participant_id", "site"]], on="participant_id")
    for name in ("fc", "fc_power"):
        own = people[people["representation"] == name]
        scores, sizes = [], []
        for site in ("one", "two"):
            part = own[own["site"] == site]
            cells = part.groupby(["repeat", "fold"])[["observed", "predicted"]]
            apart = part[["repeat"]].join(part[["observed", "predicted"]] - cells.transform("mean"))
            r = np.mean([each["observed"].corr(each["predicted"]) for _, each in apart.groupby("repeat")])
            row = table.loc[(name, "site", site)]
            assert row["value"] == pytest.approx(r)
            assert row["bias"] == pytest.approx((part["predicted"] - part["observed"]).mean())
            assert row["n_people"] == part["participant_id"].nunique()
            compared = len(part) / 2 + 1 - part.groupby("repeat")["fold"].nunique().mean()
            assert row["n_compared"] == compared
            scores, sizes = [*scores, r], [*sizes, compared]
        z = np.average(np.arctanh(scores), weights=np.array(sizes) - 3)
        assert table.xs("within sites", level="over").loc[name, "value"].item() == pytest.approx(np.tanh(z))


def test_folds_of_a_file_that_split_no_site_are_recognised_without_its_name(sited, tmp_path):
    """Four sites, three of which train: two inner folds of the preset's, or three that hold out sites."""
    four = [f"{site}{i // 2 % 2}" for i, site in enumerate(sited.phenotypes["site"])]
    splits = pd.DataFrame({"participant_id": sited.phenotypes["participant_id"], "site_split": four})
    splits.to_csv(tmp_path / "sites.tsv", sep="\t", index=False)
    begin(sited, "--folds-file", tmp_path / "sites.tsv", "--permutations", "0")
    assert sited.table("check").set_index("check").loc["site and target", "level"] == "alarm"
    whole = splits.assign(site_split=sited.phenotypes["site"])
    whole.to_csv(tmp_path / "sites.tsv", sep="\t", index=False)
    begin(sited, "--folds-file", tmp_path / "sites.tsv", "--permutations", "0")
    found = sited.table("check").set_index("check")
    assert found.loc["site and target", "level"] == "note"
    assert found.loc["site and target", "consequence"].startswith("No fold of the file splits a site")
    assert "site" not in found.index
    text = (sited.out / "group" / "CITATION.md").read_text()
    assert "those of sites.tsv, which held out sites (column site); there were 2 inner folds." in text
    table = sited.phenotypes
    sited.phenotypes = table.assign(site=four)
    splits.to_csv(tmp_path / "sites.tsv", sep="\t", index=False)
    begin(sited, "--folds-file", tmp_path / "sites.tsv", "--inner-folds", "5", "--permutations", "0")
    sited.phenotypes = table
    text = (sited.out / "group" / "CITATION.md").read_text()
    assert "(column site); there were 3 inner folds, which held out sites too." in text


def test_sites_and_classes_are_spread_over_the_folds_on_request(sited):
    people = sited.phenotypes.set_index("participant_id")
    stratum = people["site"] + people["patient"].astype(str)
    begin(sited, "--permutations", "0", "--targets", "patient", "--site-column", "site", "--stratify")
    tested = sited.table("folds").query("role == 'test'").groupby(["repeat", "fold"])["participant_id"]
    even = tested.apply(lambda names: stratum[names].value_counts()).unstack(fill_value=0)
    assert (even.max() - even.min()).max() <= 1


def test_held_out_sites_are_tested_for_what_is_scored(sited):
    """The order within sites is tested, whatever the offset of a site."""
    begin(sited, "--site-column", "site", "--sites", "hold-out", "--permutations", "49")
    table = sited.table("prediction_sites").set_index(["representation", "over", "site"])
    assert table.loc[("fc_power", "site", "two"), "bias"] < -1 < 1 < table.loc[("fc_power", "site", "one"), "bias"]
    people = sited.table("predictions")
    summary = sited.table("prediction_summary").set_index("representation")
    assert (summary["ranked_by"] == "within_mean").all()
    scores = table.xs("within sites", level="over")["value"].droplevel("site")
    np.testing.assert_allclose(summary["r_within_mean"], scores.loc[summary.index])
    null = sited.table("null").set_index(["representation", "permutation"])["score"]
    first = people[(people["repeat"] == 0) & (people["representation"] == "fc")]
    each = [part["observed"].corr(part["predicted"]) for _, part in first.groupby("fold")]
    assert null["fc", 0] == pytest.approx(np.tanh(np.mean(np.arctanh(each))))  # both sites have 12 people


NAMED_QUICK = ["--quiet", "--nprocs", "1", "--folds", "3", "--inner-folds", "2", "--repeats", "1"]
NAMED_QUICK += ["--analyses", "prediction", "--permutations", "0"]


@pytest.fixture(scope="module")
def nine(tmp_path_factory):
    return make_cohort(tmp_path_factory.mktemp("named"), 9, "a")[0]


def test_a_second_question_leaves_the_first_as_it_is(nine):
    nine.group(*NAMED_QUICK, "--targets", "age")
    before = {path.name: path.read_bytes() for path in (nine.out / "group").glob("*.*")}
    first_page = FOOT.sub(b"", (nine.out / "group.html").read_bytes())
    nine.group(*NAMED_QUICK, "--targets", "score", "--name", "score_alone")
    assert {path.name: path.read_bytes() for path in (nine.out / "group").glob("*.*")} == before
    assert FOOT.sub(b"", (nine.out / "group.html").read_bytes()) == first_page
    assert set(nine.table("score_alone/prediction")["target"]) == {"score"}
    assert set(nine.table("prediction")["target"]) == {"age"}
    assert "logs/settings_group_score_alone.toml" in (nine.out / "group_score_alone.html").read_text()
    record = nine.out / "logs" / "settings_group_score_alone.toml"
    again = parse_settings([str(nine.bids), str(nine.out), "group", "--config-file", str(record)])
    assert (again.group.name, again.group.targets, again.group.folds) == ("score_alone", ("score",), 3)


QUESTIONS = (
    *(["--covariates", "score"], ["--site-column", "site"], ["--family-column", "participant"], ["--preset", "paper"]),
    *(["--folds-file", "mine.tsv"], ["--max-mean-fd", "0.39"], ["--session-label", "a"]),
)


def test_whatever_makes_another_question_is_told_with_both_before_anything_is_replaced(nine, tmp_path):
    names = nine.phenotypes["participant_id"]
    splits = pd.DataFrame({"participant_id": names, "split": ["a" if i < 4 else "b" for i in range(len(names))]})
    splits.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
    nine.phenotypes = nine.phenotypes.assign(participant=names)
    table = nine.out / "group" / "first" / "prediction_summary.tsv"
    first = ("--targets", "age", "--name", "first")
    nine.group(*NAMED_QUICK, *first)
    before = table.read_bytes()
    for option, *value in QUESTIONS:
        words = [str(tmp_path / word) if word.endswith(".tsv") else word for word in value]
        told = nine.group(*NAMED_QUICK, *first, option, *words, code=2).err
        given = words[0] if words else "given"
        was = "recommended" if option == "--preset" else "not given"
        said = f"({option} {was}, now {given}). Give this run another --name to keep both, or --replace."
        assert said in told
        assert table.read_bytes() == before
    nine.group(*NAMED_QUICK, *first, "--representations", "fc", "--penalties", "1")


def test_every_choice_of_a_cohort_is_decided_to_make_another_question_or_not():
    fields = {each.name: each for part in (Group, Inputs) for each in dataclasses.fields(part)}
    assert not [name for name, each in fields.items() if each.metadata["question"] is None]
