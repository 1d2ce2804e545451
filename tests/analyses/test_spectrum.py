"""The geometry of the spectrum against closed forms, and the transform screen against reference numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.study import open_study
from fcpower_bids.analyses.transform_screen import GROUP_FIT, SCREEN, ScreenRows
from fcpower_bids.core.edges import rebuild_matrix
from tests.analyses.cohorts import choose, demo_cohort, weak_mode_cohort


@pytest.fixture(scope="module")
def cohort():
    return weak_mode_cohort(n_people=12, n_parcels=24)


@pytest.fixture(scope="module")
def tables(cohort):
    return ANALYSES["spectrum_geometry"](cohort, choose(alpha=0.35))


@pytest.fixture(scope="module")
def eigenvalues(cohort):
    matrices = rebuild_matrix(cohort.edges, diagonal=1.0, weighted=False)
    return np.linalg.eigvalsh(matrices)[:, ::-1]


def at(frame, **keys):
    for column, value in keys.items():
        frame = frame[np.isclose(frame[column], value)] if isinstance(value, float) else frame[frame[column] == value]
    return frame


def test_histograms_hold_every_eigenvalue_and_shrink_towards_one(tables, eigenvalues):
    frame = tables["spectrum_histogram"].frame
    assert (frame.groupby("alpha")["count"].sum() == eigenvalues.size).all()
    np.testing.assert_allclose(frame.groupby("alpha")["share"].sum(), 1)
    occupied = frame[frame["count"] > 0]
    support = occupied.groupby("alpha")["high"].max() - occupied.groupby("alpha")["low"].min()
    assert support.is_monotonic_increasing
    raw = at(frame, alpha=1.0)
    above = raw[raw["low"] >= 1]["count"].sum()
    assert abs(above - (eigenvalues >= 10).sum()) <= raw["count"].max()
    assert tables["spectrum_histogram"].facts["LeftOut"] == 0


def test_spectrum_by_rank(tables, eigenvalues):
    frame = tables["spectrum_ranks"].frame
    np.testing.assert_allclose(at(frame, alpha=1.0)["mean"], eigenvalues.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(at(frame, alpha=0.35)["mean"], (eigenvalues**0.35).mean(axis=0), rtol=1e-8)
    np.testing.assert_allclose(at(frame, alpha=0.35)["sd"], (eigenvalues**0.35).std(axis=0, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(at(frame, alpha=0.0)["path"], 1)
    logs = np.log(at(frame, alpha=0.5)["path"].to_numpy())
    np.testing.assert_allclose(2 * logs, np.log(eigenvalues.mean(axis=0)), rtol=1e-8, atol=1e-10)


def test_the_path_is_a_geodesic_with_alpha_as_arclength(tables, eigenvalues):
    frame = tables["spectrum_path"].frame
    length = np.linalg.norm(np.log(eigenvalues), axis=1)
    for alpha in (0.0, 0.35, 1.0):
        part = at(frame, alpha=alpha)
        np.testing.assert_allclose(part["from_identity"], alpha * length, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(part["to_fc"], (1 - alpha) * length, rtol=1e-8, atol=1e-9)


def test_participation_ratio_and_dominance_follow_from_the_heat_trace(tables, eigenvalues):
    frame = tables["spectrum_path"].frame
    half, whole = (at(frame, alpha=alpha).reset_index() for alpha in (0.5, 1.0))
    np.testing.assert_allclose(half["participation_ratio"], half["heat_trace"] ** 2 / whole["heat_trace"], rtol=1e-8)
    ratio = eigenvalues[:, 0] / eigenvalues[:, 19]
    np.testing.assert_allclose(at(frame, alpha=0.35)["first_to_twentieth"], ratio**0.35, rtol=1e-8)
    np.testing.assert_allclose(at(frame, alpha=1.0)["first_to_twentieth"], ratio, rtol=1e-8)
    assert (at(frame, alpha=0.0)[["heat_trace", "participation_ratio"]] == 24).all(axis=None)
    means = tables["spectrum_path"].facts["Means"]
    assert means["participation_ratio_power"] == pytest.approx(at(frame, alpha=0.35)["participation_ratio"].mean())
    assert means["participation_ratio"] < means["participation_ratio_power"] / 2


def test_what_is_drawn_are_directions_that_stay_and_matrices_from_the_identity_to_fc(cohort, tables, eigenvalues):
    frame = tables["spectrum_sphere"].frame
    raw, power = (at(frame, alpha=alpha).reset_index(drop=True) for alpha in (1.0, 0.35))
    np.testing.assert_allclose(raw["length"], eigenvalues.mean(axis=0), rtol=1e-8)
    directions = [part[list("xyz")].div(part["length"], axis=0) for part in (raw, power)]
    np.testing.assert_allclose(*directions)
    np.testing.assert_allclose((directions[0] ** 2).sum(), 1, rtol=1e-10)
    assert (power["radius"] == power["length"].iloc[19]).all()
    assert raw["length"].max() / raw["radius"].iloc[0] > 10 * power["length"].max() / power["radius"].iloc[0]
    frame, person = tables["spectrum_matrices"].frame, tables["spectrum_matrices"].facts["Person"]
    row = list(cohort.scans["participant_id"]).index(person)
    connectome = rebuild_matrix(cohort.edges[row], diagonal=1.0, weighted=False)
    for alpha, expected in ((1.0, connectome / np.linalg.eigvalsh(connectome)[-1]), (0.0, np.eye(24))):
        np.testing.assert_allclose(at(frame, alpha=alpha)["value"], expected[np.triu_indices(24)], atol=1e-12)
    assert sorted(frame["alpha"].unique()) == [0.0, 0.1, 0.35, 0.6, 1.0]


def test_rank_deficient_scans_have_no_distances_but_everything_else():
    cohort = demo_cohort(n_people=4, n_volumes=30)
    tables = ANALYSES["spectrum_geometry"](cohort, choose())
    frame = tables["spectrum_path"].frame
    assert sorted(frame["participant_id"].unique()) == [f"sub-0{i}" for i in range(4)]
    assert frame[["from_identity", "to_fc", "first_to_last"]].isna().all(axis=None)
    assert frame[["heat_trace", "participation_ratio", "first_to_twentieth"]].notna().all(axis=None)
    assert tables["spectrum_path"].facts["RankDeficient"] == 4
    assert tables["spectrum_histogram"].facts["LeftOut"] > 0
    assert np.isfinite(tables["spectrum_sphere"].frame).all(axis=None)


FULL_RANK = {name for name in SCREEN if name.startswith(("tangent", "log_", "cholesky"))}


def test_test_people_do_not_touch_a_fit_inside_the_fold():
    cohort = weak_mode_cohort(n_volumes=60)
    study = open_study(cohort, choose(targets=("weak",), repeats=2, folds=5))
    fold = study.folds[0]
    edges = cohort.edges.copy()
    edges[fold.test] = edges[fold.test] * 0.5
    changed = dataclasses.replace(study, cohort=dataclasses.replace(cohort, edges=edges))
    for name in GROUP_FIT:
        before = np.asarray(ScreenRows(study).representation(name, fold.train).features())
        after = np.asarray(ScreenRows(changed).representation(name, fold.train).features())
        np.testing.assert_allclose(after[fold.train], before[fold.train], rtol=0, atol=1e-9)


def test_rank_deficient_connectomes_are_refused_with_a_reason_unless_a_remedy_is_named():
    short = dataclasses.replace(demo_cohort(n_people=12, n_volumes=25), series=())
    choices = {"targets": ("planted_score",), "repeats": 1, "folds": 3}
    frame = ANALYSES["transform_screen"](short, choose(**choices))["transform_screen"].frame
    refused = frame.set_index("representation")
    without_series = {"precision", "partial_correlation"}
    assert set(refused.index[refused["status"] == "refused"]) == FULL_RANK | without_series
    assert refused.loc[list(FULL_RANK), "reason"].str.contains("rank-deficient .* Give a shrinkage or a floor").all()
    assert refused.loc[list(without_series), "reason"].str.contains("needs the series of every scan").all()
    assert refused.loc[list(FULL_RANK), ["fold_mean", "p_less"]].isna().all(axis=None)
    asked = choose(**choices, eigenvalue_floor=0.05, fit_transforms_on="fold")
    table = ANALYSES["transform_screen"](short, asked)["transform_screen"]
    assert (table.frame.set_index("representation").loc[list(FULL_RANK), "status"] == "scored").all()
    assert table.facts["EigenvalueFloor"] == 0.05
