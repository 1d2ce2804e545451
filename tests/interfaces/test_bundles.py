"""What passes between nodes is exact, and nothing in it can run code."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fcpower_bids.interfaces.nodes import load_bundle, load_cleaning, save_cleaning
from tests.test_measures import make_cleaning


def test_a_cleaning_passes_unchanged(tmp_path):
    cleaning = make_cleaning(excluded="Too short.", notes=("A note.",), design_names=("x", "y"))
    found, choices = load_cleaning(save_cleaning(tmp_path / "x.npz", cleaning, {"high_pass": 0.01}))
    assert choices == {"high_pass": 0.01}
    for field in dataclasses.fields(cleaning):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(cleaning, field.name))
        assert type(getattr(found, field.name)) is type(getattr(cleaning, field.name))


def test_a_bundle_with_objects_is_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", json=np.array("{}"), x=np.array([{"code": 1}], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        load_bundle(tmp_path / "bad.npz")
