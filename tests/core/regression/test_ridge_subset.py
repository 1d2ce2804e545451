"""The solver for few training people against the one that holds the inverse of everyone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.krr import BlockRidge, KernelRidge
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.targets import composite_target

PENALTIES = np.array([1e-2, 1.0, 100.0])


def draw(n=60, seed=0):
    rng = np.random.default_rng(seed)
    features, measures = rng.standard_normal((n, 90)), rng.standard_normal((n, 3))
    measures += features[:, :1]
    return features @ features.T / 90, measures


def smaller(folds, size, seed=0):
    """Folds whose training people are in no order, as those of MATLAB."""
    rng = np.random.default_rng(seed)
    for fold in folds:
        train = rng.permutation(fold.train)[:size]
        yield dataclasses.replace(fold, train=train, inner=tuple(rows[np.isin(rows, train)] for rows in fold.inner))


@pytest.mark.parametrize("intercept", [True, False])
def test_predicts_as_the_inverse_of_everyone(intercept):
    kernel, measures = draw()
    folds = list(smaller(replicated_folds(60, 5, 3, 2), 20))
    missing = measures.copy()
    missing[::7, 1] = np.nan
    for targets in (measures, missing, composite_target(measures)):
        one = nested_cv(BlockRidge(kernel, PENALTIES, intercept), targets, folds)
        all_ = nested_cv(KernelRidge(kernel, PENALTIES, intercept), targets, folds)
        np.testing.assert_array_equal(one.chosen, all_.chosen)
        np.testing.assert_allclose(one.inner_scores, all_.inner_scores, rtol=0, atol=1e-9)
        for ours, theirs in zip(one.predicted, all_.predicted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
