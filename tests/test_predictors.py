"""Predictors through the command: what is written is what scikit-learn and the published protocol make of the files."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import logm
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from fcpower_bids.cli.run import main
from tests.core.regression.solvers.test_cpm import fit_cpm
from tests.planting.planted import Planted, make_cohort

QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "3", "--repeats", "1", "--analyses", "prediction"]
PEOPLE = 28
PENALTIES = [1.0, 10.0, 100.0]


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    """The cohort, and FC (people, edges) from its series."""
    made, series = make_cohort(tmp_path_factory.mktemp("predictors"), PEOPLE, "a")
    edges = np.stack([np.corrcoef(series[person, "a"].T)[np.triu_indices(60, 1)] for person in range(PEOPLE)])
    rng = np.random.default_rng(5)
    score = edges[:, :30].mean(axis=1)
    made.phenotypes = made.phenotypes.assign(score=score / score.std() + 0.3 * rng.standard_normal(PEOPLE))
    options = ["--targets", "score", "--covariates", "age", "--representations", "fc", "--permutations", "19"]
    options += ["--predictors", "kernel_ridge", "ridge", "cpm", "--penalties", *PENALTIES]
    assert main([*map(str, [made.bids, made.out, "group", *QUICK, *options])]) == 0
    return made, edges


def residuals(table, train):
    """The score without what age explains in the training people."""
    design = np.column_stack([np.ones(PEOPLE), table["age"]])
    weights = np.linalg.lstsq(design[train], table["score"].to_numpy()[train], rcond=None)[0]
    return table["score"].to_numpy() - design @ weights


def folds_of(made):
    """Training and test rows of each fold, and the inner folds of the training people."""
    folds, names = made.table("folds"), made.phenotypes["participant_id"].tolist()
    for number, part in folds.groupby("fold"):
        rows = part.assign(row=part["participant_id"].map(names.index))
        train = rows[rows["role"] == "train"]
        inner = [own["row"].to_numpy() for _, own in train.groupby("inner_fold")]
        yield number, train["row"].to_numpy(), rows.loc[rows["role"] == "test", "row"].to_numpy(), inner


def predictions(made, entry, number):
    table = made.table("predictions").set_index(["representation", "fold", "participant_id"]).sort_index()
    return table.loc[(entry, number)]


def check_ridge(made, entry, features_of):
    """Hold an entry against scikit-learn's ridge regression on the features that the training people of a fold give."""
    chosen = made.table("prediction").set_index(["representation", "fold"])["penalty"]
    for number, train, test, inner in folds_of(made):
        target, features = residuals(made.phenotypes, train), features_of(train)
        scores = []
        for penalty in PENALTIES:
            held = [
                Ridge(penalty).fit(features[rest], target[rest]).predict(features[rows])
                for rows in inner
                for rest in [np.setdiff1d(train, rows)]
            ]
            scores.append(np.corrcoef(np.concatenate(held), target[np.concatenate(inner)])[0, 1])
        best = PENALTIES[int(np.argmax(scores))]
        assert chosen[entry, number] == best
        expected = Ridge(best).fit(features[train], target[train]).predict(features[test])
        names = made.phenotypes["participant_id"].to_numpy()[test]
        np.testing.assert_allclose(predictions(made, entry, number).loc[names, "predicted"], expected, atol=1e-6)


def test_ridge_is_that_of_scikit_learn(predicted):
    made, edges = predicted
    check_ridge(made, "fc:ridge", lambda train: edges)


