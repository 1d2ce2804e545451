"""What every analysis keeps to: refusals said early, declared tables, a cohort left alone, the same numbers always."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import OF_COHORTS
from fcpower_bids.analyses.catalogue import ANALYSES, FIRST_LOOKS
from fcpower_bids.errors import FcPowerError
from fcpower_bids.outputs.group import digest_cohort
from fcpower_bids.outputs.tables import plain
from fcpower_bids.parallel import executing
from fcpower_bids.schema import TABLES
from tests.analyses.cohorts import choose, demo_cohort

CHOICES = {"targets": ("planted_score",), "repeats": 1, "folds": 3, "inner_folds": 2, "permutations": 9}


@pytest.fixture(scope="module")
def cohort():
    return demo_cohort(n_people=12, n_volumes=80, n_parcels=20)


@pytest.fixture(params=ANALYSES)
def name(request, monkeypatch) -> str:
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 2)
    return request.param


def cohorts_for(name, cohort):
    return {"one": cohort, "other": cohort} if name in OF_COHORTS else cohort


def analyse(name, cohort, **choices):
    return ANALYSES[name](cohorts_for(name, cohort), choose(**CHOICES | choices))


def outcome(name, cohort, **choices):
    """The tables, or the sentence of the refusal; any other error is a slip of the analysis."""
    try:
        return analyse(name, cohort, **choices), ""
    except FcPowerError as error:
        return {}, str(error)


def bare(cohort, rows):
    return dataclasses.replace(
        cohort,
        scans=cohort.scans.iloc[rows].reset_index(drop=True),
        edges=cohort.edges[rows],
        series=tuple(cohort.series[row] for row in rows),
        repetition_times=tuple(cohort.repetition_times[row] for row in rows),
    )


def checked(name, cohort, **choices):
    """What the look before the first analysis says, in the same form."""
    try:
        FIRST_LOOKS[name](cohorts_for(name, cohort), choose(**CHOICES | choices))
    except FcPowerError as error:
        return str(error)
    return ""


NO_PHENOTYPES = pd.DataFrame(index=pd.Index([], name="participant_id"))
PLANTED = {
    "no scan": lambda cohort: (bare(cohort, np.arange(0)), {}),
    "one session": lambda cohort: (bare(cohort, np.arange(0, len(cohort.scans), 2)), {}),
    "three people": lambda cohort: (bare(cohort, np.arange(6)), {}),
    "no phenotypes": lambda cohort: (dataclasses.replace(cohort, phenotypes=NO_PHENOTYPES), {"targets": ()}),
    "no motion": lambda cohort: (dataclasses.replace(cohort, scans=cohort.scans.assign(mean_fd=np.nan)), {}),
    "an unknown target": lambda cohort: (cohort, {"targets": ("weight",)}),
    "embeddings that are not there": lambda cohort: (cohort, {"representations": ("embedding",)}),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_look_before_the_first_analysis_says_what_the_analysis_would_say(cohort, name, fault):
    """So that nobody waits for hours for a refusal; and what is refused is refused in a sentence, by both."""
    spoilt, choices = PLANTED[fault](cohort)
    early = checked(name, spoilt, **choices)
    tables, sentence = outcome(name, spoilt, **choices)
    assert early == sentence
    assert bool(tables) != bool(sentence)
    if sentence:
        assert len(sentence.split()) > 4
        assert sentence.endswith((".", "?")), sentence
    assert fault != "no scan" or sentence, f"{name} has tables of nobody"


def analyse_with(name, given, settings):
    with executing(settings.run):
        return ANALYSES[name](given, settings)


@pytest.mark.parametrize("name", ANALYSES)
def test_two_processes_give_the_tables_of_one(cohort, name, monkeypatch):
    monkeypatch.setattr("fcpower_bids.parallel.WORTH", 0.0)
    monkeypatch.setattr("fcpower_bids.analyses.features.BLOCK", 4)
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 2)
    given = {"one": cohort, "other": cohort} if name in OF_COHORTS else cohort
    before = digest_cohort(cohort)
    alone, shared = (
        analyse_with(name, given, choose(**CHOICES | {"permutations": 19}, nprocs=number)) for number in (1, 2)
    )
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
