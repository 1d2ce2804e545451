"""Prediction through the command: what is written is what scikit-learn makes of the files."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from tests.command import main
from tests.planting.planted import make_cohort

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
    options += ["--penalties", *PENALTIES]
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


def regress(kernel, target, rows, at, penalty):
    """Kernel ridge with an intercept, by scikit-learn."""
    ones = np.eye(len(rows)) - 1 / len(rows)
    own, cross = kernel[np.ix_(rows, rows)], kernel[np.ix_(at, rows)]
    model = KernelRidge(alpha=penalty, kernel="precomputed").fit(ones @ own @ ones, target[rows] - target[rows].mean())
    return model.predict((cross - own.mean(axis=0)) @ ones) + target[rows].mean()


def test_the_predictions_are_those_of_scikit_learn(predicted):
    made, edges = predicted
    kernel, chosen = np.corrcoef(edges), made.table("prediction").set_index("fold")["penalty"]
    for number, train, test, inner in folds_of(made):
        target, scores = residuals(made.phenotypes, train), []
        for penalty in PENALTIES:
            held = [regress(kernel, target, np.setdiff1d(train, rows), rows, penalty) for rows in inner]
            scores.append(np.corrcoef(np.concatenate(held), target[np.concatenate(inner)])[0, 1])
        best = PENALTIES[int(np.argmax(scores))]
        assert chosen[number] == best
        names = made.phenotypes["participant_id"].to_numpy()[test]
        expected = regress(kernel, target, train, test, best)
        np.testing.assert_allclose(predictions(made, "fc", number).loc[names, "predicted"], expected, atol=1e-6)
