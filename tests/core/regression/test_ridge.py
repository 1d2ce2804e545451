"""The kernel solver: closed forms of one inverse, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.krr import KernelRidge
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.targets import composite_target
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import MEGA, memory_limit


@pytest.fixture
def kernel():
    return correlation_kernel(np.random.default_rng(0).standard_normal((20, 30)))


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
