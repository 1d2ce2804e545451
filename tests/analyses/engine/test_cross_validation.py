"""Features that are fitted anew in every fold come back in the order of the folds, whoever trains twice."""

from __future__ import annotations

import numpy as np

from fcpower_bids.analyses.evaluate import cross_validate, cross_validate_anew, make_solver
from fcpower_bids.analyses.study import open_study
from tests.analyses.cohorts import choose, single_session


def test_repeats_of_held_out_sites_stay_in_the_order_of_the_study():
    rng = np.random.default_rng(2)
    cohort = single_session(rng, 24, y=rng.standard_normal(24), site=np.repeat(["a", "b", "c"], 8))
    held_out = {"sites": "hold-out", "site_column": "site", "repeats": 2, "inner_folds": 2}
    study = open_study(cohort, choose(targets=("y",), representations=("fc",), **held_out))
    solver = make_solver(next(study.representations()), study.preset)
    fitted = []

    def fit(training_sets):
        for train in training_sets:
            fitted.append(tuple(sorted(train.tolist())))
            yield solver

    anew, once = cross_validate_anew(fit, study), cross_validate(solver, study, "fc")
    assert len(fitted) == len(set(fitted)) == 3  # once per training set, not per repeat
    assert anew.folds == study.folds
    np.testing.assert_array_equal(anew.chosen, once.chosen)
    for mine, theirs in zip(anew.predicted, once.predicted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
