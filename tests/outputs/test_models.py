"""A model file is arrays and JSON, and nothing else is read as one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.models import load_model, model_path, save_model


def test_round_trip(tmp_path):
    path = model_path(tmp_path, "fluid IQ/2", "fc_power")
    assert path.name == "target-fluid-IQ-2-fc-power_model.npz"
    save_model(path, {"weights": np.arange(3.0)}, {"Target": "x", "Alpha": np.float64(0.35)})
    arrays, facts = load_model(path)
    np.testing.assert_array_equal(arrays["weights"], np.arange(3.0))
    assert (facts["Target"], facts["Alpha"]) == ("x", 0.35)


class Harmful:
    def __reduce__(self):
        return (print, ("code was run",))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: None,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a zip"),
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
        lambda path: np.savez(path, weights=np.array([Harmful()], dtype=object), facts=np.array("{}")),
        lambda path: np.savez(path, weights=np.arange(3)),
        lambda path: np.savez(path, facts=np.array('{"Format": "other"}')),
    ],
)
def test_what_is_not_a_model_is_refused_and_never_run(tmp_path, write, capsys):
    path = tmp_path / "model.npz"
    write(path)
    with pytest.raises(DatasetError, match=r"model\.npz.*(OUTPUT_DIR/group/models|model 1 is needed)"):
        load_model(path)
    assert "code was run" not in capsys.readouterr().out
