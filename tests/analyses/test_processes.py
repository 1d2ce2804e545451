"""What every analysis keeps to, the new ones too: declared tables, a cohort left alone, and the same numbers always.

None depends on how many processes share the work, nor on what lies on disk meanwhile.
"""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from fcpower_bids.analyses import OF_COHORTS
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.outputs.group import digest_cohort
from fcpower_bids.outputs.tables import plain
from fcpower_bids.parallel import executing
from fcpower_bids.schema import TABLES
from tests.analyses.cohorts import choose, demo_cohort

CHOICES = {"targets": ("planted_score",), "repeats": 1, "folds": 3, "inner_folds": 2, "permutations": 19}


@pytest.fixture(scope="module")
def cohort():
    return demo_cohort(n_people=14, n_volumes=80, n_parcels=24)


def analyse(name, given, settings):
    with executing(settings):
        return ANALYSES[name](given, settings)


@pytest.mark.parametrize("name", ANALYSES)
def test_two_processes_give_the_tables_of_one(cohort, name, monkeypatch):
    monkeypatch.setattr("fcpower_bids.parallel.WORTH", 0.0)
    monkeypatch.setattr("fcpower_bids.analyses.features.BLOCK", 4)
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 2)
    given = {"one": cohort, "other": cohort} if name in OF_COHORTS else cohort
    before = digest_cohort(cohort)
    alone, shared = (analyse(name, given, choose(**CHOICES, nprocs=number)) for number in (1, 2))
    assert digest_cohort(cohort) == before
    assert alone.keys() == shared.keys() != set()
    declared = {spec.name for spec in TABLES.values() if spec.owner == name}
    for label, table in alone.items():
        pd.testing.assert_frame_equal(table.frame, shared[label].frame, check_exact=True)
        assert table.spec.name in declared
        assert re.fullmatch(re.sub("[A-Z]+", "[A-Za-z0-9-]+", table.spec.name), label)
        (TABLES[label] if table.spec.name == label else table.spec).check(list(table.frame.columns))
        keys = [key for key in table.spec.keys if key in table.frame]
        assert not keys or not table.frame.duplicated(keys).any(), f"{label}: {keys} tell a row from all others"
        json.dumps(plain(table.facts), allow_nan=False)
