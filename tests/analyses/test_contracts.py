"""What every analysis keeps to, the new ones too: declared tables, determinism, a cohort left alone, refusals."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import ANALYSES, OF_COHORTS, declared_tables
from fcpower_bids.errors import FcPowerError
from fcpower_bids.outputs.finished_analyses import digest_cohort
from fcpower_bids.outputs.tables import plain
from tests.analyses.cohorts import choose, demo_cohort

CHOICES = {"targets": ("planted_score",), "repeats": 1, "folds": 3, "inner_folds": 2, "shrinkage": 0.1}


@pytest.fixture(scope="module")
def cohort():
    return demo_cohort(n_people=14, n_volumes=80)


@pytest.fixture(params=ANALYSES)
def name(request, monkeypatch) -> str:
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 2)
    return request.param


def analyse(name, cohort, **choices):
    given = {"one": cohort, "other": cohort} if name in OF_COHORTS else cohort
    return ANALYSES[name](given, choose(**CHOICES, **choices))


def outcome(name, cohort):
    """The tables, or the sentence of the refusal; any other error is a slip of the analysis."""
    try:
        return analyse(name, cohort), ""
    except FcPowerError as error:
        return {}, str(error)


def test_declared_tables_the_same_twice_and_a_cohort_left_alone(cohort, name):
    before = digest_cohort(cohort)
    tables, sentence = outcome(name, cohort)
    if sentence:
        pytest.skip(f"not with this cohort: {sentence}")
    declared = {spec.name: spec for spec in declared_tables(name)}
    assert tables
    assert tables.keys() <= declared.keys()
    for label, table in tables.items():
        declared[label].check(list(table.frame.columns))
        keys = [key for key in table.spec.keys if key in table.frame]
        assert not keys or not table.frame.duplicated(keys).any(), f"{label}: {keys} tell a row from all others"
        json.dumps(plain(table.facts), allow_nan=False)
    again = analyse(name, cohort)
    for label, table in tables.items():
        pd.testing.assert_frame_equal(table.frame, again[label].frame, check_exact=True)
    assert digest_cohort(cohort) == before


def bare(cohort, rows):
    return dataclasses.replace(
        cohort,
        scans=cohort.scans.iloc[rows].reset_index(drop=True),
        edges=cohort.edges[rows],
        series=tuple(cohort.series[row] for row in rows),
        repetition_times=tuple(cohort.repetition_times[row] for row in rows),
    )


@pytest.mark.parametrize("n_scans", [0, 1])
def test_a_cohort_that_is_too_small_gets_tables_or_a_sentence(cohort, name, n_scans):
    tables, sentence = outcome(name, bare(cohort, np.arange(n_scans)))
    if sentence:
        assert len(sentence.split()) > 4
    else:
        assert n_scans, f"{name} has tables of nobody"
        assert tables
