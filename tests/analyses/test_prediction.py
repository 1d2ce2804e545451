"""What was planted is found, every number is what scikit-learn gives on the written folds; published presets."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score

from fcpower_bids.analyses.baselines import BUDGET, choose_permutations
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.features import AveragedEdges
from fcpower_bids.analyses.prediction import analyse_prediction
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.targets import permuted_rows
from tests.analyses.cohorts import choose, demo_cohort, single_session
from tests.analyses.conftest import TARGETS
from tests.referee import ridge


def predict(cohort, **choices):
    return ANALYSES["prediction"](cohort, choose(**choices))


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
