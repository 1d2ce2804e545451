"""People of two places and two ages through the command: what is held constant, by numpy and scipy from their files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from fcpower_bids.core.targets import permuted_rows
from fcpower_bids.outputs.tables import read_table as table
from tests.cases.cohorts import run
from tests.test_protocols import climb, inner_score, ridge

PEOPLE, SITES, PARCELS, PERMUTATIONS, SEED = 30, ("north",) * 12 + ("south",) * 18, 5, 19, 7
LABELS = [f"sub-{number:02d}" for number in range(PEOPLE)]
SESSIONS = ("ses-1", "ses-2")
EDGES = np.triu_indices(PARCELS, 1)
COMMON = ("--nprocs", "1", "--quiet", "--permutations", PERMUTATIONS, "--random-seed", SEED)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Series of people who share a mixture, more with those of their place; a score that goes with age."""
    folder, rng = tmp_path_factory.mktemp("places"), np.random.default_rng(0)
    (folder / "bids").mkdir()
    (folder / "bids" / "dataset_description.json").write_text('{"Name": "planted", "BIDSVersion": "1.9.0"}')
    south = np.array(SITES) == "south"
    age = rng.normal(40, 10, PEOPLE) + 5 * south
    shared, rows = rng.standard_normal((PARCELS, PARCELS)), []
    for name, is_south in zip(LABELS, south, strict=True):
        own = shared + 0.6 * rng.standard_normal((PARCELS, PARCELS)) + 0.5 * is_south
        for session in SESSIONS:
            mixture = own + 0.3 * rng.standard_normal((PARCELS, PARCELS))
            path = f"{name}_{session}.npy"
            np.save(folder / path, rng.standard_normal((120, PARCELS)) @ mixture)
            rows.append((name, session, path, "series", 2.0, round(0.1 + 0.1 * rng.random() + 0.05 * is_south, 4)))
    names = ["participant_id", "session_id", "path", "kind", "repetition_time", "mean_fd"]
    pd.DataFrame(rows, columns=names).to_csv(folder / "list.tsv", sep="\t", index=False)
    people = {"participant_id": LABELS, "age": age.round(2), "place": SITES}
    people |= {"of_age": (0.2 * age + rng.standard_normal(PEOPLE)).round(4)}
    people |= {"noise": np.where(np.arange(PEOPLE) == 4, np.nan, rng.standard_normal(PEOPLE).round(4))}
    people |= {"ill": (age + 10 * rng.standard_normal(PEOPLE) > 43).astype(int)}
    pd.DataFrame(people).to_csv(folder / "bids" / "participants.tsv", sep="\t", index=False, na_rep="n/a")
    return folder


def group(root, name, *options):
    words = ("group", "-d", f"list={root / 'list.tsv'}", "--name", name, *COMMON, *options)
    run(root / "bids", root / "out", *words, code=0)
    return root / "out" / "group" / name


@pytest.fixture(scope="module")
def results(root):
    """Sites and age held constant."""
    return group(
        root, "held", "--targets", "of_age", "noise", "--site-column", "place", "--covariates", "age",
        "--representations", "fc", "--analyses", "prediction", "fingerprinting", "qc_fc",
        "--folds", "3", "--inner-folds", "3", "--repeats", "2",
    )  # fmt: skip


@pytest.fixture(scope="module")
def people(root):
    return table(root / "bids" / "participants.tsv").set_index("participant_id").loc[LABELS]


@pytest.fixture(scope="module")
def motion(root):
    return table(root / "list.tsv").groupby("participant_id")["mean_fd"].mean().loc[LABELS].to_numpy()


def edges_of(root, session):
    """Pearson correlations (30, 10) of the series of one session."""
    series = (np.load(root / f"{name}_{session}.npy") for name in LABELS)
    return np.array([np.corrcoef(each, rowvar=False)[EDGES] for each in series])


