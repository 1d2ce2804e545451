"""``paper`` and ``cbig`` stay what they were: folds to the last person, penalties, and scores to rounding."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest

from fcpower_bids.analyses.prediction import analyse_prediction
from tests.analyses.cohorts import choose, demo_cohort

PUBLISHED = {
    "paper": ("d6b41a6bfe74c41f", (0.129285, -0.122718, 0.693854, 0.109333), {0.001: 18, 1.0: 1, 0.01: 1}),
    "cbig": (
        "80d982e1c3a5b861",
        (0.150715, 0.047326, 0.830228, 0.088689),
        {0.0: 8, 20.0: 5, 0.7: 3, 10.0: 2, 1.5: 1, 0.4: 1},
    ),
}
"""Digest of ``folds``, pooled r of two targets under FC and FC^0.35, and how often each penalty was selected."""


@pytest.fixture(scope="module")
def cohort():
    return dataclasses.replace(demo_cohort(30), series=())


@pytest.mark.parametrize("preset", PUBLISHED)
def test_published_protocols_do_not_change(cohort, preset):
    digest, scores, penalties = PUBLISHED[preset]
    choices = {"targets": ("planted_score", "null_score"), "repeats": 1, "folds": 5, "inner_folds": 4}
    covariates = ("age", "sex") if preset == "cbig" else ()
    tables = analyse_prediction(cohort, choose(preset=preset, covariates=covariates, **choices))
    folds = tables["folds"].frame.to_csv(index=False).encode()
    assert hashlib.sha256(folds).hexdigest()[:16] == digest
    np.testing.assert_allclose(tables["prediction_pooled"].frame["r"], scores, rtol=0, atol=1e-6)
    assert tables["prediction"].frame["penalty"].value_counts().to_dict() == penalties
    assert "null" not in tables
