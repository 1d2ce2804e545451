"""Sites through the command: a target made of sites is not significant, and the table is that of the predictions."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.outputs.tables import read_table
from tests.command import main
from tests.planting.planted import make_cohort

QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "2", "--analyses", "prediction"]
QUICK += ["--replace"]
PEOPLE = 24


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """One session; the scanners of two sites colour the connectomes, and the target is the site and noise."""
    made, series = make_cohort(tmp_path_factory.mktemp("sites"), PEOPLE, "a")
    rng = np.random.default_rng(0)
    second = np.arange(PEOPLE) % 2 == 1
    artefact = rng.standard_normal((120, 1)) @ rng.standard_normal((1, 60))
    for (person, session), each in series.items():
        made.put(person, session, each + second[person] * each.std() * artefact)
    table = made.phenotypes
    sites = np.where(second, "two", "one")
    made.phenotypes = table.assign(site=sites, score=3.0 * second + rng.standard_normal(PEOPLE))
    return made


def run(cohort, *options):
    command = [cohort.bids, cohort.out, "group", *QUICK, "--targets", "score", *options]
    assert main([*map(str, command)]) == 0
    return re.sub(r"\s+", " ", (cohort.out / "group.html").read_text())


def test_the_site_is_not_taken_for_a_finding(cohort):
    """Whether the column is named or recognised by the check: people change places within it."""
    page = run(cohort, "--permutations", "99")
    alarm = cohort.table("check").set_index("check").loc["site and target"]
    assert alarm["level"] == "alarm"
    free = cohort.table("prediction_summary").set_index("representation")
    assert free.loc["fc_power", "r_pooled_mean"] > 0.5
    assert (free["p_max"] > 0.05).all()
    assert "predicted better than chance" not in page
    named = run(cohort, "--permutations", "99", "--site-column", "site")
    note = cohort.table("check").set_index("check").loc["site and target"]
    assert note["level"] == "note"
    assert note["consequence"].startswith("Permutations stay within the sites")
    assert "would mislead; read it first" not in named
    pd.testing.assert_frame_equal(cohort.table("prediction_summary").set_index("representation"), free)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--site-column", "site", "--sites", "hold-out"), "held out in turn"),
        (("--covariates", "site"), "among the covariates"),
        (("--site-column", "site", "--sites", "combat"), "ComBat"),
    ],
)
def test_an_alarm_that_the_choices_answer_is_a_note(cohort, options, words):
    run(cohort, "--analyses", "check", *options)
    note = cohort.table("check").set_index("check").loc["site and target"]
    assert note["level"] == "note"
    assert words in note["consequence"]


def test_folds_of_a_file_that_split_no_site_are_recognised_without_its_name(cohort, tmp_path):
    """Four sites, three of which train: two inner folds of the preset's, or three that hold out sites."""
    four = [f"{site}{i // 2 % 2}" for i, site in enumerate(cohort.phenotypes["site"])]
    splits = pd.DataFrame({"participant_id": cohort.phenotypes["participant_id"], "site_split": four})
    splits.to_csv(tmp_path / "sites.tsv", sep="\t", index=False)
    run(cohort, "--folds-file", tmp_path / "sites.tsv", "--permutations", "0")
    assert cohort.table("check").set_index("check").loc["site and target", "level"] == "alarm"
    whole = splits.assign(site_split=cohort.phenotypes["site"])
    whole.to_csv(tmp_path / "sites.tsv", sep="\t", index=False)
    page = run(cohort, "--folds-file", tmp_path / "sites.tsv", "--permutations", "0")
    found = cohort.table("check").set_index("check")
    assert found.loc["site and target", "level"] == "note"
    assert found.loc["site and target", "consequence"].startswith("No fold of the file splits a site")
    assert "site" not in found.index
    assert "would mislead; read it first" not in page
    text = (cohort.out / "group" / "CITATION.md").read_text()
    assert "those of sites.tsv, which held out sites (column site); there were 2 inner folds." in text
    table = cohort.phenotypes
    cohort.phenotypes = table.assign(site=four)
    splits.to_csv(tmp_path / "sites.tsv", sep="\t", index=False)
    run(cohort, "--folds-file", tmp_path / "sites.tsv", "--inner-folds", "5", "--permutations", "0")
    cohort.phenotypes = table
    text = (cohort.out / "group" / "CITATION.md").read_text()
    assert "(column site); there were 3 inner folds, which held out sites too." in text


