"""ComBat against its published equations, and through the command from the files."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.outputs.tables import read_json
from tests.command import main
from tests.planting.planted import Planted, make_cohort
from tests.referee import ridge

QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "3", "--repeats", "1", "--analyses", "prediction"]
PEOPLE, PENALTIES = 36, [0.1, 1.0, 10.0]
SITE = ["--site-column", "site", "--targets", "score", "--representations", "fc"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Two scanners that colour the connectomes, a third that two people saw; the target is the scanner and noise."""
    made, series = make_cohort(tmp_path_factory.mktemp("harmonisation"), PEOPLE, "a")
    rng = np.random.default_rng(0)
    second = np.arange(PEOPLE) % 2 == 1
    artefact = rng.standard_normal((120, 1)) @ rng.standard_normal((1, 60))
    for (person, session), each in series.items():
        made.put(person, session, each + second[person] * each.std() * artefact)
    sites = np.where(second, "two", "one").astype(object)
    sites[[4, 9]] = "three"
    score = 3.0 * second + rng.standard_normal(PEOPLE)
    made.phenotypes = made.phenotypes.assign(site=sites, score=score)
    return made


def run(cohort, name, *options, code=0):
    command = [cohort.bids, cohort.out, "group", *QUICK, *SITE, "--name", name, "--replace", *options]
    assert main([*map(str, command)]) == code
    return Planted(cohort.root, name)


@pytest.fixture(scope="module")
def harmonised(cohort):
    options = ["--penalties", *PENALTIES, "--permutations", "19"]
    run(cohort, "none", *options)
    return run(cohort, "combat", *options, "--sites", "combat")


def combat(edges, sites, train):
    """Fortin et al. 2018 as published: estimated on some, applied to everyone of the sites that these have."""
    train = train[np.isin(sites[train], [s for s in set(sites) if (sites[train] == s).sum() >= 3])]
    names = sorted(set(sites[train]))
    batch = np.column_stack([sites[train] == name for name in names]).astype(float)
    weights = np.linalg.lstsq(batch, edges[train], rcond=None)[0]
    fitted = batch @ weights
    deviation = np.sqrt(((edges[train] - fitted) ** 2).mean(axis=0))
    level = batch.mean(axis=0) @ weights
    standard, out = (edges - level) / deviation, edges.copy()
    for name in names:
        own = standard[train[sites[train] == name]]
        n, raw, spread = len(own), own.mean(axis=0), own.var(axis=0, ddof=1)
        a = 2 + spread.mean() ** 2 / spread.var(ddof=1)
        b = spread.mean() * (a - 1)
        gamma, delta = raw, spread
        for _ in range(300):
            gamma = (n * raw.var(ddof=1) * raw + delta * raw.mean()) / (n * raw.var(ddof=1) + delta)
            delta = (b + ((own - gamma) ** 2).sum(axis=0) / 2) / (a + n / 2 - 1)
        rows = sites == name
        out[rows] = (standard[rows] - gamma) / np.sqrt(delta) * deviation + level
    return out


def test_it_is_combat_of_the_training_people_and_kernel_ridge(cohort, harmonised):
    table = cohort.phenotypes
    files = sorted(cohort.out.rglob("*stat-mean_timeseries.tsv"))
    upper = np.triu_indices(60, 1)
    edges = np.stack([np.corrcoef(pd.read_csv(file, sep="\t").to_numpy().T)[upper] for file in files])
    names, folds = table["participant_id"].tolist(), harmonised.table("folds")
    folds = folds.assign(row=folds["participant_id"].map(names.index))
    predicted = harmonised.table("predictions").set_index("participant_id")["predicted"]
    chosen = harmonised.table("prediction").set_index("fold")["penalty"]
    target = table["score"].to_numpy()
    for number, part in folds.groupby("fold"):
        training = part[part["role"] == "train"]
        train, test = training["row"].to_numpy(), part.loc[part["role"] == "test", "row"].to_numpy()
        kernel = np.corrcoef(combat(edges, table["site"].to_numpy(dtype=str), train))

        scores = []
        for penalty in PENALTIES:
            inner = [own["row"].to_numpy() for _, own in training.groupby("inner_fold")]
            held = np.concatenate([ridge(kernel, target, np.setdiff1d(train, rows), rows, penalty) for rows in inner])
            scores.append(np.corrcoef(held, target[np.concatenate(inner)])[0, 1])
        best = PENALTIES[int(np.argmax(scores))]
        assert chosen[number] == best
        got = predicted[[names[row] for row in test]]
        np.testing.assert_allclose(got, ridge(kernel, target, train, test, best), atol=1e-5)


def test_a_target_made_of_sites_is_found_without_and_not_with_it(cohort, harmonised):
    without = Planted(cohort.root, "none").table("prediction_summary")["r_pooled_mean"].item()
    assert without > 0.5
    row = harmonised.table("prediction_summary").iloc[0]
    assert row["r_pooled_mean"] < 0.25


def test_the_files_and_the_page_say_what_was_done(cohort, harmonised):
    facts = read_json(harmonised.out / "group/combat/prediction.json")["Harmonisation"]
    sites = cohort.phenotypes.set_index("participant_id")["site"]
    assert facts["PeopleTestedUnadjusted"] == sorted(sites.index[sites == "three"])
    page = re.sub(r"\s+", " ", (harmonised.out / "group_combat.html").read_text())
    assert "unseen in training: 2 people" in page
    people = cohort.phenotypes
    between = people.groupby("site")["score"].transform("mean").var(ddof=0) / people["score"].var(ddof=0)
    assert f"(between sites: {100 * between:.0f} % of the variance of score)" in page
    assert harmonised.table("importance_networks").empty


@pytest.mark.parametrize("asked", ["learning_curves", "alpha_selection"])
def test_what_predicts_without_combat_is_refused_with_it(asked, cohort, capsys):
    run(cohort, "refused", "--sites", "combat", "--representations", "fc", "fc_power", "--analyses", asked, code=3)
    assert "--sites combat" in capsys.readouterr().err
    assert not (cohort.out / "group" / "refused").exists()
