"""Sound cohorts are not accused; the rate over 200 is in the documentation, from ``benchmarks.judgement``."""

from __future__ import annotations

import numpy as np

from benchmarks.judgement import false_alarms, type_one_error
from fcpower_bids.core.inference.recognition import recognise_groups
from fcpower_bids.slices.check import columns as recognition
from fcpower_bids.slices.check.pairs import build_similarity
from tests.analyses.cohorts import choose
from tests.derivatives.planted import draw_series
from tests.slices.check.cohorts import in_memory


def test_twenty_sound_cohorts_are_not_accused():
    found = false_alarms(0, 20, people=16)
    assert found["cohorts"] <= 1, found


def test_mcnemar_rejects_too_often_where_the_searches_of_a_person_go_together():
    rates = type_one_error(40, 200)
    assert rates["McNemar over searches"] > 0.07
    assert rates["sign flips over people"] < 0.08
    assert 0.01 < rates["sign flips of errors"] < 0.09


def test_of_a_large_cohort_some_people_say_whether_sites_are_told(monkeypatch):
    drawn = draw_series(24, "a")
    artefact = np.random.default_rng(0).standard_normal((120, 1)) @ np.random.default_rng(1).standard_normal((1, 60))
    cohort = in_memory({key: series + 0.5 * (key[0] % 2) * series.std() * artefact for key, series in drawn.items()})
    cohort.phenotypes["site"] = ["one", "two"] * 12
    kernel = build_similarity(cohort, choose())
    (everyone,) = recognition.check_recognition(cohort, kernel, choose(site_column="site"))
    assert everyone.n == 24
    assert "drawn" not in everyone.finding
    monkeypatch.setattr(recognition, "MOST_PEOPLE", 20)
    (some,) = recognition.check_recognition(cohort, kernel, choose(site_column="site"))
    rows = np.sort(np.random.default_rng(choose().random_seed).choice(24, 20, replace=False))
    expected = recognise_groups(kernel[np.ix_(rows, rows)], np.array(["one", "two"])[rows % 2])
    assert (some.n, some.value) == (20, expected.share)
    assert "where chance is 50 % (of 20 people drawn at random)." in some.finding
