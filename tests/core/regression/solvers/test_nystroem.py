"""Nystroem: scikit-learn and the exact regression as referees, whose landmarks they are, and what is clipped."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem

from fcpower_bids.analyses.engine.cross_validation import make_solver, run_nested_cv
from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.core.regression.combat import HarmonisedFeatures, fit_combat
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import SomePeople, correlation_columns, correlation_kernel, normalise_rows
from fcpower_bids.core.regression.presets import PAPER, RECOMMENDED
from fcpower_bids.core.regression.solvers.nystroem import Landmarks, NystroemSolver

N = 60
FOLDS = replicated_folds(N, 5, 3, 2)


@pytest.fixture(scope="module")
def edges():
    rng = np.random.default_rng(0)
    shared = 0.3 * rng.standard_normal((N, 12)) @ rng.standard_normal((12, 300)) / 3
    return np.tanh(0.3 + shared + 0.2 * rng.standard_normal((N, 300)))


@pytest.fixture(scope="module")
def targets(edges):
    """One target, and the same with gaps."""
    values = edges[:, :40].mean(axis=1) * 10 + np.random.default_rng(1).standard_normal(N) * 0.3
    gaps = np.where(np.arange(N) % 7, values, np.nan)
    return np.column_stack([values, gaps])


def landmarks_of(edges, number, **others):
    return Landmarks(lambda people: correlation_columns(edges, people), N, number, **others)


def predict(edges, targets, predictor, preset, fitted=None):
    one = Representation("fc", "correlation", lambda: edges)
    one.fitted = fitted
    return run_nested_cv(make_solver(one, preset, predictor), targets, FOLDS, preset)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-13), (np.float32, 1e-6)])
def test_columns_are_those_of_corrcoef(edges, monkeypatch, dtype, bound):
    monkeypatch.setattr("fcpower_bids.core.regression.kernels.PANEL_NUMBERS", 64 * N)
    people = np.array([7, 3, 50])
    columns = correlation_columns(3 + edges, people, dtype)
    np.testing.assert_allclose(columns, np.corrcoef(edges)[:, people], rtol=0, atol=bound)
    assert (columns[people, [0, 1, 2]] == 1).all()
    some = correlation_kernel(SomePeople(edges, people))
    np.testing.assert_allclose(some, np.corrcoef(edges[people]), rtol=0, atol=1e-13)
    broken = edges.copy()
    broken[4] = 1.5
    with pytest.raises(ValueError, match="row 4 are constant"):
        correlation_columns(broken, people)


def test_features_are_those_of_scikit_learn(edges):
    landmarks = landmarks_of(edges, 15)
    chosen, rows = landmarks.choose(FOLDS[0].train), normalise_rows(edges)
    expected = Nystroem(kernel="linear", n_components=15).fit(rows[chosen]).transform(rows)
    features, clipped = landmarks.features(FOLDS[0].train)
    np.testing.assert_allclose(features @ features.T, expected @ expected.T, atol=1e-12)
    assert clipped == 0


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("preset", [PAPER, RECOMMENDED], ids=lambda preset: preset.name)
def test_all_training_people_as_landmarks_give_the_exact_regression(edges, targets, preset, intercept):
    preset = dataclasses.replace(preset, intercept=intercept, landmarks=N)
    exact, ours = (predict(edges, targets, name, preset) for name in ("kernel_ridge", "nystroem"))
    np.testing.assert_array_equal(ours.chosen, exact.chosen)
    np.testing.assert_allclose(ours.inner_scores, exact.inner_scores, atol=1e-8)
    for one, other in zip(ours.predicted, exact.predicted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_features_that_are_fitted_in_the_folds_too(edges, targets):
    sites, nothing = np.repeat(["a", "b"], N // 2), np.empty((N, 0))

    def fitted(train):
        return HarmonisedFeatures(edges, fit_combat(edges, sites, nothing, train), sites, nothing)

    preset = dataclasses.replace(RECOMMENDED, landmarks=N)
    exact, ours = (predict(edges, targets, name, preset, fitted) for name in ("kernel_ridge", "nystroem"))
    for one, other in zip(ours.predicted, exact.predicted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_landmarks_are_training_people_and_computed_once(edges):
    asked = []

    def compute(people):
        asked.append(people)
        return correlation_columns(edges, people)

    landmarks = Landmarks(compute, N, 20, seed=3)
    landmarks.cover(FOLDS)
    for fold in FOLDS:
        chosen = landmarks.choose(fold.train)
        assert np.isin(chosen, fold.train).all()
        assert np.unique(chosen).size == 20
        landmarks.features(fold.train)
    assert len(asked) == 1
    assert 20 <= asked[0].size < N
    assert not np.array_equal(landmarks.order, landmarks_of(edges, 20, seed=4).order)


def test_another_person_who_is_tested_changes_nothing(edges, targets):
    preset, fold = dataclasses.replace(PAPER, landmarks=20), FOLDS[0]
    changed = edges.copy()
    changed[fold.test[0]] = np.random.default_rng(9).uniform(-1, 1, 300)
    solvers = (
        make_solver(Representation("fc", "correlation", lambda e=e: e), preset, "nystroem") for e in (edges, changed)
    )
    one, other = (run_nested_cv(solver, targets, [fold], preset).predicted[0] for solver in solvers)
    np.testing.assert_allclose(one[1:], other[1:], atol=1e-12)
    assert abs(one[0] - other[0]).max() > 1e-3


def test_landmarks_that_say_nothing_new_are_clipped_and_counted(edges, targets):
    twins = edges.copy()
    twins[1::2] = twins[::2]
    landmarks = landmarks_of(twins, N)
    features, clipped = landmarks.features(np.arange(N))
    assert (features.shape[1], clipped) == (N // 2, N // 2)
    np.testing.assert_allclose(features @ features.T, np.corrcoef(twins), atol=1e-12)
    assert landmarks_of(twins, N, rounding=1.0).features(np.arange(N))[0].shape[1] == 0


def test_whoever_is_sent_it_predicts_the_same_and_computes_no_kernel(edges, targets):
    solver = NystroemSolver(landmarks_of(edges, 20), [0.0, 1.0])
    assert solver.notes
    assert solver.penalties.tolist() == [1.0]
    solver.landmarks.cover(FOLDS[:1])
    sent = pickle.loads(pickle.dumps(solver))  # noqa: S301 -- made here
    one, other = (run_nested_cv(each, targets, FOLDS[:1], PAPER).predicted[0] for each in (solver, sent))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(RuntimeError, match="before the folds are shared"):
        sent.landmarks.cover(FOLDS)
    with pytest.raises(ValueError, match="one landmark"):
        landmarks_of(edges, 0)
