"""The kernel solver: closed forms of one inverse, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.krr import KernelRidge, Split
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.targets import composite_target
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import MEGA, memory_limit

NOBODY = np.empty(0, np.intp)


@pytest.fixture
def kernel():
    return correlation_kernel(np.random.default_rng(0).standard_normal((20, 30)))


def test_inverse_without_and_with_intercept(kernel):
    plain = KernelRidge(kernel, [0.5], intercept=False)
    np.testing.assert_allclose(
        plain.at(plain.penalties).inverses[0] @ (kernel + 0.5 * np.eye(20)), np.eye(20), rtol=0, atol=1e-12
    )
    inverse = KernelRidge(kernel, [0.5]).at(np.array([0.5])).inverses[0]
    np.testing.assert_allclose(inverse.sum(axis=1), 0, atol=1e-12)
    # The bordered system [[K + l I, 1], [1', 0]] holds the unpenalised intercept; C is a block of its inverse.
    bordered = np.block([[kernel + 0.5 * np.eye(20), np.ones((20, 1))], [np.ones((1, 20)), np.zeros((1, 1))]])
    np.testing.assert_allclose(inverse, np.linalg.inv(bordered)[:20, :20], rtol=0, atol=1e-12)


def test_held_out_values_do_not_matter(kernel):
    rng = np.random.default_rng(1)
    solver, y = KernelRidge(kernel, [0.1, 1.0]).at(np.array([0.1, 1.0])), rng.standard_normal((20, 2))
    split = Split(np.arange(4), np.arange(6, 20), (np.arange(6, 13), np.arange(13, 20)), np.array([4, 5]))
    changed = y.copy()
    changed[:6] = 100 * rng.standard_normal((6, 2))
    before, after = solver.prepare(y), solver.prepare(changed)
    one, other = (solver.predict(split, sides) for sides in (before, after))
    np.testing.assert_allclose(one[0], other[0], rtol=0, atol=1e-11)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11)
    assert one[0].shape == (2, 4, 2)


def test_predictions_follow_the_targets_linearly_and_the_intercept_shifts(kernel):
    rng = np.random.default_rng(2)
    solver = KernelRidge(kernel, [0.1]).at(np.array([0.1]))
    split = Split(np.arange(5), np.arange(5, 20), (np.arange(5, 12), np.arange(12, 20)), NOBODY)

    def predict(y):
        sides = solver.prepare(y)
        return solver.predict(split, sides)[0]

    a, b = rng.standard_normal((2, 20, 1))
    np.testing.assert_allclose(predict(2 * a - b + 7), 2 * predict(a) - predict(b) + 7, rtol=0, atol=1e-11)


def test_large_penalty_predicts_the_training_mean(kernel):
    y = np.arange(20.0)[:, None]
    split = Split(np.arange(5), np.arange(5, 20), (np.arange(5, 12), np.arange(12, 20)), NOBODY)
    solver = KernelRidge(kernel, [1e9]).at(np.array([1e9]))
    sides = solver.prepare(y)
    test, (first, second) = solver.predict(split, sides)
    np.testing.assert_allclose(test, y[5:].mean(), atol=1e-6)
    np.testing.assert_allclose(first, y[12:].mean(), atol=1e-6)
    np.testing.assert_allclose(second, y[5:12].mean(), atol=1e-6)


def test_singular_kernel_drops_zero_with_a_note():
    kernel = correlation_kernel(np.random.default_rng(3).standard_normal((20, 6)))
    solver = KernelRidge(kernel, [0, 1.0])
    np.testing.assert_array_equal(solver.penalties, [1.0])
    assert solver.notes == ("Penalty 0 was dropped: with it the kernel is singular to working precision.",)
    with pytest.raises(ValueError, match="singular for every"):
        KernelRidge(kernel, [0.0])


@pytest.mark.parametrize("penalties", [[-1.0], [], [np.nan], [np.inf], [[1.0, 2.0]], [1.0, 1.0]])
def test_unusable_penalties_are_refused(kernel, penalties):
    with pytest.raises(ValueError, match="enalt"):
        KernelRidge(kernel, penalties)


def test_unusable_kernels_are_refused(kernel):
    broken = kernel.copy()
    broken[3, 5] = np.nan
    with pytest.raises(ValueError, match="first in row 3"):
        KernelRidge(broken, [1.0])
    with pytest.raises(ValueError, match="square"):
        KernelRidge(kernel[:5], [1.0])
    with pytest.raises(ValueError, match="not symmetric"):
        KernelRidge(np.triu(kernel), [1.0])


def test_kernel_is_left_as_it_was(kernel):
    before = kernel.copy()
    KernelRidge(kernel, [1.0, 2.0])
    np.testing.assert_array_equal(kernel, before)


@pytest.mark.parametrize("intercept", [True, False])
def test_one_penalty_after_the_other_gives_the_same_to_the_last_bit(intercept):
    """With little memory one inverse is held at a time; targets may be missing, or built in the fold."""
    rng = np.random.default_rng(7)
    features, y = rng.standard_normal((40, 90)), rng.standard_normal((40, 3))
    kernel, folds = features @ features.T / 90, replicated_folds(40, 4, 3, 2)
    y[:3, 1] = np.nan
    grid = [0.01, 1.0, 100.0]
    together = KernelRidge(kernel, grid, intercept)
    with memory_limit(11 * kernel.nbytes / MEGA):
        apart = KernelRidge(kernel, grid, intercept)
    assert (together.one_by_one, apart.one_by_one) == (False, True)
    for targets in (y, composite_target(y[:, [0, 2]])):
        one, other = (nested_cv(solver, targets, folds) for solver in (together, apart))
        assert one.notes == other.notes
        for name in ("chosen", "inner_scores", "at_edge"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(np.concatenate(one.predicted), np.concatenate(other.predicted))


def test_with_little_memory_the_same_penalties_are_dropped():
    features = np.random.default_rng(8).standard_normal((30, 10))
    kernel = features @ features.T
    with memory_limit(11 * kernel.nbytes / MEGA):
        apart = KernelRidge(kernel, [0.0, 1e-14, 1.0])
        with pytest.raises(ValueError, match="singular for every penalty"):
            KernelRidge(kernel, [0.0, 1e-300, 1e-299])
    together = KernelRidge(kernel, [0.0, 1e-14, 1.0])
    np.testing.assert_array_equal(apart.penalties, together.penalties)
    assert apart.notes == together.notes


def test_memory_that_cannot_do_is_refused_with_the_amount_that_would():
    kernel = np.eye(300)
    needed = 150 + 5 * 8 * 300**2 / MEGA
    for given in (0, needed, 2 * 5 * 8 * 300**2 / MEGA):
        with memory_limit(given):
            KernelRidge(kernel, [1.0])
    with (
        memory_limit(6),
        pytest.raises(Unfit, match=rf"of 300 people needs {needed:.0f} MB of memory; give it \(--mem-mb"),
    ):
        KernelRidge(kernel, [1.0])
