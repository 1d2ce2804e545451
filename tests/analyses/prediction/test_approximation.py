"""The error of Nystroem where the exact regression is too dear, and where features are fitted in the folds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fcpower_bids.analyses.prediction import approximation
from fcpower_bids.analyses.prediction.prediction import analyse_prediction
from fcpower_bids.reports.cohort.sections.approximation import describe_approximations
from tests.analyses.cohorts import choose, single_session

PEOPLE, LANDMARKS, COMPARED = 30, 8, 12
SHAPE = {"folds": 3, "inner_folds": 2, "repeats": 1, "representations": ("fc",), "permutations": 0}


def approximate(**choices):
    rng = np.random.default_rng(0)
    columns = {"y": rng.standard_normal(PEOPLE), "z": rng.standard_normal(PEOPLE), "site": np.repeat(["a", "b"], 15)}
    cohort = single_session(rng, PEOPLE, **columns)
    settings = choose(targets=("y", "z"), predictors=("nystroem",), landmarks=LANDMARKS, **(SHAPE | choices))
    tables = analyse_prediction(cohort, settings)
    frame = tables["nystroem"].frame
    page = SimpleNamespace(rows=lambda name: frame, title=lambda name: "FC, Nystroem")
    return cohort, tables, frame, " ".join(describe_approximations(page))


def test_of_many_people_some_are_compared_and_the_exact_one_is_not_run(monkeypatch):
    monkeypatch.setattr(approximation, "COMPARED", COMPARED)
    monkeypatch.setattr(approximation, "EXACT_UP_TO", PEOPLE - 1)
    cohort, tables, frame, said = approximate()
    kernel, order, errors = np.corrcoef(cohort.edges), np.random.default_rng(0).permutation(PEOPLE), []
    names = cohort.scans["participant_id"].tolist()
    folds = tables["folds"].frame
    for _, part in folds[folds["role"] == "train"].groupby("fold"):
        train = [names.index(name) for name in part["participant_id"]]
        landmarks = [row for row in order if row in train][:LANDMARKS]
        others = np.setdiff1d(order[-COMPARED:], landmarks)
        cross, exact = kernel[np.ix_(others, landmarks)], kernel[np.ix_(others, others)]
        rest = exact - cross @ np.linalg.solve(kernel[np.ix_(landmarks, landmarks)], cross.T)
        errors.append(np.linalg.norm(rest) / np.linalg.norm(exact))
    assert frame["kernel_error"].tolist() == pytest.approx([np.mean(errors)] * 2, abs=1e-10)
    assert frame["n_compared"].max() <= COMPARED
    assert frame[["exact_pooled_mean", "agreement"]].isna().all(axis=None)
    assert said.endswith("the exact one was not run beside it (more than 3,000 people).")


def test_features_that_are_fitted_in_the_folds_have_agreement_alone():
    _, _, frame, said = approximate(harmonise="combat", site_column="site")
    assert frame["kernel_error"].isna().all()
    assert frame["agreement"].between(0.3, 1, inclusive="neither").all()
    assert "its kernel follows from the folds and was not compared; its predictions correlate at least" in said
