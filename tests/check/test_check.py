"""Sound cohorts are not accused, and what misleads is named."""

from __future__ import annotations

from fcpower_bids.check import check_cohort
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