def test_a_device_of_torch_gives_the_predictions_of_numpy(predicted, capsys):
    pytest.importorskip("torch", reason="torch is not installed (extra 'encoder')")
    made, edges = predicted
    options = ["--targets", "score", "--covariates", "age", "--representations", "fc", "--permutations", "0"]
    options += ["--penalties", *PENALTIES, "--name", "device", "--solver-device"]
    command = [*map(str, [made.bids, made.out, "group", *QUICK, *options])]
    assert main([*command, "mps"]) == 2
    assert "--solver-device mps cannot be used here (only cuda and cpu" in capsys.readouterr().err
    assert main([*command, "cpu"]) == 0
    tables, kernel = Planted(made.root, "device"), np.corrcoef(edges)
    chosen = tables.table("prediction").set_index("fold")["penalty"]
    for number, train, test, _ in folds_of(tables):
        names = made.phenotypes["participant_id"].to_numpy()[test]
        own, other = (predictions(each, "fc", number).loc[names, "predicted"] for each in (tables, made))
        np.testing.assert_allclose(own, other, rtol=0, atol=1e-10)
        expected = regress(kernel, residuals(made.phenotypes, train), train, test, chosen[number])
        np.testing.assert_allclose(own, expected, atol=1e-6)
    assert "PyTorch" in json.loads((made.out / "group" / "device" / "prediction.json").read_text())["Solver"]


def test_cpm_is_the_published_protocol(predicted):
    made, edges = predicted
    for number, train, test, _ in folds_of(made):
        target = residuals(made.phenotypes, train)
        names = made.phenotypes["participant_id"].to_numpy()[test]
        expected = fit_cpm(edges, target, train, test)
        np.testing.assert_allclose(predictions(made, "fc:cpm", number).loc[names, "predicted"], expected, atol=1e-6)


def test_all_stand_in_the_same_tables_and_on_the_page(predicted):
    made, _ = predicted
    summary = made.table("prediction_summary")
    assert summary["representation"].tolist() == ["fc", "fc:ridge", "fc:cpm"]
    assert summary["predictor"].tolist() == ["kernel_ridge", "ridge", "cpm"]
    table = made.table("prediction")
    assert table.groupby("predictor").size().to_dict() == {"cpm": 4, "kernel_ridge": 4, "ridge": 4}
    assert table.loc[table["predictor"] == "cpm", "penalty"].isna().all()
    assert (summary["n_permutations"] == 19).all()
    assert len(made.table("comparisons")) == 3
    page = re.sub(r"\s+", " ", (made.out / "group.html").read_text())
    assert "FC, CPM" in page
    assert "FC, ridge on edges" in page


def regress(kernel, target, rows, at, penalty):
    """Kernel ridge with an intercept, by scikit-learn."""
    ones = np.eye(len(rows)) - 1 / len(rows)
    own, cross = kernel[np.ix_(rows, rows)], kernel[np.ix_(at, rows)]
    model = KernelRidge(alpha=penalty, kernel="precomputed").fit(ones @ own @ ones, target[rows] - target[rows].mean())
    return model.predict((cross - own.mean(axis=0)) @ ones) + target[rows].mean()


def tried_mixtures(kernels, target, train, test, inner) -> dict:
    """Score of the inner folds and predictions of the test people, for every mixture of two kernels and penalty."""
    tried = {}
    for share in [0.5, *(np.arange(11) / 10)]:
        kernel = share * kernels[0] + (1 - share) * kernels[1]
        for penalty in (0.1, 1.0, 10.0):
            held = [regress(kernel, target, np.setdiff1d(train, rows), rows, penalty) for rows in inner]
            score = np.corrcoef(np.concatenate(held), target[np.concatenate(inner)])[0, 1]
            tried.setdefault((share, penalty), (score, regress(kernel, target, train, test, penalty)))
    return tried


