"""What was planted is found, every number as scikit-learn has it; encoders and parcellations are compared."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import special
from scipy.stats import binomtest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score

from fcpower_bids.analyses.baselines import BUDGET, choose_permutations
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.features import AveragedEdges
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.identification import identify
from fcpower_bids.core.targets import permuted_rows
from tests.analyses.cohorts import choose, cohort_of, single_session
from tests.analyses.conftest import TARGETS
from tests.cases.cohorts import group, read, write_series, write_table
from tests.referee import ridge


def predict(cohort, **choices):
    return ANALYSES["prediction"](cohort, choose(**choices))


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


@pytest.mark.parametrize(("n_targets", "number"), [(1, 1000), (3, 500), (40, 50), (101, 0)])
def test_the_budget_is_shared_by_the_targets(n_targets, number):
    rng = np.random.default_rng(0)
    columns = {f"t{i:03d}": rng.standard_normal(20) for i in range(n_targets)}
    shape = {"preset": "recommended", "folds": 4, "inner_folds": 2, "repeats": 1}
    study = open_study(single_session(rng, 20, **columns), choose(targets=tuple(columns), **shape))
    assert choose_permutations(study)[0] == number
    assert number * n_targets <= BUDGET


FULL, WINDOW, NOISE = "embedding:full", "embedding:window", "embedding:noise"


@pytest.fixture(scope="module")
def equipped(cohort):
    """Embeddings of a good encoder, of the same one on windows, and of one that saw nothing."""
    rng = np.random.default_rng(5)
    score = cohort.phenotypes["planted_score"].loc[cohort.scans["participant_id"]].to_numpy()
    person = pd.factorize(cohort.scans["participant_id"])[0]
    trait = rng.standard_normal((60, 16))[person]
    trait[:, 0] += 2 * (score - score.mean()) / score.std()
    full = trait + 0.3 * rng.standard_normal(trait.shape)
    window = trait + 2.0 * rng.standard_normal(trait.shape)
    noise = rng.standard_normal(trait.shape)
    return dataclasses.replace(
        cohort,
        series=(),
        embeddings={"full": full, "window": window, "noise": noise},
        embedding_facts={
            "full": {"n_parameters": 850_000, "n_parcels": 450, "parcellation": "Sch-450", "read": "sequence"},
            "window": {"n_parameters": 850_000, "n_parcels": 450, "parcellation": "Sch-450", "read": "windows"},
        },
        phenotypes=cohort.phenotypes.assign(high=np.where(cohort.phenotypes["planted_score"] > 100, "yes", "no")),
    )


@pytest.fixture(scope="module")
def tables(equipped):
    targets = ("planted_score", "null_score", "high")
    return ANALYSES["encoder_comparison"](equipped, choose(**{**TARGETS, "targets": targets}))


def test_inputs_come_from_sidecars_or_are_said_to_be_unknown(tables, equipped):
    rows = tables["encoders"].frame.drop_duplicates("representation").set_index("representation")
    n_edges = equipped.edges.shape[1]
    assert rows.loc["fc", ["params", "parcels", "scan"]].tolist() == [n_edges, len(equipped.parcels), "full"]
    assert rows.loc[WINDOW, ["params", "parcels", "atlas", "scan"]].tolist() == [850_000, 450, "Sch-450", "windows"]
    assert rows.loc[NOISE, ["params", "parcels", "atlas", "scan"]].tolist() == ["n/a"] * 4


def test_pairs_have_corrected_tests_per_target_and_mcnemar_for_identification(tables, equipped):
    frame = tables["encoder_comparisons"].frame
    assert frame.groupby("target").size().to_dict() == {
        "planted_score": 10, "null_score": 10, "high": 10, "identification": 10,
    }  # fmt: skip
    row = frame.query("target == 'planted_score' and representation == @FULL and reference == 'fc'").iloc[0]
    scores = tables["encoder_folds"].frame.query("target == 'planted_score'")
    scores = scores.pivot_table("r", ["repeat", "fold"], "representation")
    assert row["mean_difference"] == pytest.approx((scores[FULL] - scores["fc"]).mean())
    pair = frame.query("target == 'identification' and representation == @WINDOW and reference == @FULL").iloc[0]
    who, when = equipped.scans["participant_id"], equipped.scans["session"]
    kernels = (np.corrcoef(equipped.embeddings[label]) for label in ("full", "window"))
    full, window = (identify(kernel, who, when).credit == 1 for kernel in kernels)
    alone = int((window & ~full).sum()), int((full & ~window).sum())
    assert (pair["only_representation"], pair["only_reference"]) == alone
    assert pair["p_two_sided"] == pytest.approx(binomtest(alone[0], sum(alone), 0.5).pvalue)
    for name, table in tables.items():
        assert list(table.frame.columns) == list(table.columns), name


@pytest.mark.parametrize("size", [1, 2])
def test_families_are_the_unit_of_identification(size, tmp_path):
    """Every flip of signs of the searches that a family wins, by hand, against the p-value that is written."""
    random, people = np.random.default_rng(2), [f"sub-{number:02d}" for number in range(1, 17)]
    mixing = np.eye(8) + 0.3 * random.standard_normal((16, 8, 8))

    def draw(number, session):
        artefact = 2 * random.standard_normal((50, 1)) @ random.standard_normal((1, 8))
        return random.standard_normal((50, 8)) @ mixing[number] + artefact

    write_series(tmp_path, people, ("ses-a", "ses-b"), draw=draw)
    family = dict(zip(people, [f"f{number // size}" for number in range(16)], strict=True))
    columns = {"family": list(family.values()), "age": random.uniform(20, 60, 16)}
    write_table(tmp_path / "bids" / "participants.tsv", participant_id=people, **columns)
    asked = ("--analyses", "fingerprinting", "encoder_comparison", "--representations", "fc", "fc_power")
    group(tmp_path, *asked, "--targets", "age", "--family-column", "family", "--alpha", "0.2")
    searches = read(tmp_path, "identification_scans")
    searches["family"] = searches["participant_id"].map(family)
    wins = searches.pivot_table("credit", "family", "representation", aggfunc="sum")
    net = (wins["fc_power"] - wins["fc"]).to_numpy()
    flipped = np.array(list(product((-1, 1), repeat=len(net)))) @ net
    row = read(tmp_path, "encoder_comparisons").set_index("target").loc["identification"]
    assert np.abs(net).sum() > 2
    assert row["p_two_sided"] == pytest.approx((np.abs(flipped) >= abs(net.sum()) - 1e-9).mean())
    fingerprints = read(tmp_path, "identification_comparisons").iloc[0]
    for column in ("ci_low", "ci_high"):
        assert row[column] == fingerprints[column]
    errors = read(tmp_path, "encoders").query("target == 'identification'").set_index("representation")["fold_sd"]
    others = read(tmp_path, "identification").set_index("representation")["sd"]
    pd.testing.assert_series_equal(errors, others.loc[errors.index], check_names=False)


def test_the_planted_phenotype_needs_the_parcels_that_carry_it(cohort):
    """All parcels; a quarter of them; and noise with two people fewer."""
    first = len(cohort.parcels) // 4
    cut = rebuild_matrix(np.asarray(cohort.edges), 1.0, weighted=False)[:, :first, :first]
    noise = np.tanh(np.random.default_rng(0).normal(0, 0.3, (len(cohort.scans) - 4, 66)))
    rows = cohort.scans[["participant_id", "session", "seconds", "mean_fd", "n_runs"]].to_numpy().tolist()
    cohorts = {
        "whole": dataclasses.replace(cohort, series=()),
        "part": cohort_of(vectorise_edges(cut, weighted=False), rows, cohort.phenotypes),
        "noise": cohort_of(noise, rows[4:], cohort.phenotypes),
    }
    tables = ANALYSES["parcellation_sweep"](cohorts, choose(**TARGETS))
    shared = tables["parcellation_sweep"].frame.query("target == 'planted_score'")
    means = shared[shared["representation"] == "fc_power"].groupby("atlas")["r"].mean()
    assert (tables["parcellation_sweep"].frame["n_people"] == 58).all()
    assert means["whole"] > 0.5
    assert means["whole"] > means["part"]
    assert abs(means["noise"]) < 0.3
    row = tables["parcellation_comparisons"].frame.set_index(["target", "representation", "atlas", "reference"])
    row = row.loc["planted_score", "fc_power", "noise", "whole"]
    assert row["mean_difference"] == pytest.approx(means["noise"] - means["whole"])
    assert row["p_less"] < 0.05
