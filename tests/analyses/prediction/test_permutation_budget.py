"""How many permutations a prediction has when nobody says: what the budget allows, and none that cannot decide."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.analyses.baselines import BUDGET, BUDGET_REBUILT, choose_permutations
from fcpower_bids.analyses.study import open_study
from tests.analyses.cohorts import choose, single_session

PEOPLE = 20
SHAPE = {"folds": 4, "inner_folds": 2, "repeats": 1}


def number_of(n_targets, **choices):
    """Permutations for so many targets."""
    rng = np.random.default_rng(0)
    columns = {f"t{i:03d}": rng.standard_normal(PEOPLE) for i in range(n_targets)} | {"age": np.arange(PEOPLE) ** 2.0}
    cohort = single_session(rng, PEOPLE, **columns)
    targets = tuple(name for name in columns if name != "age")
    settings = choose(**({"preset": "recommended", "targets": targets} | SHAPE | choices))
    return choose_permutations(open_study(cohort, settings))


@pytest.mark.parametrize(
    ("n_targets", "number"), [(1, 1000), (2, 1000), (3, 500), (10, 200), (40, 50), (100, 20), (101, 0)]
)
def test_the_budget_is_shared_by_the_targets(n_targets, number):
    found = number_of(n_targets)
    assert found[0] == number
    assert number * n_targets <= BUDGET
    assert number == 0 or f"the smallest p is {1 / (number + 1):.2g}" in found[1]


@pytest.mark.parametrize("choices", [{"covariates": ("age",)}, {"targets": ("g=t000,t001",)}])
def test_targets_that_are_fitted_again_have_a_smaller_budget(choices):
    found = number_of(2, **choices)
    n_targets = 1 if "targets" in choices else 2
    assert found[0] == (500 if n_targets == 1 else 200)
    assert found[0] * n_targets <= BUDGET_REBUILT
    assert "fitted again" in found[1]


@pytest.mark.parametrize("preset", ["paper", "cbig"])
def test_the_published_protocols_have_none(preset):
    found = number_of(1, preset=preset, covariates=("age",))
    assert found[0] == 0
    assert preset in found[1]


def test_what_is_asked_for_is_done():
    assert number_of(3, permutations=7)[0] == 7
    assert number_of(3, permutations=0)[0] == 0
