"""A fitted model is a file's worth of arrays, predicts new scans, and knows what it has not seen."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from fcpower_bids.clinic.fit import fit_final_model
from fcpower_bids.clinic.predict import NewScan, apply_model
from fcpower_bids.core.connectome.edges import rebuild_matrix
from tests.analyses.cohorts import choose, demo_cohort

CHOICES = {"family_column": "family_id", "targets": ("planted_score", "g=reasoning,memory,speed"), "folds": 5}


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
def test_new_people_are_predicted(split, kernel):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES, kernel=kernel), "planted_score", "fc_power")
    facts = json.loads(json.dumps(model.facts))
    found = [apply_model(model, connectome(cohort, row), cohort.parcels) for row in range(120, 180)]
    truth = cohort.phenotypes["planted_score"].loc[cohort.scans["participant_id"].iloc[120:180]]
    assert np.corrcoef([each.prediction for each in found], truth)[0, 1] > 0.7
    assert np.mean([not each.warnings for each in found]) > 0.8
    assert np.mean([each.low <= value <= each.high for each, value in zip(found, truth, strict=True)]) > 0.8
    assert facts["NumberOfPeople"] == 60
    assert facts["SecondsRange"] == [400.0, 400.0]
    assert facts["Alpha"] == 0.35


def test_the_order_of_the_parcels_and_further_parcels_do_not_matter(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "g", "fc")
    matrix, names = connectome(cohort, 130), list(cohort.parcels)
    expected = apply_model(model, matrix, names)
    expected = (expected.prediction, expected.low, expected.similarity)
    order = np.random.default_rng(0).permutation(60)
    larger = np.full((61, 61), np.nan)
    larger[:60, :60] = matrix[np.ix_(order, order)]
    found = apply_model(model, larger, [*(names[i] for i in order), "more"])
    assert (found.prediction, found.low, found.similarity) == pytest.approx(expected, abs=1e-12)
    assert model.facts["CompositeOf"] == ["reasoning", "memory", "speed"]


def test_what_is_unlike_the_training_people_is_said(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    strange = np.corrcoef(np.random.default_rng(1).standard_normal((60, 300)))
    found = apply_model(model, strange, cohort.parcels)
    assert "unlike those of the training people" in found.warnings[0]
    model.facts["TargetRange"] = [1e6, 2e6]
    assert "outside the values of 'planted_score'" in apply_model(model, strange, cohort.parcels).warnings[-1]


def test_covariates_and_classes_are_told(split):
    _, train = split
    facts = fit_final_model(train, choose(**CHOICES, covariates=("age",)), "planted_score", "fc").facts
    assert (facts["Meaning"], facts["Covariates"]) == ("residual after the covariates", ["age"])
    assert fit_final_model(train, choose(**CHOICES), "sex", "fc").facts["PositiveClass"] == "M"
    with pytest.raises(ValueError, match="two classes of 'sex' cannot be saved with covariates"):
        fit_final_model(train, choose(**CHOICES, covariates=("age",)), "sex", "fc")


def test_what_does_not_fit_is_refused(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    matrix = connectome(cohort, 0)
    with pytest.raises(ValueError, match=r"needs 1 parcels that are not in this atlas: parcel59"):
        apply_model(model, matrix[:59, :59], cohort.parcels[:59])
    matrix[3] = matrix[:, 3] = np.nan
    with pytest.raises(ValueError, match="does not cover them: parcel03"):
        apply_model(model, matrix, cohort.parcels)
    with pytest.raises(ValueError, match="All correlations of the scan are equal"):
        apply_model(model, np.full((60, 60), 0.5) + 0.5 * np.eye(60), cohort.parcels)


def test_what_a_scan_is_said_to_be_is_compared_with_the_training(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    told = NewScan(seconds=100, mean_fd=3.0, repetition_time=0.8, age=95, in_training=True)
    warnings = apply_model(model, connectome(cohort, 0), cohort.parcels, told).warnings
    assert "fitted on this very scan" in warnings[0]
    assert "95 years old" in warnings[1]
    assert any("series of 1.67 minutes, the training scans 6.67 to 6.67" in each for each in warnings)
    assert any("repetition time of 0.8 s" in each for each in warnings)
    assert any("motion of 3 mm" in each for each in warnings)


def test_the_ends_of_ranges_are_no_value_of_a_person(split):
    cohort, train = split
    facts = fit_final_model(train, choose(**CHOICES), "planted_score", "fc").facts
    score = cohort.phenotypes["planted_score"].iloc[:60].astype(float)
    for name, values in (("AgeRange", cohort.phenotypes["age"].iloc[:60].astype(float)), ("TargetRange", score)):
        low, high = facts[name]
        assert low < values.min() < values.max() < high
        assert high - low < 1.4 * np.ptp(values)
