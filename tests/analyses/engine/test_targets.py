"""Targets of a study: built once per training set, as far as there is room."""

from __future__ import annotations

import numpy as np

from fcpower_bids.analyses import targets


def test_targets_are_built_once_per_training_set_as_far_as_they_are_kept(monkeypatch):
    asked = []

    def build(train):
        asked.append(train.tolist())
        return np.full((5, 2), float(train[0]))

    sets = [np.array([first, 4]) for first in (0, 1, 2)]
    monkeypatch.setattr(targets, "REMEMBERED", 20)
    once = targets.build_once(build)
    for train in sets * 2:
        np.testing.assert_array_equal(once(train), np.full((5, 2), float(train[0])))
    assert asked == [[0, 4], [1, 4], [2, 4], [2, 4]]
    np.testing.assert_array_equal(targets.build_once(np.eye(2)), np.eye(2))
