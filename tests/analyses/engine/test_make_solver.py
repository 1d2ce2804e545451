"""What the regression of a representation promises."""

import dataclasses

import numpy as np
import pytest

from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.analyses.features import Representation
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.krr import KernelRidge
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.presets import PAPER, RECOMMENDED
from fcpower_bids.core.regression.probe import PRIMAL_WIDTH, LinearProbe

N = 80
FOLDS = replicated_folds(N, 5, 3, 2)


@pytest.fixture(scope="module")
def edges():
    rng = np.random.default_rng(0)
    return np.tanh(0.3 + 0.3 * rng.standard_normal((N, 12)) @ rng.standard_normal((12, 300)) / 3)


def score(edges, targets, preset=PAPER):
    solver = make_solver(Representation("fc", "correlation", lambda: edges), preset)
    return nested_cv(solver, targets, FOLDS, preset.selection)


def plant(edges, seed=1):
    rng = np.random.default_rng(seed)
    return edges[:, :40].mean(axis=1) * 10 + rng.standard_normal(N) * 0.3


@pytest.mark.parametrize("preset", [PAPER, RECOMMENDED], ids=lambda preset: preset.name)
def test_a_planted_target_is_predicted(edges, preset):
    assert score(edges, plant(edges), preset).pooled_scores("pearson").mean() > 0.6


def test_few_features_of_many_people_make_no_kernel_of_everyone(edges, monkeypatch):
    few = Representation("embedding", "linear", lambda: edges[:, :8])
    found = []
    for width in (PRIMAL_WIDTH, 0):
        monkeypatch.setattr("fcpower_bids.analyses.evaluate.PRIMAL_WIDTH", width)
        solver = make_solver(few, PAPER)
        assert isinstance(solver, LinearProbe if width else KernelRidge)
        found.append(nested_cv(solver, plant(edges)[:, None], FOLDS, PAPER.selection).predicted)
    np.testing.assert_allclose(*map(np.concatenate, found), rtol=0, atol=1e-9)


def test_shuffled_targets_give_chance(edges):
    """No fold sees its test people: over 40 shuffled targets the mean score is not above zero."""
    rng = np.random.default_rng(2)
    shuffled = np.column_stack([rng.permutation(plant(edges)) for _ in range(40)])
    scores = score(edges, shuffled).pooled_scores("pearson").mean(axis=0)
    assert np.nanmean(scores) < 2 * np.nanstd(scores) / np.sqrt(40)


def test_the_target_of_a_test_person_changes_nothing(edges):
    target = plant(edges)
    fold = FOLDS[0]
    changed = target.copy()
    changed[fold.test] = 99.0
    one, other = (run_one(edges, each, fold) for each in (target, changed))
    np.testing.assert_allclose(one, other, atol=1e-8)


def run_one(edges, target, fold):
    solver = make_solver(Representation("fc", "correlation", lambda: edges), PAPER)
    return nested_cv(solver, target, [fold], PAPER.selection).predicted[0]


def test_a_missing_target_is_predicted_and_trains_nothing(edges):
    target = plant(edges)
    missing = target.copy()
    missing[::7] = np.nan
    result = score(edges, missing)
    without = [dataclasses.replace(fold, train=fold.train[~np.isnan(missing[fold.train])]) for fold in FOLDS]
    assert all(np.isfinite(each).all() for each in result.predicted)
    for fold, one, training in zip(FOLDS, result.train, without, strict=True):
        assert fold.test.size
        assert one.mean[0] == pytest.approx(target[training.train].mean())