def test_a_scan_is_looked_for_among_all_people_and_among_those_of_the_own_site(root, results):
    first, second = (edges_of(root, session) for session in SESSIONS)
    similarity = np.corrcoef(first, second)[:PEOPLE, PEOPLE:]
    own = np.arange(PEOPLE)
    at_home = np.where(np.equal.outer(np.array(SITES), np.array(SITES)), similarity, -np.inf)
    row = table(results / "identification.tsv").set_index("representation").loc["fc"]
    credit = np.column_stack([similarity.argmax(axis=1) == own, similarity.argmax(axis=0) == own])
    share, hits = credit.mean(), credit.sum(axis=1)
    assert min((hits > 0).sum(), (hits < 2).sum()) >= 5, "enough people are found, and missed"
    assert row["sd"] == pytest.approx(np.sqrt(((hits - 2 * share) ** 2).sum() / (PEOPLE - 1) / PEOPLE) / 2)
    n = np.clip(share * (1 - share) / row["sd"] ** 2, PEOPLE, 2 * PEOPLE)
    t = stats.t.ppf(0.975, PEOPLE - 1)
    for end in row[["ci_low", "ci_high"]]:  # where the score test of so many searches has the critical value
        assert abs(end - share) == pytest.approx(t * np.sqrt(end * (1 - end) / n))
    for column, searched in (("accuracy", similarity), ("accuracy_within", at_home)):
        found = [searched.argmax(axis=1) == own, searched.argmax(axis=0) == own]
        assert row[column] == pytest.approx(np.mean(found))
    assert row["accuracy"] < row["accuracy_within"] < 1
    assert (row["chance"], row["chance_within"]) == pytest.approx((1 / PEOPLE, 2 / PEOPLE))


def correlations(columns, predicted):
    return np.nan_to_num([np.corrcoef(*pair)[0, 1] for pair in zip(columns.T, predicted.T, strict=True)])


def without(values, held):
    return values - held @ np.linalg.lstsq(held, values, rcond=None)[0]


def test_motion_is_compared_with_edges_at_equal_age_and_site(root, results, people, motion):
    held = np.column_stack([pd.get_dummies(people["place"], dtype=float), people["age"]])
    connectomes = np.mean([edges_of(root, session) for session in SESSIONS], axis=0)
    of_edges, of_motion = without(connectomes, held), without(motion, held)
    expected = np.array([stats.pearsonr(of_motion, edge).statistic for edge in of_edges.T])
    written = table(results / "qcfc.tsv")
    np.testing.assert_allclose(written["r"], expected, atol=1e-10)
    assert written["p"].isna().all()
    row = table(results / "qcfc_summary.tsv").set_index("representation").loc["fc"]
    assert (row["n_people"], row["n_covariates"], row["n_sites"]) == (PEOPLE, 1, 2)
    chance = stats.t.ppf(0.75, PEOPLE - 4) / np.sqrt(PEOPLE - 4 + stats.t.ppf(0.75, PEOPLE - 4) ** 2)
    assert row["median_abs_r_chance"] == pytest.approx(chance)
    orders = permuted_rows(PEOPLE, PERMUTATIONS, SEED, np.array(LABELS), np.array(SITES))
    assert (np.array(SITES)[orders] == np.array(SITES)).all()
    # residuals of n - sites degrees of freedom change places, and one of these more belongs to age
    standard = of_edges / np.linalg.norm(of_edges, axis=0)
    permuted = (of_motion / np.linalg.norm(of_motion))[orders] @ standard * np.sqrt((PEOPLE - 2) / (PEOPLE - 3))
    strength = (permuted**2).mean(axis=1)
    assert row["p_all"] == pytest.approx((1 + (strength >= (expected**2).mean()).sum()) / (1 + PERMUTATIONS))
    above = [(np.abs(permuted) >= abs(r) - 1e-12).mean() for r in expected]
    np.testing.assert_allclose(written["q"], stats.false_discovery_control(above), atol=0.02)


