"""Sound cohorts are not accused, and what misleads is named."""

from __future__ import annotations

import dataclasses

from fcpower_bids.check.check import check_cohort
from fcpower_bids.check.findings import check_damage
from tests.analyses.cohorts import choose
from tests.check.cohorts import in_memory
from tests.planting.planted import draw_series


def test_twenty_sound_cohorts_are_not_accused():
    accused = 0
    for seed in range(20):
        settings = choose(targets=("age", "score", "patient"), nprocs=1)
        tables, _ = check_cohort(in_memory(draw_series(16, seed=seed), seed), settings)
        accused += bool((tables["check"].frame["level"] != "note").any())
    assert accused <= 1


def test_a_fault_of_many_scans_is_an_alarm_and_of_one_a_look():
    cohort = in_memory(draw_series(8))
    damage = ["table", *(["", "volumes"] * len(cohort.scans))[1 : len(cohort.scans)]]
    damaged = dataclasses.replace(cohort, scans=cohort.scans.assign(damage=damage))
    many, one = check_damage(damaged)
    assert (many.level, many.n, many.value) == ("alarm", 8, 0.5)
    assert many.finding.startswith(
        "8 of 16 scans have volumes that are empty, copies or far from all others: sub-000 b,"
    )
    assert "look at some pages before anything else" in many.remedy
    assert (one.level, one.n) == ("look", 1)
    assert one.finding.endswith("that disagrees with the series: sub-000 a.")
    assert "--exclude-file" in one.remedy
