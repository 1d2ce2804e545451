"""One cohort with a planted phenotype for all tests of the analyses."""

from __future__ import annotations

import pytest

from fcpower_bids.analyses.catalogue import ANALYSES
from tests.analyses.cohorts import choose, demo_cohort

TARGETS = {"targets": ("planted_score", "null_score"), "family_column": "family_id", "repeats": 2, "folds": 5}


@pytest.fixture(scope="session")
def cohort():
    return demo_cohort()


@pytest.fixture(scope="session")
def predicted(cohort):
    """All tables of one prediction with permutations."""
    return ANALYSES["prediction"](cohort, choose(**TARGETS, permutations=99))
