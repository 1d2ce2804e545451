"""No number of any analysis depends on how many processes share the work."""

from __future__ import annotations

import pandas as pd
import pytest

from fcpower_bids.analyses import ANALYSES, OF_COHORTS
from fcpower_bids.executors import executing
from tests.analyses.cohorts import choose, demo_cohort

CHOICES = {"targets": ("planted_score",), "repeats": 1, "folds": 3, "inner_folds": 2, "shrinkage": 0.1}


@pytest.fixture(scope="module")
def cohort():
    return demo_cohort(n_people=16, n_volumes=80)


def analyse(name, given, settings):
    with executing(settings):
        return ANALYSES[name](given, settings)


@pytest.mark.parametrize("name", ANALYSES)
def test_two_processes_give_the_tables_of_one(cohort, name, monkeypatch):
    monkeypatch.setattr("fcpower_bids.executors.processes.WORTH", 0.0)
    monkeypatch.setattr("fcpower_bids.analyses.engine.connectomes.BLOCK", 4)
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 2)
    sites = {"site_column": "site"} if name == "harmonisation" else {}
    given = {"one": cohort, "other": cohort} if name in OF_COHORTS else cohort
    alone, shared = (analyse(name, given, choose(**CHOICES, **sites, nprocs=number)) for number in (1, 2))
    assert alone.keys() == shared.keys()
    for table in alone:
        pd.testing.assert_frame_equal(alone[table].frame, shared[table].frame, check_exact=True)
