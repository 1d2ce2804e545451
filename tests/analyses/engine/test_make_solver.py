"""What the regression of a representation promises."""

import numpy as np
import pytest

from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.analyses.features import Representation
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.krr import KernelRidge
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.presets import PAPER
from fcpower_bids.core.regression.probe import PRIMAL_WIDTH, LinearProbe

N = 80
FOLDS = replicated_folds(N, 5, 3, 2)


@pytest.fixture(scope="module")
def edges():
    rng = np.random.default_rng(0)
    return np.tanh(0.3 + 0.3 * rng.standard_normal((N, 12)) @ rng.standard_normal((12, 300)) / 3)


def plant(edges, seed=1):
    rng = np.random.default_rng(seed)
    return edges[:, :40].mean(axis=1) * 10 + rng.standard_normal(N) * 0.3


def test_few_features_of_many_people_make_no_kernel_of_everyone(edges, monkeypatch):
    few = Representation("embedding", "linear", lambda: edges[:, :8])
    found = []
    for width in (PRIMAL_WIDTH, 0):
        monkeypatch.setattr("fcpower_bids.analyses.evaluate.PRIMAL_WIDTH", width)
        solver = make_solver(few, PAPER)
        assert isinstance(solver, LinearProbe if width else KernelRidge)
        found.append(nested_cv(solver, plant(edges)[:, None], FOLDS, PAPER.selection).predicted)
    np.testing.assert_allclose(*map(np.concatenate, found), rtol=0, atol=1e-9)
