"""The scaling law gives back what was planted, and says where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.slices.curves.learning import fit_scaling_law, scaling_law

PEOPLE, MINUTES = (each.ravel() for each in np.meshgrid([50, 100, 200, 400, 800], [2.0, 5.0, 10.0, 30.0, 60.0]))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.floats(0.2, 0.95), st.floats(20, 900), st.floats(50, 9000))
def test_planted_parameters_are_recovered(w0, w1, w2):
    law = fit_scaling_law(scaling_law(PEOPLE, MINUTES, w0, w1, w2), PEOPLE, MINUTES)
    np.testing.assert_allclose([law.w0, law.w1, law.w2], [w0, w1, w2], rtol=1e-3)
    assert law.rmse < 1e-6
    assert not law.at_bound
    assert law.n_cells == 25


def test_noise_widens_the_errors_and_they_cover_the_truth():
    rng = np.random.default_rng(0)
    clean = scaling_law(PEOPLE, MINUTES, 0.6, 300, 2000)
    covered = []
    for _ in range(40):
        law = fit_scaling_law(clean + rng.normal(0, 0.01, clean.size), PEOPLE, MINUTES)
        covered.append(abs(law.w0 - 0.6) < 1.96 * law.se_w0)
        assert 0.004 < law.rmse < 0.02
    assert np.mean(covered) > 0.8


def test_closed_forms():
    assert scaling_law(100, 10, 0.5, 0, 0) == 0.5
    assert scaling_law(300, 10, 0.5, 600, 3000) == pytest.approx(0.25)  # 1 + 2 + 1 = 4


def test_a_flat_grid_is_at_the_bound_and_missing_cells_are_left_out():
    flat = np.full(PEOPLE.shape, 0.4)
    flat[3] = np.nan
    law = fit_scaling_law(flat, PEOPLE, MINUTES)
    assert law.at_bound
    assert np.isnan([law.se_w0, law.se_w1, law.se_w2]).all()
    assert law.w0 == pytest.approx(0.4, abs=1e-3)
    assert law.n_cells == 24


@pytest.mark.parametrize("keep", [PEOPLE == 100, MINUTES == 2.0, np.arange(25) < 3])
def test_what_cannot_be_told_apart_is_refused(keep):
    with pytest.raises(ValueError, match="four cells or more"):
        fit_scaling_law(np.full(keep.sum(), 0.3), PEOPLE[keep], MINUTES[keep])
    with pytest.raises(ValueError, match="above zero"):
        fit_scaling_law([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], [1, 2, 1, 2])
