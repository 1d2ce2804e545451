"""Phase surrogates keep every covariance and change the series."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.slices.pretraining.engine import phase_surrogate, surrogate_generator, surrogate_phases


@pytest.mark.parametrize("length", [79, 80, 3, 4])
def test_connectivity_is_kept_at_odd_and_even_length(length):
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((6, length, 5)) + 2.0)
    y = phase_surrogate(x, surrogate_phases(6, length, surrogate_generator(0, 1)))
    for before, after in zip(x.numpy(), y.numpy(), strict=True):
        np.testing.assert_allclose(np.corrcoef(after.T), np.corrcoef(before.T), rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.cov(after.T), np.cov(before.T), rtol=0, atol=1e-12)
        np.testing.assert_allclose(after.mean(0), before.mean(0), rtol=0, atol=1e-12)
    if length > 4:
        assert (x - y).abs().max() > 0.5


def test_phases_are_real_at_both_ends_and_differ_between_recordings():
    phases = surrogate_phases(200, 8, surrogate_generator(0, 0))
    assert (phases[:, 0] == 0).all()
    assert set(phases[:, -1].tolist()) == {0.0, np.pi}
    assert phases[:, 1].std() > 1
    assert (surrogate_phases(50, 7, surrogate_generator(0, 0))[:, -1] % np.pi != 0).all()


def test_seed_and_step_decide():
    first, again, other = (surrogate_phases(2, 9, surrogate_generator(0, s)) for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
