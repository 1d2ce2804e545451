"""A connectome in a few numbers: closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.connectome.spd import connectome_summary

BLOCKS = np.array([[1, 0.5, 0.1, 0.1], [0.5, 1, 0.1, 0.1], [0.1, 0.1, 1, 0.3], [0.1, 0.1, 0.3, 1]])


def test_networks_have_the_means_of_their_edges():
    found = connectome_summary(BLOCKS, ["a", "a", "b", "b"])
    assert found["within a"] == pytest.approx(0.5)
    assert found["within b"] == pytest.approx(0.3)
    assert found["mean_fc"] == pytest.approx((0.5 + 0.3 + 4 * 0.1) / 6)
    values = np.linalg.eigvalsh(BLOCKS)
    assert found["participation_ratio"] == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_one_network_and_single_parcels_are_not_named():
    assert list(connectome_summary(BLOCKS, ["a"] * 4)) == ["mean_fc", "participation_ratio"]
    assert list(connectome_summary(BLOCKS, ["a", "a", "a", "b"])) == ["mean_fc", "within a", "participation_ratio"]
