"""A prediction whose kernels need more memory than there is is refused before it begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fcpower_bids.analyses import prediction
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import memory_limit
from fcpower_bids.workflows.group import open_cohorts
from tests.planting.participant_outputs import make_outputs

CHOICES = {"folds": 3, "inner_folds": 2, "repeats": 2, "targets": ("age",), "nprocs": 1, "permutations": 20}


def test_a_dry_run_refuses_kernels_that_do_not_fit(tmp_path):
    settings = replace(make_outputs(tmp_path, people=8), **CHOICES)
    cohort, _ = open_cohorts(settings)
    with memory_limit(0.006):
        prediction.prepare(cohort, settings)
    with memory_limit(0.004), pytest.raises(Unfit, match="A kernel of 8 people needs"):
        prediction.prepare(cohort, settings)
