"""A grid that goes on is blind to the scale of the kernel, and stops fold by fold where nothing is gained."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.krr import DECADES, LAST_DECADE, KernelRidge, kernel_ridge
from fcpower_bids.core.regression.nested import GAIN, nested_cv
from fcpower_bids.core.regression.presets import RECOMMENDED

N, SELECTION = 60, "pooled_pearson"
WIDE = 10.0 ** np.arange(-LAST_DECADE, LAST_DECADE + 1)


@pytest.fixture(scope="module")
def planted():
    """A kernel with unit mean diagonal; targets that want no shrinkage, some, and as much as there is."""
    rng = np.random.default_rng(3)
    features = rng.standard_normal((N, 200)) * np.geomspace(30, 0.001, 200)
    kernel = features @ features.T
    exact = features[:, 150:].sum(axis=1)
    targets = np.column_stack(
        [exact / exact.std(), features[:, 0] + 20 * rng.standard_normal(N), rng.standard_normal(N)]
    )
    return kernel * N / np.trace(kernel), targets


def ladder_of(kernel):
    return kernel_ridge(kernel, RECOMMENDED)


def walk(scores):
    """The rule by hand, for one fold and target: position on the wide grid, and whether the end was still gaining."""
    first, last = DECADES[0] + LAST_DECADE, DECADES[-1] + LAST_DECADE
    at = first + int(np.argmax(scores[first : last + 1]))
    if at not in (first, last):
        return at, False
    step = 1 if at == last else -1
    while 0 <= at + step < len(scores) and scores[at + step] > scores[at] + GAIN:
        at += step
    return at, at in (0, len(scores) - 1)


def test_every_fold_goes_on_as_far_as_its_own_inner_folds_gain(planted):
    kernel, targets = planted
    folds = replicated_folds(N, 5, 5, 2)
    result = nested_cv(ladder_of(kernel), targets, folds, SELECTION)
    wide = nested_cv(KernelRidge(kernel, WIDE), targets, folds, SELECTION)
    single = [nested_cv(KernelRidge(kernel, [penalty]), targets, folds, SELECTION) for penalty in WIDE]
    beyond = 0
    for i, j in np.ndindex(result.chosen.shape):
        at, rising = walk(wide.inner_scores[i, :, j])
        assert result.chosen[i, j] == pytest.approx(WIDE[at], rel=1e-12)
        assert result.at_edge[i, j] == rising
        assert result.best_scores[i, j] == pytest.approx(wide.inner_scores[i, at, j], abs=1e-9)
        np.testing.assert_allclose(result.predicted[i][:, j], single[at].predicted[i][:, j], rtol=0, atol=1e-8)
        beyond += abs(at - LAST_DECADE) > DECADES[-1]
    assert beyond > 3  # else nothing went on


def test_the_unit_of_the_features_does_not_matter(planted):
    kernel, targets = planted
    folds = replicated_folds(N, 5, 5, 1)
    one, other = (nested_cv(ladder_of(kernel * unit), targets, folds, SELECTION) for unit in (1.0, 4e6))
    np.testing.assert_allclose(other.chosen, 4e6 * one.chosen, rtol=1e-12)
    for mine, theirs in zip(one.predicted, other.predicted, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-8)


def test_features_that_are_all_zero_are_refused():
    with pytest.raises(ValueError, match="all zero or missing"):
        ladder_of(np.zeros((5, 5)))
