"""CBIG's own MATLAB numbers, reproduced through the public functions (MIT, Ooi et al. 2022 workflow)."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.io import loadmat

from fcpower_bids.core.folds import PRESETS, cbig_folds
from fcpower_bids.core.kernels import correlation_kernel
from fcpower_bids.core.krr import KernelRidge
from fcpower_bids.core.nested import nested_cv
from fcpower_bids.core.scores import CONTINUOUS_SCORES
from fcpower_bids.core.targets import remove_covariates

pytestmark = pytest.mark.shared
NAMES = ("corr", "COD", "predictive_COD", "MAE", "MAE_norm", "MSE", "MSE_norm")


@functools.lru_cache(maxsize=1)
def read_example(folder: Path) -> SimpleNamespace:
    features = loadmat(folder / "input" / "feature.mat")["feature_mat"].T
    subjects = (folder / "input" / "data_id.txt").read_text().split()
    reference = folder / "reference_output" / "1"
    return SimpleNamespace(
        features=features,
        subjects=subjects,
        y=loadmat(reference / "CO_groundtruth.mat")["y"].astype(float),
        covariates=loadmat(reference / "air_quality_covariate.mat")["covariates"].astype(float),
        penalties=PRESETS["cbig"].penalties,
        kernel=correlation_kernel(features),
    )


@pytest.fixture(scope="module")
def example(shared):
    return read_example(shared / "golden" / "cbig_krr")


def residuals(example, train):
    """With the covariates of the other people centred by their own mean, as CBIG did before mid-2022."""
    x = np.array(example.covariates, dtype=float)
    rest = np.setdiff1d(np.arange(len(x)), train)
    x[rest] += x[train].mean(axis=0) - x[rest].mean(axis=0)
    return remove_covariates(example.y, x, train)


def test_penalties_of_the_preset_are_cbigs(example, shared):
    setup = loadmat(shared / "golden" / "cbig_krr" / "reference_output" / "1" / "setup_CO_1.mat", squeeze_me=True)
    np.testing.assert_allclose(example.penalties, setup["lambda_set"], rtol=1e-15)
    assert PRESETS["cbig"].selection == "mean_" + str(setup["metric"]).lower()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kernel_splits_residuals_inner_losses_penalties_and_metrics(example, shared, seed):
    reference = shared / "golden" / "cbig_krr" / "reference_output" / str(seed)
    np.testing.assert_allclose(example.kernel, loadmat(reference / "FSM" / "FSM_corr.mat")["FSM"], rtol=0, atol=1e-12)
    folds = cbig_folds(example.subjects, n_folds=5, n_inner=5, seeds=[seed])
    splits = loadmat(reference / "no_relative_5_fold_sub_list.mat", squeeze_me=True)["sub_fold"]
    assert len(folds) == len(splits) == 5
    for number, (fold, theirs) in enumerate(zip(folds, splits, strict=True), start=1):
        np.testing.assert_array_equal(fold.test, np.flatnonzero(theirs["fold_index"]))
        left = loadmat(reference / "y" / f"fold_{number}" / f"y_regress_CO_{seed}.mat")["y_resid"]
        np.testing.assert_allclose(residuals(example, fold.train), left, rtol=0, atol=1e-12)
    solver = KernelRidge(example.kernel, example.penalties)
    result = nested_cv(solver, lambda train: residuals(example, train), folds, selection="mean_predictive_cod")
    for number, scores in enumerate(result.inner_scores, start=1):
        stored = loadmat(reference / "innerloop_cv" / f"fold_{number}" / f"acc_CO_{seed}.mat")["loss"]
        theirs = [float(loss.item()) for loss in stored.ravel()]
        np.testing.assert_allclose(-scores[:, 0], theirs[1:], rtol=0, atol=1e-9)
    final = loadmat(reference / f"final_result_CO_{seed}.mat", squeeze_me=True)
    np.testing.assert_array_equal(result.chosen[:, 0], final["optimal_lambda"])
    for ours, theirs in zip(CONTINUOUS_SCORES, NAMES, strict=True):
        expected = final["optimal_stats"][theirs].item()
        np.testing.assert_allclose(result.fold_scores(ours)[:, 0], expected, rtol=0, atol=1e-9, err_msg=theirs)
    np.testing.assert_allclose(result.fold_scores("pearson")[:, 0], final["optimal_acc"], rtol=0, atol=1e-9)
