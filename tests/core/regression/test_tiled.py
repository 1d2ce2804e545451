"""Kernels on disk: inverses by tiles and what follows from them, against those in memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import linalg

from fcpower_bids.core.regression.dense import HOST
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel, fill_correlations
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.ridge import (
    KernelPenalties,
    check_memory,
    factorise_kernel,
    fit_in_sample,
    fits_in_memory,
    fold_bytes,
    open_kernel,
)
from fcpower_bids.core.regression.tiled import Tiled
from fcpower_bids.errors import Unfit
from fcpower_bids.ondisk import ScratchRows
from fcpower_bids.resources import MEGA, memory_limit

N = 150
LITTLE = 4 * 4 * 8 * 64**2 / MEGA
"""MB with which tiles have the smallest side, 64: the kernels here are of three, the last one narrower."""


@pytest.fixture
def features():
    return np.random.default_rng(3).standard_normal((N, 40))


@pytest.fixture
def on_disk(features, tmp_path):
    kernel = ScratchRows(tmp_path, (N, N), np.float64)
    fill_correlations(features, kernel, 50)
    return kernel


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", [1e-2, 1.0, 1e3])
def test_an_inverse_by_tiles_is_that_of_the_whole(on_disk, penalty, intercept, tmp_path):
    with memory_limit(LITTLE):
        found = Tiled(tmp_path).invert(on_disk, penalty, intercept)
    expected = HOST.invert(on_disk[:], penalty, intercept)
    np.testing.assert_allclose(found[:], expected, rtol=0, atol=1e-12 / penalty)
    np.testing.assert_allclose(found[:], found[:].T, rtol=1e-12)


def test_a_singular_kernel_has_no_inverse(on_disk, tmp_path):
    with memory_limit(LITTLE):
        assert Tiled(tmp_path).invert(on_disk, 0.0, False) is None
        assert Tiled(tmp_path).invert(on_disk, 1e-14, False) is None
        with pytest.warns(UserWarning, match="Penalty 0 was dropped"):
            assert open_kernel(on_disk, [0.0, 1.0]).penalties.tolist() == [1.0]


@pytest.mark.parametrize("sent", [False, True])
def test_nested_predictions_are_those_in_memory(on_disk, features, sent):
    rng, grid = np.random.default_rng(4), [0.1, 1.0, 10.0]
    targets = np.where(rng.random((N, 2)) < 0.1, np.nan, features[:, :2] + rng.standard_normal((N, 2)))
    folds = replicated_folds(N, 5, 3, 2)
    expected = nested_cv(factorise_kernel(correlation_kernel(features), grid), targets, folds)
    with memory_limit(LITTLE):
        solver = open_kernel(on_disk, grid)
        assert isinstance(solver, KernelPenalties)
        each = (lambda do, folds: [pickle.loads(pickle.dumps(do))(fold) for fold in folds]) if sent else map  # noqa: S301
        found = nested_cv(solver, targets, folds, each=each)
    np.testing.assert_array_equal(found.chosen, expected.chosen)
    np.testing.assert_allclose(found.inner_scores, expected.inner_scores, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.concatenate(found.predicted), np.concatenate(expected.predicted), rtol=0, atol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("where", ["in memory", "on disk"])
def test_fits_in_sample_solve_the_equations_of_their_training_people(on_disk, where, intercept):
    """Scipy solves each training set by itself, with a row for the intercept."""
    rng, penalty = np.random.default_rng(5), 0.7
    targets, masks = rng.standard_normal((N, 4)), rng.random((N, 4)) < 0.8
    masks[:, 3] = True
    targets[~masks] = np.nan
    with memory_limit(LITTLE if where == "on disk" else 0):
        found = fit_in_sample(on_disk if where == "on disk" else on_disk[:], penalty, targets, masks, intercept)
    for j, train in enumerate(masks.T):
        gram, ones = on_disk[:][np.ix_(train, train)], np.ones((train.sum(), 1))
        border = np.block([[gram + penalty * np.eye(len(gram)), ones], [ones.T, np.zeros((1, 1))]])
        own = targets[train, j]
        if intercept:
            *weights, level = linalg.solve(border, np.append(own, 0.0))
        else:
            weights, level = linalg.solve(border[:-1, :-1], own), 0.0
        np.testing.assert_allclose(found[train, j], gram @ np.array(weights) + level, rtol=0, atol=1e-10)


def test_what_fits_is_kept_in_memory_and_the_rest_on_disk_or_refused():
    assert fits_in_memory(14_000)
    assert not fits_in_memory(14_100)
    with memory_limit(64_000):
        assert fits_in_memory(14_000)
        assert not fits_in_memory(14_100), "more memory than usual changes no number"
    with memory_limit(1000):
        assert fits_in_memory(4700)
        assert not fits_in_memory(4800)
        check_memory(20_000, fold_bytes(20_000, 2000, 3600))
        with pytest.raises(Unfit, match="A kernel of 40,000 people needs 2,076 MB"):
            check_memory(40_000, fold_bytes(40_000, 4000, 7200))
