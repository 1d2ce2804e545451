"""No number of any analysis depends on how many processes share the work, nor on what lies on disk meanwhile."""

from __future__ import annotations

import pandas as pd
import pytest

from fcpower_bids.analyses import ANALYSES, OF_COHORTS
from fcpower_bids.ondisk import ScratchRows
from fcpower_bids.parallel import executing
from fcpower_bids.resources import memory_limit
from tests.analyses.cohorts import choose, demo_cohort

CHOICES = {"targets": ("planted_score",), "repeats": 1, "folds": 3, "inner_folds": 2, "shrink_to_identity": 0.1}


@pytest.fixture(scope="module")
def cohort():
    return demo_cohort(n_people=16, n_volumes=80)


def analyse(name, given, settings):
    with executing(settings):
        return ANALYSES[name](given, settings)


@pytest.mark.parametrize("name", ANALYSES)
def test_two_processes_give_the_tables_of_one(cohort, name, monkeypatch):
    monkeypatch.setattr("fcpower_bids.parallel.WORTH", 0.0)
    monkeypatch.setattr("fcpower_bids.analyses.features.BLOCK", 4)
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 2)
    given = {"one": cohort, "other": cohort} if name in OF_COHORTS else cohort
    alone, shared = (analyse(name, given, choose(**CHOICES, nprocs=number)) for number in (1, 2))
    assert alone.keys() == shared.keys()
    for table in alone:
        pd.testing.assert_frame_equal(alone[table].frame, shared[table].frame, check_exact=True)


@pytest.fixture
def made(monkeypatch):
    """Shapes of the arrays that were made on disk."""
    shapes, start = [], ScratchRows.__init__
    monkeypatch.setattr(ScratchRows, "__init__", lambda self, *given: shapes.append(given[1]) or start(self, *given))
    return shapes


LITTLE = 0.2
"""MB, of which one array may take a quarter: none of the features of 16 people fits."""


@pytest.mark.parametrize("name", ["prediction", "fingerprinting", "qc_fc", "edges"])
def test_features_on_disk_give_the_tables_of_those_in_memory(cohort, name, made, tmp_path):
    asked, found = {"representations": ("fc_power",)} if name == "edges" else {}, []
    for folder in (None, tmp_path):
        assert made == []
        with memory_limit(LITTLE, folder):
            found.append(ANALYSES[name](cohort, choose(**CHOICES, **asked, permutations=20)))
    assert found[0].keys() == found[1].keys()
    for table in found[0]:
        pd.testing.assert_frame_equal(found[0][table].frame, found[1][table].frame, check_exact=True)
    assert made, "this analysis wrote none to disk"
    assert list(tmp_path.iterdir()) == [], "what was written is removed"