def test_multikernel_takes_the_mixture_that_its_inner_folds_choose(predicted):
    made, edges = predicted
    options = ["--targets", "score", "--covariates", "age", "--predictors", "kernel_ridge", "multikernel"]
    options += ["--penalties", "0.1", "1", "10", "--name", "mixed"]
    assert main([*map(str, [made.bids, made.out, "group", *QUICK, *options])]) == 0
    tables = Planted(made.root, "mixed")
    spectra = [np.linalg.eigh(matrix) for matrix in read_connectomes(made)]
    powers = [(vectors * np.clip(values, 0, None) ** 0.35) @ vectors.T for values, vectors in spectra]
    kernels = [np.corrcoef(edges), np.corrcoef([matrix[np.triu_indices(60, 1)] for matrix in powers])]
    entry, shares = "fc+fc_power:multikernel", []
    for number, train, test, inner in folds_of(tables):
        tried = tried_mixtures(kernels, residuals(made.phenotypes, train), train, test, inner)
        best = max(tried, key=lambda each: tried[each][0])
        shares.append(best[0])
        names = made.phenotypes["participant_id"].to_numpy()[test]
        got = predictions(tables, entry, number).loc[names, "predicted"]
        np.testing.assert_allclose(got, tried[best][1], atol=1e-5)
    weights = tables.table("multikernel_weights").set_index("kernel")["weight_mean"]
    assert weights["fc"] == pytest.approx(np.mean(shares))
    assert weights.sum() == pytest.approx(1)
    summary = tables.table("prediction_summary").set_index("representation")
    assert summary.loc[entry, ["predictor", "n_permutations"]].tolist() == ["multikernel", 100]
    assert tables.table("null")["permutation"].max() == 100  # 5 * 500 / (2 + 11) = 192
    page = re.sub(r"\s+", " ", (made.out / "group_mixed.html").read_text())
    assert "FC + FC^0.35, multi-kernel ridge" in page
    assert (
        "Permutations: 100 per target: as many as 500 permuted targets, fitted again in every fold, allow for 1 "
        "target, multikernel counting 11 times; the smallest p is 0.0099."
    ) in page


def test_an_unknown_predictor_is_named(tmp_path, capsys):
    (tmp_path / "bids").mkdir()
    assert main([str(tmp_path / "bids"), str(tmp_path / "out"), "group", "--predictors", "forest"]) == 2
    assert "--predictors forest: there is no such predictor. Choose from: kernel_ridge" in capsys.readouterr().err


def test_transforms_of_correlation_matrices_predict_what_they_should(predicted):
    made, _ = predicted
    options = ["--targets", "score", "--covariates", "age", "--representations", "off_log", "log_scaled"]
    options += ["--shrink-to-identity", "0.1", "--predictors", "cpm", "--name", "maps", "--permutations", "0"]
    command = [made.bids, made.out, "group", *QUICK, *options]
    assert main([*map(str, command)]) == 0
    tables = Planted(made.root, "maps")
    upper = np.triu_indices(60, 1)
    full = [0.9 * matrix + 0.1 * np.eye(60) for matrix in read_connectomes(made)]
    scaled = [matrix * np.outer(d, d) for matrix in full for d in [balance(matrix)]]
    for name, matrices in (("off_log:cpm", full), ("log_scaled:cpm", scaled)):
        edges = np.stack([logm(matrix).real[upper] for matrix in matrices])
        for number, train, test, _ in folds_of(tables):
            names = made.phenotypes["participant_id"].to_numpy()[test]
            expected = fit_cpm(edges, residuals(made.phenotypes, train), train, test)
            got = predictions(tables, name, number).loc[names, "predicted"]
            np.testing.assert_allclose(got, expected, atol=1e-5)


def read_connectomes(made):
    """FC from the series of the output folder, in the order of the people."""
    files = sorted(made.out.rglob("*stat-mean_timeseries.tsv"))
    return [np.corrcoef(pd.read_csv(file, sep="\t").to_numpy().T) for file in files]


def balance(matrix):
    """Scaling to unit row sums, entry by entry: each solves d_i (M d)_i = 1 for itself until all do."""
    scaling = np.ones(len(matrix))
    for _ in range(1000):
        for i in range(len(matrix)):
            rest = matrix[i] @ scaling - scaling[i]
            scaling[i] = (np.sqrt(rest**2 + 4) - rest) / 2
        if np.abs(scaling * (matrix @ scaling) - 1).max() < 1e-10:
            return scaling
    raise AssertionError("the scaling was not found")
