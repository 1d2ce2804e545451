"""Sites through the command: a target made of sites is not significant, and the table is that of the predictions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from tests.derivatives.planted import make_cohort
from tests.page_sentences import unchecked_sentences

QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "2", "--analyses", "prediction"]
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
    run(cohort, "--permutations", "99")
    free = cohort.table("prediction_summary").set_index("representation")
    assert free.loc["fc_power", "p_max"] <= 0.02
    assert free.loc["fc_power", "r_pooled_mean"] > 0.5
    page = run(cohort, "--permutations", "99", "--site-column", "site")
    within = cohort.table("prediction_summary").set_index("representation")
    assert within.loc["fc_power", "r_pooled_mean"] == free.loc["fc_power", "r_pooled_mean"]
    assert (within["p_max"] > 0.05).all()
    assert "within sites r" in page
    assert "Nothing was found" in page


def test_the_table_follows_from_the_predictions(cohort):
    run(cohort, "--site-column", "site")
    table = cohort.table("prediction_sites").set_index(["representation", "over", "site"])
    people = cohort.table("predictions").merge(cohort.phenotypes[["participant_id", "site"]], on="participant_id")
    for name in ("fc", "fc_power"):
        own = people[people["representation"] == name]
        scores, sizes = [], []
        for site in ("one", "two"):
            part = own[own["site"] == site]
            r = np.mean([each["observed"].corr(each["predicted"]) for _, each in part.groupby("repeat")])
            row = table.loc[(name, "site", site)]
            assert row["value"] == pytest.approx(r)
            assert row["bias"] == pytest.approx((part["predicted"] - part["observed"]).mean())
            assert row["n_people"] == part["participant_id"].nunique()
            scores, sizes = [*scores, r], [*sizes, row["n_people"]]
        z = np.average(np.arctanh(scores), weights=np.array(sizes) - 3)
        assert table.xs("within sites", level="over").loc[name, "value"].item() == pytest.approx(np.tanh(z))


def test_every_sentence_about_sites_is_that_of_its_table(cohort):
    run(cohort, "--permutations", "99", "--site-column", "site")
    left, read = unchecked_sentences(cohort.out / "group.html", cohort.out / "group")
    assert not [sentence for sentence in left if "lacks the columns" not in sentence]
    assert read["finding"] > 0
    assert read["sites"] == 3  # of each representation, and the first again at the top of the page


def test_a_held_out_site_has_its_bias(cohort):
    run(cohort, "--site-column", "site", "--hold-out-sites")
    table = cohort.table("prediction_sites").set_index(["representation", "over", "site"])
    assert table.loc[("fc_power", "site", "two"), "bias"] < -1 < 1 < table.loc[("fc_power", "site", "one"), "bias"]
    assert (cohort.table("comparisons")["n_blocks"] == 2).all()


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
    assert "--stratify needs a --site-column, or a target of two classes" in capsys.readouterr().err
    assert main([*map(str, command), "--site-column", "site", "--hold-out-sites"]) == 3
    assert "--stratify spreads people over random folds" in capsys.readouterr().err
