"""What every analysis keeps to, the new ones too: its refusals, in a sentence, before and in the analysis."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import OF_COHORTS
from fcpower_bids.analyses.catalogue import ANALYSES, FIRST_LOOKS
from fcpower_bids.errors import FcPowerError
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
    "nothing is wrong": lambda cohort: (cohort, {}),
    "no scan": lambda cohort: (bare(cohort, np.arange(0)), {}),
    "one scan": lambda cohort: (bare(cohort, np.arange(1)), {}),
    "one session": lambda cohort: (bare(cohort, np.arange(0, len(cohort.scans), 2)), {}),
    "three people": lambda cohort: (bare(cohort, np.arange(6)), {}),
    "no phenotypes": lambda cohort: (dataclasses.replace(cohort, phenotypes=NO_PHENOTYPES), {"targets": ()}),
    "no motion": lambda cohort: (dataclasses.replace(cohort, scans=cohort.scans.assign(mean_fd=np.nan)), {}),
    "an unknown target": lambda cohort: (cohort, {"targets": ("weight",)}),
    "a target without variation": lambda cohort: (
        dataclasses.replace(cohort, phenotypes=cohort.phenotypes.assign(planted_score=1.0)),
        {},
    ),
    "embeddings that are not there": lambda cohort: (cohort, {"representations": ("embedding",)}),
    "more folds than people": lambda cohort: (cohort, {"folds": 40}),
    "a longer scan than the longest": lambda cohort: (cohort, {"scan_minutes": (500.0,)}),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_look_before_the_first_analysis_says_what_the_analysis_would_say(cohort, name, fault):
    """So that nobody waits for hours for a refusal; and what is refused is refused in a sentence, by both."""
    spoilt, choices = PLANTED[fault](cohort)
    early = checked(name, spoilt, **choices)
    if not early and fault == "nothing is wrong":
        return  # its tables have a test of their own
    tables, sentence = outcome(name, spoilt, **choices)
    assert early == sentence
    assert bool(tables) != bool(sentence)
    if sentence:
        assert len(sentence.split()) > 4
        assert sentence.endswith((".", "?")), sentence
    assert fault != "no scan" or sentence, f"{name} has tables of nobody"