def test_edges_are_tested_within_a_site_that_nobody_named(cohort):
    tables = {}
    for options in ((), ("--site-column", "site")):
        run(cohort, "--permutations", "49", "--analyses", "edges", "--name", "edges", *options)
        tables[options] = read_table(cohort.out / "group" / "edges" / "edges_summary.tsv")
        text = (cohort.out / "group" / "edges" / "CITATION.md").read_text()
        assert ("score goes with the site (column site), so that its model had" in text) == (not options)
    pd.testing.assert_frame_equal(*tables.values())


def test_the_table_follows_from_the_predictions(cohort):
    run(cohort, "--site-column", "site", "--permutations", "0")
    table = cohort.table("prediction_sites").set_index(["representation", "over", "site"])
    people = cohort.table("predictions").merge(cohort.phenotypes[["participant_id", "site"]], on="participant_id")
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


def test_held_out_sites_are_tested_for_what_is_scored(cohort):
    """The order within sites is tested, whatever the offset of a site."""
    run(cohort, "--site-column", "site", "--sites", "hold-out", "--permutations", "49")
    table = cohort.table("prediction_sites").set_index(["representation", "over", "site"])
    assert table.loc[("fc_power", "site", "two"), "bias"] < -1 < 1 < table.loc[("fc_power", "site", "one"), "bias"]
    people = cohort.table("predictions")
    summary = cohort.table("prediction_summary").set_index("representation")
    assert (summary["ranked_by"] == "within_mean").all()
    scores = table.xs("within sites", level="over")["value"].droplevel("site")
    np.testing.assert_allclose(summary["r_within_mean"], scores.loc[summary.index])
    null = cohort.table("null").set_index(["representation", "permutation"])["score"]
    first = people[(people["repeat"] == 0) & (people["representation"] == "fc")]
    each = [part["observed"].corr(part["predicted"]) for _, part in first.groupby("fold")]
    assert null["fc", 0] == pytest.approx(np.tanh(np.mean(np.arctanh(each))))  # both sites have 12 people


def test_sites_and_classes_are_spread_over_the_folds_on_request(cohort, capsys):
    people = cohort.phenotypes.set_index("participant_id")
    stratum = people["site"] + people["patient"].astype(str)

    def spread(*options):
        command = [cohort.bids, cohort.out, "group", *QUICK, "--permutations", "0", "--targets", "patient", *options]
        assert main([*map(str, command)]) == 0
        folds = cohort.table("folds")
        tested = folds[folds["role"] == "test"]
        counts = tested.groupby(["repeat", "fold"])["participant_id"].apply(lambda names: stratum[names].value_counts())
        return counts.unstack(fill_value=0)

    chance, even = spread("--site-column", "site"), spread("--site-column", "site", "--stratify")
    sites = cohort.table("prediction_sites").set_index("over").loc["site"]
    assert sites["value"].notna().all()
    assert sites[["mae", "bias"]].isna().all(axis=None), "classes are coded, not measured"
    assert (even.max() - even.min()).max() <= 1 < (chance.max() - chance.min()).max()
    command = [cohort.bids, cohort.out, "group", *QUICK, "--targets", "score", "--stratify"]
    assert main([*map(str, command)]) == 3
    assert "stratify needs a --site-column, or a target of two classes" in capsys.readouterr().err
    assert main([*map(str, command), "--site-column", "site", "--sites", "hold-out"]) == 3
    assert "stratify spreads people over random folds" in capsys.readouterr().err
