"""A prediction whose kernels need more memory than there is is refused before it begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fcpower_bids.analyses.engine import study as studies
from fcpower_bids.analyses.prediction import prediction
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.ridge import fold_bytes
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import memory_limit
from fcpower_bids.workflows.cohorts import open_cohorts
from tests.planting.participant_outputs import make_outputs

CHOICES = {"folds": 3, "inner_folds": 2, "repeats": 2, "targets": ("age",), "nprocs": 1, "permutations": 20}


@pytest.fixture
def settings(tmp_path):
    return replace(make_outputs(tmp_path, people=8), **CHOICES)


def test_a_dry_run_refuses_kernels_that_a_run_keeps_in_memory(settings, monkeypatch):
    monkeypatch.setattr(prediction, "fold_bytes", lambda *of: 0.0)
    monkeypatch.setattr(prediction, "PRIMAL_WIDTH", 0)
    cohort, _ = open_cohorts(settings)
    linear = {"kernel": "linear", "fit_transforms_on": "cohort"}
    with memory_limit(0.004):
        for choice in ({}, {**linear, "fit_transforms_on": "fold"}):
            prediction.check_choices(cohort, replace(settings, **choice))
        with pytest.raises(Unfit, match="A kernel of 8 people needs"):
            prediction.check_choices(cohort, replace(settings, **linear))


def test_memory_follows_from_who_is_held_out_and_not_from_the_number_of_folds(settings):
    cohort, _ = open_cohorts(settings)
    study = studies.open_study(cohort, settings)
    site = study.on_folds((Fold(0, 0, np.arange(4), np.arange(4, 8), (np.arange(3), np.arange(3, 4))),))
    missing = replace(study.targets[0], measures=np.where(np.arange(8)[:, None] == 3, np.nan, 1.0))
    with memory_limit(0.004):
        assert prediction.memory_of_kernels(site) == fold_bytes(8, 4, 3)
        assert prediction.memory_of_kernels(replace(site, targets=[missing])) == fold_bytes(8, 5, 3)
