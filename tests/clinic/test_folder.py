"""A model file is arrays and JSON, and nothing else is read as one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fcpower_bids.clinic.fit import load_model, model_path, save_model
from fcpower_bids.errors import DatasetError


def test_round_trip(tmp_path):
    path = model_path(tmp_path, "fluid IQ/2", "fc_power")
    assert path.name.startswith("target-fluid-IQ-2-fc-power-")
    assert path != model_path(tmp_path, "fluid-IQ/2", "fc_power")
    assert model_path(tmp_path, "age", "fc").name == "target-age-fc_model"
    save_model(path, {"weights": np.arange(3.0)}, {"Target": "x", "Alpha": np.float64(0.35)})
    arrays, facts, _ = load_model(path)
    np.testing.assert_array_equal(arrays["weights"], np.arange(3.0))
    assert (facts["Target"], facts["Alpha"]) == ("x", 0.35)


class Harmful:
    def __reduce__(self):
        return (print, ("code was run",))


def card(path, text):
    path.mkdir()
    (path / "model.json").write_text(text)


DIGESTS = '{"Format": "fcpower_bids model 6", "Digests": {}}'


def with_pickle(path):
    card(path, DIGESTS)
    np.savez(path / "weights.npz", weights=np.array([Harmful()], dtype=object))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
        lambda path: card(path, "not JSON"),
        lambda path: card(path, "[]"),
        lambda path: card(path, '{"Format": "other"}'),
        lambda path: card(path, DIGESTS),
        with_pickle,
    ],
)
def test_what_is_not_a_model_is_refused_and_never_run(tmp_path, write, capsys):
    path = tmp_path / "a_model"
    write(path)
    with pytest.raises(DatasetError, match=r"a_model.*(OUTPUT_DIR/group/models|model 6 is needed)"):
        load_model(path)
    assert "code was run" not in capsys.readouterr().out


def test_a_model_of_the_former_format_is_said_to_be_one(tmp_path):
    np.savez(tmp_path / "model.npz", weights=np.arange(3.0))
    with pytest.raises(DatasetError, match="earlier version"):
        load_model(tmp_path / "model.npz")


@pytest.mark.parametrize(("old", "new"), [('"Alpha": 0.35', '"Alpha": "much"'), ('["a"]', "7"), ('": "', '": "0')])
def test_a_changed_card_is_named(tmp_path, old, new):
    path = save_model(tmp_path / "a_model", {"weights": np.arange(3.0)}, {"Alpha": 0.35, "Parcels": ["a"], "n": np.nan})
    card = path / "model.json"
    text = " ".join(card.read_text().split()).replace("[ ", "[").replace(" ]", "]")
    card.write_text("\ufeff" + text)
    assert load_model(path)[1]["Parcels"] == ["a"], "laid out anew, with a mark of its encoding"
    assert old in text
    card.write_text(text.replace(old, new))
    with pytest.raises(DatasetError, match=r"model\.json is not the file|model 6 is needed"):
        load_model(path)


def test_a_mistake_of_ours_is_not_blamed_on_the_model(tmp_path, monkeypatch):
    save_model(tmp_path / "x_model", {"weights": np.arange(3.0)}, {"Target": "x"})

    def planted(card):
        raise KeyError("planted")

    monkeypatch.setattr("fcpower_bids.clinic.fit._digest_of", planted)
    with pytest.raises(KeyError, match="planted"):
        load_model(tmp_path / "x_model")


ARRAYS = {
    "kind": np.asarray("correlation"),
    "weights": np.array([[1.0], [-2.0], [3.0]]),
    "mean_features": np.zeros(3),
    "intercept": np.array([5.0]),
}


def test_weights_that_are_no_numbers_are_refused_though_their_digests_are_right(tmp_path):
    assert load_model(save_model(tmp_path / "whole_model", ARRAYS, {"Target": "x"}))[1]["Target"] == "x"
    path = save_model(tmp_path / "a_model", ARRAYS | {"weights": np.array([[1.0], [np.nan], [3.0]])}, {"Target": "x"})
    with pytest.raises(DatasetError, match="missing or infinite number in 'weights'"):
        load_model(path)
