"""What was planted is found, every number is what scikit-learn gives on the written folds; published presets."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score

from fcpower_bids.analyses.baselines import BUDGET, choose_permutations
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.features import AveragedEdges
from fcpower_bids.analyses.prediction import analyse_prediction
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.regression.targets import permuted_rows
from tests.analyses.cohorts import choose, demo_cohort, single_session
from tests.analyses.conftest import TARGETS
from tests.core.test_targets import guess_by_sklearn
from tests.referee import ridge


def predict(cohort, **choices):
    return ANALYSES["prediction"](cohort, choose(**choices))


def test_predictions_know_nothing_of_the_people_they_are_made_for(cohort, predicted):
    folds = predicted["folds"].frame
    tested = folds.query("repeat == 0 and fold == 2 and role == 'test'")["participant_id"]
    changed = cohort.phenotypes.copy()
    changed.loc[tested, "planted_score"] = -1000.0
    changed.loc[tested, "age"] += 500
    other = dataclasses.replace(cohort, phenotypes=changed, series=())
    choices = TARGETS | {"targets": (*TARGETS["targets"], "g=memory,speed,planted_score"), "covariates": ("age",)}
    where = "repeat == 0 and fold == 2"
    before, after = (
        predict(each, **choices)["predictions"].frame.query(where)["predicted"].to_numpy()
        for each in (dataclasses.replace(cohort, series=()), other)
    )
    # The covariates of the people themselves are used on the side of the truth only.
    np.testing.assert_allclose(before, after, atol=1e-8)


def test_missing_targets_train_nothing(cohort):
    table = cohort.phenotypes.copy()
    missing = table.index[::4]
    table.loc[missing, "planted_score"] = np.nan
    other = dataclasses.replace(cohort, phenotypes=table, series=())
    tables = predict(other, **TARGETS, permutations=9)
    frame = tables["prediction"].frame.query("target == 'planted_score' and representation == 'fc'")
    assert frame.groupby("repeat")["n_test"].sum().tolist() == [45, 45]
    assert (frame["n_train"] + frame["n_test"] == 45).all()
    people = tables["predictions"].frame.query("target == 'planted_score'")
    assert set(people[people["observed"].isna()]["participant_id"]) == set(missing)
    assert people["predicted"].notna().all()


def test_reliability_of_halves_follows_the_signal(predicted):
    frame = predicted["reliability"].frame.set_index(["target", "representation"])
    planted = frame.loc[("planted_score", "fc_power")]
    assert planted["rho"] > frame.loc[("null_score", "fc_power"), "rho"]
    assert planted["ceiling"] == pytest.approx(planted["r"] / np.sqrt(2 * planted["rho"] / (1 + planted["rho"])))
    pooled = predicted["prediction_pooled"].frame.query("target == 'planted_score' and representation == 'fc_power'")
    assert planted["r"] == pytest.approx(pooled["r"].mean())


def importance_of(tables, cohort, kernel_of):
    """Importance of the edges of FC for the planted score, as it is and from kernels of training people and edges."""
    where = "target == 'planted_score' and representation == 'fc'"
    names = sorted(set(cohort.scans["participant_id"]))
    y = cohort.phenotypes.loc[names, "planted_score"].to_numpy()
    rows = [np.flatnonzero(cohort.scans["participant_id"] == name) for name in names]
    edges = AveragedEdges(cohort.edges, rows)[:, :]
    folds = tables["folds"].frame.query("repeat == 0")
    chosen = tables["prediction"].frame.query(f"{where} and repeat == 0")
    expected = np.zeros(edges.shape[1])
    for fold, penalty in zip(chosen["fold"], chosen["penalty"], strict=True):
        roles = folds[folds["fold"] == fold].set_index("participant_id").loc[names, "role"]
        train = np.flatnonzero(roles == "train")
        fitted = ridge(kernel_of(train, edges), y, train, train, penalty)
        expected += (edges[train] - edges[train].mean(0)).T @ (fitted - fitted.mean()) / (len(train) - 1) / 5
    return tables["importance_edges"].frame.query(where), expected


def test_importance_is_the_covariance_of_edges_with_fitted_values(cohort, predicted):
    frame, expected = importance_of(predicted, cohort, lambda train, edges: np.corrcoef(edges))
    assert frame.iloc[1][["parcel_a", "parcel_b"]].tolist() == ["parcel00", "parcel02"]
    np.testing.assert_allclose(frame["importance"], expected, atol=1e-8)
    networks = predicted["importance_networks"].frame.query("target == 'planted_score' and representation == 'fc'")
    within = frame[(frame["parcel_a"] < "parcel30") & (frame["parcel_b"] < "parcel30")]["importance"]
    first = networks.query("network_a == 'first' and network_b == 'first'").iloc[0]
    assert first["importance"] == pytest.approx(within.mean())
    across = frame[(frame["parcel_a"] < "parcel30") & (frame["parcel_b"] >= "parcel30")]["importance"]
    both = networks.query("network_a == 'first' and network_b == 'second'").iloc[0]
    assert both["importance"] == pytest.approx(across.mean())


@pytest.mark.parametrize("fitted_to", ["cohort", "fold"])
def test_importance_of_the_linear_kernel_is_of_the_features_that_predict(cohort, fitted_to):
    choices = {**TARGETS, "kernel": "linear", "representations": ("fc",), "penalties": (1e3,)}
    tables = predict(dataclasses.replace(cohort, series=()), **choices, fit_transforms_on=fitted_to)

    def kernel(train, edges):
        on = edges if fitted_to == "cohort" else edges[train]
        return ((edges - on.mean(0)) / on.std(0)) @ ((edges - on.mean(0)) / on.std(0)).T

    frame, expected = importance_of(tables, cohort, kernel)
    np.testing.assert_allclose(frame["importance"], expected, atol=1e-8)


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"targets": ("rare",)}, "The target 'rare' is known for only"),
        ({"targets": ("infinite",)}, "has infinite values"),
        ({"folds": 4, "family_column": "family"}, "A family of 4 is larger than one of 4 folds"),
        ({"sites": "hold-out", "site_column": "constant"}, "1 site"),
        ({"covariates": ("empty",)}, "The covariate 'empty' is known of nobody here"),
        ({"covariates": ("y_twice",)}, "explain the target 'y' completely"),
        ({"targets": ("g=y,constant",)}, "does not vary"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_sentence(choices, sentence):
    rng = np.random.default_rng(5)
    cohort = single_session(
        rng,
        12,
        y=(y := rng.standard_normal(12)),
        y_twice=2 * y + 5,
        constant=np.ones(12),
        empty=np.full(12, np.nan),
        rare=np.r_[1.0, 2.0, 3.0, np.full(9, np.nan)],
        infinite=np.r_[np.inf, np.arange(11)],
        family=["f"] * 4 + [f"g{i}" for i in range(8)],
    )
    with pytest.raises(ValueError, match=sentence):
        predict(cohort, **({"targets": ("y",), "folds": 3, "inner_folds": 2, "repeats": 1} | choices))


def test_the_connectome_is_compared_with_what_is_known_without_a_scan(cohort):
    """A score of weak modes is added to, one of age alone is not."""
    rng = np.random.default_rng(0)
    age = cohort.phenotypes["age"]
    table = cohort.phenotypes.assign(of_age=age / age.std() + 0.5 * rng.standard_normal(len(age)))
    other = dataclasses.replace(cohort, phenotypes=table, series=())
    choices = {"targets": ("planted_score", "of_age"), "representations": ("fc_power",), "folds": 5}
    tables = predict(other, **choices, repeats=2, permutations=39)
    frame = tables["prediction_baselines"].frame.set_index(["target", "model"])
    known = frame.loc[("of_age", "known"), "known"].split(", ")
    people = tables["predictions"].frame.query("target == 'of_age' and repeat == 0").set_index("participant_id")
    table = table.join(other.scans.groupby("participant_id")["mean_fd"].mean()).loc[people.index]
    table["rank"] = stats.rankdata(table["mean_fd"]) / len(table) - 0.5
    table["square"] = table["rank"] ** 2  # the logarithm of motion would be one column more than 60 people allow
    values = pd.get_dummies(table[["age", "sex", "site", "mean_fd", "rank", "square"]], drop_first=True, dtype=float)
    folds, seen, guess = people["fold"].to_numpy(), people[["observed"]].to_numpy(), np.empty(len(people))
    for fold in set(folds):
        there = np.flatnonzero(folds != fold)
        guess[folds == fold] = guess_by_sklearn(values.to_numpy(), seen, there)[folds == fold, 0]
    assert known == ["age", "sex", "mean_fd", "site"]
    assert frame.loc[("of_age", "known"), "value"] == pytest.approx(np.corrcoef(guess, people["observed"])[0, 1])
    assert frame.loc[("of_age", "known"), "value"] > 0.7
    stacked = frame.xs("known and connectome", level="model")
    assert stacked.loc["planted_score", "p_adds"] == 1 / 40 < 0.05 <= stacked.loc["of_age", "p_adds"]
    assert stacked.loc["planted_score", "gain"] > 0.2
    for gain, column in (("gain", "value"), ("gain_cod", "predictive_cod")):
        trivial = [frame.loc[(target, over), column] for target, over in stacked["over"].items()]
        np.testing.assert_allclose(stacked[gain], stacked[column] - trivial)
    assert abs(frame.loc[("of_age", "mean"), "predictive_cod"]) < 1e-12


def test_a_class_given_a_covariate_is_residualised_as_every_other_target():
    """Scores of the permutations again: least squares by scikit-learn, kernel ridge by hand on the residuals."""
    rng, n = np.random.default_rng(4), 40
    age = rng.standard_normal(n)
    classes = (rng.random(n) < special.expit(1.5 * age)).astype(float)
    cohort = single_session(rng, n, age=age, patient=classes)
    choices = {"targets": ("patient",), "covariates": ("age",), "representations": ("fc",), "penalties": (0.5,)}
    tables = predict(cohort, **choices, permutations=20, folds=3, inner_folds=2, repeats=1)
    folds = tables["folds"].frame.query("role == 'test'")
    kernel, expected = np.corrcoef(cohort.edges), []
    for order in (np.arange(n), *permuted_rows(n, 20, 0)):
        drawn, held = classes[order], age[order, None]
        left, guess = np.empty((2, n))
        for _, part in folds.groupby("fold"):
            test = np.isin(cohort.phenotypes.index, part["participant_id"])
            train = np.flatnonzero(~test)
            own = drawn - LinearRegression().fit(held[train], drawn[train]).predict(held)
            left[test], guess[test] = own[test], ridge(kernel, own, train, np.flatnonzero(test), 0.5)
        expected.append(roc_auc_score(left > 0, guess, sample_weight=np.abs(left)))
    np.testing.assert_allclose(tables["null"].frame["score"], expected, atol=1e-8)


PEOPLE = 20
SHAPE = {"folds": 4, "inner_folds": 2, "repeats": 1}


def number_of(n_targets, **choices):
    """Permutations for so many targets."""
    rng = np.random.default_rng(0)
    columns = {f"t{i:03d}": rng.standard_normal(PEOPLE) for i in range(n_targets)} | {"age": np.arange(PEOPLE) ** 2.0}
    cohort = single_session(rng, PEOPLE, **columns)
    targets = tuple(name for name in columns if name != "age")
    settings = choose(**({"preset": "recommended", "targets": targets} | SHAPE | choices))
    return choose_permutations(open_study(cohort, settings))


@pytest.mark.parametrize(("n_targets", "number"), [(1, 1000), (3, 500), (40, 50), (101, 0)])
def test_the_budget_is_shared_by_the_targets(n_targets, number):
    found = number_of(n_targets)
    assert found[0] == number
    assert number * n_targets <= BUDGET


PUBLISHED = {
    "paper": ("d6b41a6bfe74c41f", (0.129285, -0.122718, 0.693854, 0.109333), {0.001: 18, 1.0: 1, 0.01: 1}),
    "cbig": (
        "80d982e1c3a5b861",
        (0.150715, 0.047326, 0.830228, 0.088689),
        {0.0: 8, 20.0: 5, 0.7: 3, 10.0: 2, 1.5: 1, 0.4: 1},
    ),
}
"""Digest of ``folds``, pooled r of two targets under FC and FC^0.35, and how often each penalty was selected."""


@pytest.fixture(scope="module")
def thirty():
    return dataclasses.replace(demo_cohort(30), series=())


@pytest.mark.parametrize("preset", PUBLISHED)
def test_published_protocols_do_not_change(thirty, preset):
    digest, scores, penalties = PUBLISHED[preset]
    choices = {"targets": ("planted_score", "null_score"), "repeats": 1, "folds": 5, "inner_folds": 4}
    covariates = ("age", "sex") if preset == "cbig" else ()
    tables = analyse_prediction(thirty, choose(preset=preset, covariates=covariates, **choices))
    folds = tables["folds"].frame.to_csv(index=False).encode()
    assert hashlib.sha256(folds).hexdigest()[:16] == digest
    np.testing.assert_allclose(tables["prediction_pooled"].frame["r"], scores, rtol=0, atol=1e-6)
    assert tables["prediction"].frame["penalty"].value_counts().to_dict() == penalties
    assert "null" not in tables