def known_of(people, motion):
    """Age, which is a covariate, the rank of motion, and the site: as many columns as thirty people allow."""
    rank = stats.rankdata(motion) / len(motion) - 0.5
    return np.column_stack([people["age"], rank, (people["place"] == "south").astype(float)])


def guess_of(known, values, train):
    """Least squares in the range of the training people, drawn to the mean by the slope on people who are left out."""
    inside = np.clip(known, known[train].min(axis=0), known[train].max(axis=0))
    design = np.column_stack([np.ones(len(known)), inside])
    hat = design[train] @ np.linalg.pinv(design[train])
    left_out = values[train] - (values[train] - hat @ values[train]) / (1 - np.diag(hat))
    slope, mean = np.polyfit(left_out, values[train], 1)[0], values[train].mean()
    whole = design @ np.linalg.lstsq(design[train], values[train], rcond=None)[0]
    return mean + np.clip(slope, 0, 1) * (whole - mean)


def test_what_is_known_without_a_scan_is_scored_on_the_same_folds(results, people, motion):
    rows = table(results / "prediction_baselines.tsv").set_index(["target", "model"])
    split = table(results / "folds.tsv").query("repeat == 0 and role == 'test'")
    folds = [np.isin(LABELS, each["participant_id"]) for _, each in split.groupby("fold")]
    known = known_of(people, motion)
    assert rows["known"].dropna().unique().tolist() == ["age, mean_fd, place"]
    for target in ("of_age", "noise"):
        there = people[target].notna().to_numpy()
        values = people[target].to_numpy()[there]
        guess, means = np.empty((2, len(values)))
        for test in (each[there] for each in folds):
            guess[test], means[test] = guess_of(known[there], values, ~test)[test], values[~test].mean()
        row = rows.loc[(target, "known")]
        of_no_use = np.array_equal(guess, means)
        assert row["value"] == pytest.approx(0.0 if of_no_use else np.corrcoef(guess, values)[0, 1], abs=1e-10)
        share = ((values - guess) ** 2).sum() / ((values - means) ** 2).sum()
        assert row["predictive_cod"] == pytest.approx(1 - share)
    assert rows.loc[("of_age", "known"), "value"] > 0.7


def connectomes_of_people(root):
    """FC of the series of both sessions, put end to end, each standardised."""
    found = []
    for name in LABELS:
        series = [stats.zscore(np.load(root / f"{name}_{session}.npy")) for session in SESSIONS]
        found.append(np.corrcoef(np.concatenate(series), rowvar=False)[EDGES])
    return np.array(found)


def predict_together(kernel, known, columns, names, roles):
    """What is known, and with it kernel ridge on the rest times its slope in the inner folds, of columns (n, 1 + B).

    Both are NaN where they say the mean of the training people of everyone: such a prediction orders nobody.
    """
    alone, together, mean = np.empty((3, *columns.shape))
    for _, fold in roles.groupby("fold"):
        own = fold.set_index("participant_id").loc[names]
        test, inner = (own["role"] == "test").to_numpy(), own["inner_fold"].to_numpy()
        train, test = np.flatnonzero(~test), np.flatnonzero(test)
        guess = np.empty_like(columns)
        for number, values in enumerate(columns.T):
            guess[:, number] = guess_of(known, values, train)
        left = columns - guess
        scores = {power: inner_score(kernel, left, (train, inner), 10.0**power) for power in range(-6, 7)}
        for number, values in enumerate(left.T):
            best, _ = climb(lambda penalty, of=scores, at=number: of[round(np.log10(penalty))][at], 1.0)
            pairs = []
            for label in np.unique(inner[train]):
                rows = train[inner[train] == label]
                inside = ridge(kernel, values, np.setdiff1d(train, rows), rows, best)
                pairs.append((inside - inside.mean(), values[rows] - values[rows].mean()))
            one, other = (np.concatenate(side) for side in zip(*pairs, strict=True))
            slope = max(one @ other / (one @ one), 0)
            mean[test, number] = columns[train, number].mean()
            alone[test, number] = guess[test, number]
            together[test, number] = alone[test, number] + slope * ridge(kernel, values, train, test, best)
    return (np.where((np.abs(each - mean) > 1e-12).any(axis=0), each, np.nan) for each in (alone, together))


