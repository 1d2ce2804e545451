"""The p-values that count people, and what the page says of them, against the tables they come from."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from tests.command import main
from tests.planting.planted import make_cohort

TITLES = {"fc": "FC", "fc_power": "FC^0.35"}
QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "2", "--replace"]


def pivot_null(null: pd.DataFrame, values: str) -> pd.DataFrame:
    return null.pivot(index="permutation", columns=["target", "representation"], values=values)


def statistics_of(null: pd.DataFrame) -> pd.DataFrame:
    """What p compare: r, and AUC minus .5 in standard errors."""
    score, error = pivot_null(null, "score"), pivot_null(null, "standard_error").astype(float)
    return ((score - 0.5) / error).fillna(score)


def scores_for(null: pd.DataFrame, statistics: pd.Series) -> pd.Series:
    """Scores whose statistic would have been so large; the error of an AUC goes with sqrt(AUC (1 - AUC))."""
    score, error = pivot_null(null, "score").loc[0], pivot_null(null, "standard_error").astype(float).loc[0]
    odds = statistics * error / np.sqrt((score * (1 - score)).where(error.notna()))
    return (0.5 + 0.5 * odds / np.sqrt(1 + odds**2)).fillna(statistics)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """A cohort without any relation of phenotypes and connectomes."""
    return make_cohort(tmp_path_factory.mktemp("verdicts"), 16)[0]


@pytest.fixture(scope="module")
def run(cohort):
    """The application on the cohort, and its page."""

    def run(*options):
        command = [cohort.bids, cohort.out, "group", *QUICK, "--targets", "score", *options]
        assert main([*map(str, command)]) == 0
        return re.sub(r"\s+", " ", (cohort.out / "group.html").read_text())

    return run


def test_every_p_follows_from_its_table(cohort, run):
    page = run("--permutations", "39", "--analyses", "prediction", "fingerprinting")
    null = cohort.table("null").pivot_table(index="permutation", columns="representation", values="score")
    largest = null.iloc[1:].max(axis=1)
    summary = cohort.table("prediction_summary").set_index("representation")
    for name in null:
        assert summary.loc[name, "p_permutation"] == (1 + (null[name][1:] >= null[name][0]).sum()) / 40
        assert summary.loc[name, "p_max"] == (1 + (largest >= null[name][0]).sum()) / 40
    assert summary["score_needed"].iloc[0] == pytest.approx(largest.max())  # one of 40 is the only p below 0.05
    assert f"chance stays below {largest.max():.2f} in 95 of 100 cohorts" in page

    row = cohort.table("comparisons").iloc[0]
    assert f"the threshold was an observed difference of {(row['ci_high'] - row['ci_low']) / 2:.2f}, and a true" in page

    searches = cohort.table("identification_scans").pivot_table(
        index=["participant_id", "session"], columns="representation", values="credit"
    )
    net = (searches["fc_power"] - searches["fc"]).groupby("participant_id").sum().to_numpy()
    net = net[net != 0]
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(net))).reshape(len(net), -1) if len(net) else np.ones((0, 1))
    exact = np.mean(np.abs(net @ signs) >= abs(net.sum()) - 1e-9)
    assert cohort.table("identification_comparisons")["p_people"].iloc[0] == pytest.approx(exact)


def test_many_targets_are_tested_against_the_best_of_all(cohort, run):
    """The page goes by the best of all targets and representations, in standard deviations of their permutations."""
    page = run("--permutations", "39", "--analyses", "prediction", "--targets", "score", "age", "patient")
    null = statistics_of(cohort.table("null"))
    z = (null - null.mean()) / null.std(ddof=0)
    largest = z.iloc[1:].max(axis=1)
    summary = cohort.table("prediction_summary").set_index(["target", "representation"])
    for key in null:
        assert summary.loc[key, "p_max_targets"] == (1 + (largest >= z.loc[0, key] - 1e-12).sum()) / 40
        assert summary.loc[key, "p_max"] <= summary.loc[key, "p_max_targets"] + 0.1
    needed = scores_for(cohort.table("null"), null.mean() + largest.max() * null.std(ddof=0))
    np.testing.assert_allclose(summary["score_needed"], needed.loc[summary.index])
    assert "corrected for 2 representations and 3 targets" in page


def test_too_few_permutations_decide_nothing_and_four_people_in_a_fold_rank_nothing(cohort, run):
    page = run("--permutations", "10", "--analyses", "prediction")
    people = cohort.table("predictions").groupby(["representation", "repeat"])[["observed", "predicted"]]
    pooled = people.corr().iloc[::2, 1].groupby(level=0).mean()
    assert (cohort.table("prediction_summary")["ranked_by"] == "pooled_mean").all()
    assert f"r {pooled.max():.2f} with {TITLES[pooled.idxmax()]}, p" in page
    first = re.search(r"<table.*?</table>", page)[0]
    assert re.findall(r'class="best"><bdi>(.*?)</bdi>', first) == [f"{pooled.max():.2f}"]
    assert "the permutations are too few to decide" in page
    assert "Nothing predicts" not in page
    assert cohort.table("prediction_summary")["score_needed"].isna().all()


def test_families_flip_together_and_are_whole_in_folds(cohort, run, capsys):
    table = cohort.phenotypes
    cohort.phenotypes = table.assign(family_id=[f"F{row // 2}" for row in range(len(table))])
    run("--analyses", "prediction", "--family-column", "family_id", "--permutations", "0")
    capsys.readouterr()
    command = [cohort.bids, cohort.out, "group", *QUICK, "--targets", "score", "--family-column", "family_id"]
    for folds, said in (
        (9, "prediction: 8 families are fewer than 9 folds; use --folds 4 or fewer."),
        (8, "In the inner loop (inner_folds): 7 people or families cannot be dealt into 8 folds; use 2 to 7 folds."),
    ):
        assert main([*map(str, command), "--folds", str(folds), "--inner-folds", "8"]) == 3
        assert said in capsys.readouterr().err
    cohort.phenotypes = table.assign(family_id=["F"] * 5 + [f"F{row}" for row in range(11)])
    assert main([*map(str, command)]) == 3
    said = "A family of 5 is larger than one of 4 folds of 16 people; use --folds 3 or fewer, or check --family-column."
    assert said in capsys.readouterr().err


def test_sites_and_families_are_blocks_of_the_identification(tmp_path):
    """Searches within the own site, shuffles within it and flips by family, from the series that were written."""
    cohort, drawn = make_cohort(tmp_path, 16)
    table = cohort.phenotypes.assign(site=[f"s{row // 4}" for row in range(16)])
    cohort.phenotypes = table.assign(family_id=[f"F{row // 2}" for row in range(16)])
    command = [cohort.bids, cohort.out, "group", *QUICK, "--analyses", "fingerprinting", "--permutations", "99"]
    assert main([*map(str, command), "--site-column", "site", "--family-column", "family_id"]) == 0
    matrices = {scan: np.corrcoef(series.T) for scan, series in drawn.items()}
    upper = np.triu_indices(len(next(iter(matrices.values()))), 1)
    a, b = (np.stack([matrices[person, session][upper] for person in range(16)]) for session in "ab")
    similarity = np.corrcoef(a, b)[:16, 16:]
    own_site = np.arange(16)[:, None] // 4 == np.arange(16) // 4
    within = np.where(own_site, similarity, -np.inf)
    found = [within.argmax(axis=0) == np.arange(16), within.argmax(axis=1) == np.arange(16)]
    row = cohort.table("identification").set_index("representation").loc["fc"]
    assert row["accuracy_within"] == pytest.approx(np.mean(found))
    assert (row["chance"], row["chance_within"], row["n_sites"]) == (1 / 16, 1 / 4, 4)
    others = similarity[own_site & ~np.eye(16, dtype=bool)]
    assert row["i_diff_within"] == pytest.approx(100 * (np.diag(similarity).mean() - others.mean()), abs=1e-6)
    page = re.sub(r"\s+", " ", (cohort.out / "group.html").read_text())
    assert (
        f"within the own site 25.0 %; among people of the own site alone it finds {100 * np.mean(found):.0f} %" in page
    )
    searches = cohort.table("identification_scans").pivot_table(
        index=["participant_id", "session"], columns="representation", values="credit"
    )
    net = (searches["fc_power"] - searches["fc"]).groupby("participant_id").sum().to_numpy().reshape(8, 2).sum(axis=1)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1)
    exact = np.mean(np.abs(net @ signs) >= abs(net.sum()) - 1e-9)
    assert cohort.table("identification_comparisons")["p_people"].iloc[0] == pytest.approx(exact)
