"""The exponent: curves, nested choice, and the alignment optimum with its derivative."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fcpower_bids.analyses.alpha import nested_exponent
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.features import AveragedEdges, PowerFamily
from fcpower_bids.analyses.study import open_study
from tests.analyses.cohorts import choose
from tests.analyses.conftest import TARGETS
from tests.core.test_alignment import target_alignment


def select(cohort, **choices):
    return ANALYSES["alpha_selection"](dataclasses.replace(cohort, series=()), choose(**{**TARGETS, **choices}))


@pytest.fixture(scope="module")
def grid(cohort):
    return select(cohort, alpha_selection="grid")


def test_the_choice_follows_the_inner_score_and_its_prediction_is_the_outer_score_there(grid):
    frame, optimum = grid["alpha"].frame, grid["alpha_optimum"].frame
    keys = ["target", "repeat", "fold"]
    best = frame.loc[frame.groupby(keys, sort=False)["inner_score"].idxmax()].set_index(keys)
    optimum = optimum.set_index(keys)
    assert (best["alpha"] == optimum["alpha"].loc[best.index]).all()
    np.testing.assert_array_equal(best["score"], optimum["score"].loc[best.index])
    facts = grid["alpha"].facts
    assert "optimistic" in facts["Optimism"]
    nested = optimum.groupby("target")["score"].mean()
    assert facts["NestedScore"] == pytest.approx(nested.to_dict())
    assert all(facts["BestOfGridScore"][name] >= facts["NestedScore"][name] for name in facts["NestedScore"])


def test_the_parabola_of_the_paper_is_a_weighted_least_squares_fit(grid, cohort):
    aligned = select(cohort, alpha_selection="align")
    for table in (grid["alpha"], aligned["alpha"]):
        frame = table.frame.query("target == 'planted_score' and 0.1 <= alpha <= 0.75")
        mean, sd = frame.groupby("alpha")["score"].mean(), frame.groupby("alpha")["score"].std(ddof=0)
        a = mean.index.to_numpy()
        design = np.column_stack([a**2, a, np.ones_like(a)])
        weights = np.diag(1 / sd.to_numpy() ** 2)
        expected = np.linalg.solve(design.T @ weights @ design, design.T @ weights @ mean.to_numpy())
        fit = table.facts["QuadraticFit"]["planted_score"]
        np.testing.assert_allclose(fit["Coefficients"], expected, rtol=1e-6)
        peak = -expected[1] / (2 * expected[0])
        assert fit["Peak"] == pytest.approx(peak if expected[0] < 0 and 0.1 <= peak <= 0.75 else np.nan, nan_ok=True)
    peaks = [table.facts["QuadraticFit"]["planted_score"]["Peak"] for table in (grid["alpha"], aligned["alpha"])]
    assert np.isfinite(peaks).any()


def test_nested_predictions_do_not_depend_on_the_people_of_the_test_fold(cohort):
    settings = choose(**TARGETS)
    study = open_study(cohort, settings)
    fold = study.folds[3]
    changed = cohort.phenotypes.copy()
    changed.loc[[study.people.names[row] for row in fold.test], "planted_score"] = 1e4
    other = open_study(dataclasses.replace(cohort, phenotypes=changed), settings)
    ours, theirs = (nested_exponent(each, (0.2, 0.35, 1.0)) for each in (study, other))
    np.testing.assert_array_equal(ours.best[3], theirs.best[3])
    np.testing.assert_allclose(ours.result.predicted[3], theirs.result.predicted[3], atol=1e-7)
    assert not np.array_equal(ours.inner[:, 0], theirs.inner[:, 0])


def test_alignment_optimum_is_the_maximum_of_the_exact_curve(cohort):
    tables = select(
        cohort, targets=(*TARGETS["targets"], "g=memory,speed"), alpha_selection="align", covariates=("age",)
    )
    optimum = tables["alpha_optimum"].frame
    assert len(optimum) == 3 * 2 * 5
    planted = optimum[optimum["target"] == "planted_score"]
    assert planted["alpha"].between(0.1, 0.6).all()
    assert not planted["at_bound"].any()
    # The slope vanishes at a maximum, up to what the interpolation leaves out.
    assert planted["slope"].abs().max() < 0.01
    plain = select(cohort, alpha_selection="align")["alpha_optimum"].frame.query("target == 'planted_score'").iloc[0]
    study = open_study(cohort, choose(**TARGETS))
    mask = np.zeros((1, len(study.people.names)), dtype=bool)
    mask[0, study.folds[0].train] = True
    family = PowerFamily(AveragedEdges(cohort.edges, study.people.scans), choose(), keep=True)

    def aligned(alpha):
        return target_alignment(family.kernel(alpha), mask, study.targets[0].measures)[0, 0]

    assert plain["score"] == pytest.approx(aligned(plain["alpha"]), abs=1e-4)
    assert plain["score_at_star"] == pytest.approx(aligned(0.35), abs=1e-4)
    assert aligned(plain["alpha"]) > max(aligned(plain["alpha"] - 0.05), aligned(plain["alpha"] + 0.05))
