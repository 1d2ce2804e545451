"""The transform screen: known truth, reference numbers of every row, refusals, fits inside the folds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.spectrum.screen import GROUP_FIT, SCREEN, TANGENTS, ScreenRows
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.connectome.edges import vectorise_edges
from tests.analyses.cohorts import choose, cohort_of, demo_cohort, weak_mode_cohort

CHOICES = {"targets": ("weak",), "repeats": 2, "folds": 5}
FULL_RANK = {name for name in SCREEN if name.startswith(("tangent", "log_", "cholesky"))}


@pytest.fixture(scope="module")
def cohort():
    return weak_mode_cohort(n_volumes=60)


@pytest.fixture(scope="module")
def screen(cohort):
    return ANALYSES["transform_screen"](cohort, choose(**CHOICES))


def scores_of(tables):
    return tables["transform_screen"].frame.set_index("representation")


def test_test_people_do_not_touch_a_fit_inside_the_fold(cohort):
    study = open_study(cohort, choose(**CHOICES))
    fold = study.folds[0]
    edges = cohort.edges.copy()
    edges[fold.test] = edges[fold.test] * 0.5
    changed = dataclasses.replace(study, cohort=dataclasses.replace(cohort, edges=edges))
    for name in GROUP_FIT:
        before = np.asarray(ScreenRows(study).representation(name, fold.train).features())
        after = np.asarray(ScreenRows(changed).representation(name, fold.train).features())
        np.testing.assert_allclose(after[fold.train], before[fold.train], rtol=0, atol=1e-9)


def test_rank_deficient_connectomes_are_refused_with_a_reason_unless_a_remedy_is_named():
    short = dataclasses.replace(demo_cohort(n_people=12, n_volumes=40), series=())
    choices = {"targets": ("planted_score",), "repeats": 1, "folds": 3}
    refused = scores_of(ANALYSES["transform_screen"](short, choose(**choices)))
    without_series = {"precision", "partial_correlation"}
    assert set(refused.index[refused["status"] == "refused"]) == FULL_RANK | without_series
    assert refused.loc[list(FULL_RANK), "reason"].str.contains("rank-deficient .* Give a shrinkage or a floor").all()
    assert refused.loc[list(without_series), "reason"].str.contains("needs the series of every scan").all()
    assert refused.loc[list(FULL_RANK), ["fold_mean", "p_less"]].isna().all(axis=None)
    tables = ANALYSES["transform_screen"](short, choose(**choices, eigenvalue_floor=0.05, fit_transforms_on="fold"))
    assert (scores_of(tables).loc[list(FULL_RANK), "status"] == "scored").all()
    assert tables["transform_screen"].facts["EigenvalueFloor"] == 0.05


@pytest.fixture(scope="module")
def golden(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def golden_rows(golden):
    """The screen on the connectomes and series of the reference numbers."""
    n = len(golden["corr"])
    names = [f"sub-{i:02d}" for i in range(n)]
    table = pd.DataFrame({"score": np.arange(n, dtype=float)}, index=pd.Index(names))
    scans = [(name, "n/a", 300.0, 0.1, 1) for name in names]
    cohort = cohort_of(vectorise_edges(golden["corr"], weighted=False), scans, table, golden["timeseries"])
    return ScreenRows(open_study(cohort, choose(targets=("score",), repeats=1, folds=2, inner_folds=2)))


def edges_of(matrices):
    return vectorise_edges(np.asarray(matrices))


def off_diagonal(tangent):
    rows, columns = np.triu_indices(24)
    return tangent[:, rows != columns]


REFERENCES = {
    "fc_power": lambda golden: edges_of(golden["pyriemann_powm_0.35"]),
    "power_0.5": lambda golden: edges_of(golden["pyriemann_powm_0.5"]),
    "power_0.75": lambda golden: edges_of(golden["pyriemann_powm_0.75"]),
    "log_euclidean": lambda golden: edges_of(golden["pyriemann_logm"]),
    "tangent_harmonic": lambda golden: off_diagonal(golden["pyriemann_tangent_riemann_ref_harmonic"]),
    "tangent_arithmetic": lambda golden: off_diagonal(golden["pyriemann_tangent_riemann_ref_euclid"]),
    "tangent_riemannian": lambda golden: off_diagonal(golden["pyriemann_tangent_riemann_ref_riemann"]),
    "fisher_z": lambda golden: edges_of(np.arctanh(golden["corr"] * (1 - np.eye(24)))),
    "fc": lambda golden: edges_of(golden["corr"]) / np.sqrt(2),
    "precision": lambda golden: edges_of(golden["nilearn_precision_lw_z"]),
    "partial_correlation": lambda golden: edges_of(golden["nilearn_partial_correlation_lw_z"]),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_features_agree_with_the_reference_numbers(golden, golden_rows, name, monkeypatch):
    expected = REFERENCES[name](golden)
    if name in TANGENTS:
        nearly = np.corrcoef(golden_rows.representation(name).features()[:])
        np.testing.assert_allclose(nearly, np.corrcoef(expected), rtol=0, atol=1e-4)
        near = "fcpower_bids.analyses.spectrum.screen.NEAR"
        monkeypatch.setattr(near, 1e-8 / 24)  # norm of the mean tangent vector that is left
    np.testing.assert_allclose(golden_rows.representation(name).features()[:], expected, rtol=1e-7, atol=1e-8)