def test_gain_and_p_of_the_connectome_are_those_of_scikit_learn(root, results, people, motion):
    """What the known columns leave in everyone changes places, and everything is done again, for both targets."""
    whole, roles = np.corrcoef(connectomes_of_people(root)), table(results / "folds.tsv").query("repeat == 0")
    written = table(results / "prediction_baselines.tsv").set_index(["model", "target"]).loc["known and connectome"]
    null = []
    for target in ("of_age", "noise"):
        there = people[target].notna().to_numpy()
        known, values = known_of(people, motion)[there], people.loc[there, target].to_numpy()
        left = without(values, np.column_stack([np.ones(len(known)), known]))
        orders = permuted_rows(len(left), PERMUTATIONS, SEED, None, np.array(SITES)[there])
        columns = np.column_stack([values, (values - left)[:, None] + left[orders].T])
        names, kernel = people.index[there], whole[np.ix_(there, there)]
        alone, together = predict_together(kernel, known, columns, names, roles)
        one, other = correlations(columns, alone), correlations(columns, together)
        gains = other - np.maximum(one, 0)
        assert written.loc[target, "value"] == pytest.approx(other[0], abs=1e-8)
        assert written.loc[target, "gain"] == pytest.approx(gains[0], abs=1e-8)
        null.append(gains)
    standard = stats.zscore(null, axis=1)
    best = standard[:, 1:].max(axis=0)
    for target, (observed, *_) in zip(("of_age", "noise"), standard, strict=True):
        expected = (1 + (best >= observed - 1e-9).sum()) / (1 + PERMUTATIONS)
        assert written.loc[target, "p_adds"] == pytest.approx(expected)
        assert written.loc[target, "n_permutations"] == PERMUTATIONS


def test_what_the_connectome_adds_to_a_class_is_tested_by_its_correlation(root, people, motion):
    """A class is 0 and 1: the gain is of areas, its p that of correlations in robust standard errors."""
    folder = group(
        root, "ill", "--targets", "ill", "--site-column", "place", "--covariates", "age", "--representations", "fc",
        "--analyses", "prediction", "--folds", "3", "--inner-folds", "3", "--repeats", "1",
    )  # fmt: skip
    known, classes = known_of(people, motion).astype(float), people["ill"].to_numpy(dtype=float)
    assert 5 <= classes.sum() <= 25
    left = without(classes, np.column_stack([np.ones(len(known)), known]))
    orders = permuted_rows(PEOPLE, PERMUTATIONS, SEED, None, np.array(SITES))
    columns = np.column_stack([classes, (classes - left)[:, None] + left[orders].T])
    roles = table(folder / "folds.tsv").query("repeat == 0")
    alone, together = predict_together(np.corrcoef(connectomes_of_people(root)), known, columns, LABELS, roles)
    one, other = correlations(columns, alone), correlations(columns, together)
    x, y = columns - columns.mean(axis=0), together - together.mean(axis=0)
    errors = np.sqrt(((x * y) ** 2).sum(axis=0) / (x**2).sum(axis=0) / (y**2).sum(axis=0))
    gains = (other - np.maximum(one, 0)) / np.where(np.isfinite(errors), errors, 1)
    row = table(folder / "prediction_baselines.tsv").set_index("model").loc["known and connectome"]
    areas = [roc_auc_score(classes, each[:, 0]) for each in (alone, together)]
    assert row["value"] == pytest.approx(areas[1])
    assert row["gain"] == pytest.approx(areas[1] - max(areas[0], 0.5))
    assert row["p_adds"] == pytest.approx((1 + (gains[1:] >= gains[0] - 1e-9).sum()) / (1 + PERMUTATIONS))
    text = (folder / "CITATION.md").read_text(encoding="utf-8")
    assert "by its distance from one half in standard errors [@delong1988]." in text
