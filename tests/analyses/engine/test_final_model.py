"""A fitted model is a file's worth of arrays, predicts new scans, and knows what it has not seen."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from fcpower_bids.analyses.engine.final_model import apply_model, fit_final_model
from fcpower_bids.core.connectome.edges import rebuild_matrix
from tests.analyses.cohorts import choose, demo_cohort

CHOICES = {
    "family_column": "family_id",
    "composite": ("g=reasoning,memory,speed",),
    "targets": ("planted_score",),
    "folds": 5,
}


@pytest.fixture(scope="module")
def split():
    """A cohort, and one with 30 of its people left for testing."""
    cohort = demo_cohort(90, seed=1)
    train = cohort.scans["participant_id"].str[-2:].astype(int).to_numpy() < 60
    scans = cohort.scans[train].reset_index(drop=True)
    return cohort, dataclasses.replace(cohort, scans=scans, edges=cohort.edges[train], series=())


def connectome(cohort, row):
    return rebuild_matrix(cohort.edges[row], 1.0, weighted=False)


@pytest.mark.parametrize("kernel", ["correlation", "linear"])
def test_new_people_are_predicted_after_a_round_trip_through_files(split, tmp_path, kernel):
    cohort, train = split
    arrays, facts = fit_final_model(train, choose(**CHOICES, kernel=kernel), "planted_score", "fc_power")
    np.savez(tmp_path / "model.npz", **arrays)
    facts = json.loads(json.dumps(facts))
    with np.load(tmp_path / "model.npz", allow_pickle=False) as stored:
        found = [apply_model(stored, facts, connectome(cohort, row), cohort.parcels) for row in range(120, 180)]
    truth = cohort.phenotypes["planted_score"].loc[cohort.scans["participant_id"].iloc[120:180]]
    assert np.corrcoef([each.prediction for each in found], truth)[0, 1] > 0.7
    assert np.mean([each.inside_range for each in found]) > 0.8
    assert facts["NumberOfPeople"] == 60
    assert facts["SecondsRange"] == [400.0, 400.0]
    assert facts["Alpha"] == 0.35


def test_the_order_of_the_parcels_and_further_parcels_do_not_matter(split):
    cohort, train = split
    arrays, facts = fit_final_model(train, choose(**CHOICES), "g", "fc")
    matrix, names = connectome(cohort, 130), list(cohort.parcels)
    expected = apply_model(arrays, facts, matrix, names)
    order = np.random.default_rng(0).permutation(60)
    larger = np.full((61, 61), np.nan)
    larger[:60, :60] = matrix[np.ix_(order, order)]
    assert apply_model(arrays, facts, larger, [*(names[i] for i in order), "more"]) == expected
    assert facts["CompositeOf"] == ["reasoning", "memory", "speed"]


def test_what_is_unlike_the_training_people_is_said(split):
    cohort, train = split
    arrays, facts = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    strange = np.corrcoef(np.random.default_rng(1).standard_normal((60, 300)))
    found = apply_model(arrays, facts, strange, cohort.parcels)
    assert not found.inside_range
    assert "unlike those of the training people" in found.warning
    arrays["target_range"] = np.array([[1e6], [2e6]])
    assert "outside the values of 'planted_score'" in apply_model(arrays, facts, strange, cohort.parcels).warning


def test_covariates_and_classes_are_told(split):
    _, train = split
    _, facts = fit_final_model(train, choose(**CHOICES, covariates=("age",)), "sex", "fc")
    assert facts["Meaning"] == "residual after the covariates"
    assert facts["PositiveClass"] == "M"
    assert facts["Covariates"] == ["age"]


def test_what_does_not_fit_is_refused(split):
    cohort, train = split
    with pytest.raises(ValueError, match="not for 'embedding'"):
        fit_final_model(train, choose(**CHOICES), "planted_score", "embedding")
    arrays, facts = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    matrix = connectome(cohort, 0)
    with pytest.raises(ValueError, match=r"needs 1 parcels that the scan lacks: parcel59"):
        apply_model(arrays, facts, matrix[:59, :59], cohort.parcels[:59])
    matrix[3] = matrix[:, 3] = np.nan
    with pytest.raises(ValueError, match="lacks: parcel03"):
        apply_model(arrays, facts, matrix, cohort.parcels)
    with pytest.raises(ValueError, match="does not fit 59 parcels"):
        apply_model(arrays, facts, matrix, cohort.parcels[:59])
    with pytest.raises(ValueError, match="All correlations of the scan are equal"):
        apply_model(arrays, facts, np.full((60, 60), 0.5) + 0.5 * np.eye(60), cohort.parcels)
