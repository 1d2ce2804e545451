"""The dense operations by PyTorch: the numbers of numpy and scipy to 1e-10, and devices that are not there."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.regression.dense import HeldOut, solving_with
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.ridge import KernelPenalties, open_kernel
from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.executors.select import make_dense
from fcpower_bids.resources import MEGA, memory_limit

torch = pytest.importorskip("torch", reason="torch is not installed (extra 'encoder')")


N = 60
FOLDS = replicated_folds(N, 5, 3, 1)
GRID = [1e-3, 1.0, 1e3]


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def device(request):
    return request.param


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, 5)) @ rng.standard_normal((5, 300)) + 0.5 * rng.standard_normal((N, 300))


@pytest.fixture(scope="module")
def targets(features):
    values = features[:, :3] + np.random.default_rng(1).standard_normal((N, 3))
    values[::7, 1] = np.nan
    return values


def check_same(work, device, bound=1e-10):
    """Do the work both ways, and compare what was predicted."""
    expected = work()
    with solving_with(make_dense(device)):
        got = work()
    np.testing.assert_array_equal(got.chosen, expected.chosen)
    np.testing.assert_allclose(got.inner_scores, expected.inner_scores, rtol=0, atol=bound)
    for one, other in zip(got.predicted, expected.predicted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)


@pytest.mark.parametrize("intercept", [True, False])
def test_predictions_are_those_of_numpy(features, targets, intercept, device):
    check_same(lambda: nested_cv(open_kernel(correlation_kernel(features), GRID, intercept), targets, FOLDS), device)


def test_targets_of_the_inner_folds_and_one_penalty_at_a_time(features, targets, device):
    kernel = correlation_kernel(features)

    def build(train):
        return targets - np.nanmean(targets[train], axis=0)

    check_same(lambda: nested_cv(open_kernel(kernel, GRID), build, FOLDS, strict=True), device)

    def in_little_memory():
        with memory_limit(11 * kernel.nbytes / MEGA):
            solver = open_kernel(kernel, GRID)
        assert isinstance(solver, KernelPenalties)
        return nested_cv(solver, targets, FOLDS)

    check_same(in_little_memory, device)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-13), (np.float32, 1e-6)])
def test_kernels_are_those_of_numpy(features, dtype, bound, device):
    expected = correlation_kernel(features, panel=64)
    with solving_with(make_dense(device)):
        got = correlation_kernel(features, dtype=dtype, panel=64)
    np.testing.assert_allclose(got, expected, rtol=0, atol=bound)


def test_a_singular_kernel_loses_the_same_penalties(device):
    twins = np.repeat(np.random.default_rng(2).standard_normal((10, 300)), 2, axis=0)
    kernel = correlation_kernel(twins)
    for solver in (make_dense(""), make_dense(device)):
        with solving_with(solver), pytest.warns(UserWarning, match="Penalty 0 was dropped"):
            assert open_kernel(kernel, [0.0, 1e-14, 1.0]).penalties.tolist() == [1.0]


def test_a_block_that_is_not_definite_is_told(device):
    solver = make_dense(device)
    rows, product = np.arange(N), np.zeros((N, 1))
    with pytest.raises(Unfit, match="too small for this kernel"):
        solver.hold_out(solver._send(-np.eye(N)), HeldOut(rows[:5], [rows[5:]]), product, [product])


@pytest.mark.parametrize("absent", ["gpu", "mps", "meta", "cuda:99"])
def test_a_device_that_cannot_be_used_is_told(absent):
    with pytest.raises(UsageError, match=f"--solver-device {absent} cannot be used here"):
        make_dense(absent)
