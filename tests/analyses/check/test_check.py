"""Sound cohorts are not accused; the rate over 200 is in the documentation, from ``benchmarks.judgement``."""

from __future__ import annotations

from benchmarks.judgement import false_alarms, type_one_error


def test_twenty_sound_cohorts_are_not_accused():
    found = false_alarms(0, 20, people=16)
    assert found["cohorts"] <= 1, found


def test_mcnemar_rejects_too_often_where_the_searches_of_a_person_go_together():
    rates = type_one_error(40, 200)
    assert rates["McNemar over searches"] > 0.07
    assert rates["sign flips over people"] < 0.08
    assert 0.01 < rates["sign flips of errors"] < 0.09
