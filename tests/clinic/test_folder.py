"""A model file is arrays and JSON, and nothing else is read as one; what its folder gives away."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.clinic.fit import REFERENCE, load_model, model_path, save_model
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_table, write_table
from tests.clinic.planted import group, make_cohort, models

EMPTY = pd.DataFrame(columns=list(REFERENCE.columns))


def test_round_trip(tmp_path):
    path = model_path(tmp_path, "fluid IQ/2", "fc_power")
    assert path.name.startswith("target-fluid-IQ-2-fc-power-")
    assert path != model_path(tmp_path, "fluid-IQ/2", "fc_power")
    assert model_path(tmp_path, "age", "fc").name == "target-age-fc_model"
    save_model(path, {"weights": np.arange(3.0)}, {"Target": "x", "Alpha": np.float64(0.35)}, EMPTY)
    arrays, facts, *_ = load_model(path)
    np.testing.assert_array_equal(arrays["weights"], np.arange(3.0))
    assert (facts["Target"], facts["Alpha"]) == ("x", 0.35)


class Harmful:
    def __reduce__(self):
        return (print, ("code was run",))


def card(path, text):
    path.mkdir()
    (path / "model.json").write_text(text)


DIGESTS = '{"Format": "fcpower_bids model 7", "Digests": {}}'


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
    with pytest.raises(DatasetError, match=r"a_model.*(OUTPUT_DIR/group/models|model 7 is needed)"):
        load_model(path)
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize(("old", "new"), [('"Alpha": 0.35', '"Alpha": "much"'), ('["a"]', "7"), ('": "', '": "0')])
def test_a_changed_card_is_named(tmp_path, old, new):
    path = save_model(
        tmp_path / "a_model", {"weights": np.arange(3.0)}, {"Alpha": 0.35, "Parcels": ["a"], "n": np.nan}, EMPTY
    )
    card = path / "model.json"
    text = " ".join(card.read_text().split()).replace("[ ", "[").replace(" ]", "]")
    card.write_text("\ufeff" + text)
    assert load_model(path)[1]["Parcels"] == ["a"], "laid out anew, with a mark of its encoding"
    assert old in text
    card.write_text(text.replace(old, new))
    with pytest.raises(DatasetError, match=r"model\.json is not the file|model 7 is needed"):
        load_model(path)


def test_a_mistake_of_ours_is_not_blamed_on_the_model(tmp_path, monkeypatch):
    save_model(tmp_path / "x_model", {"weights": np.arange(3.0)}, {"Target": "x"}, EMPTY)

    def planted(card):
        raise KeyError("planted")

    monkeypatch.setattr("fcpower_bids.clinic.fit._digest_of", planted)
    with pytest.raises(KeyError, match="planted"):
        load_model(tmp_path / "x_model")


PEOPLE = 60


def columns_of(folder: Path) -> dict[str, list]:
    """Every list, array and column of a model folder."""
    found: dict[str, list] = {}

    def walk(name: str, value: object) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                walk(f"{name}/{key}", each)
            found[f"{name} in order"] = list(value.values())
        elif isinstance(value, list):
            found[name] = value
            for key in value[0] if value and isinstance(value[0], dict) else ():
                found[f"{name}/{key}"] = [each.get(key) for each in value]

    walk("card", json.loads((folder / "model.json").read_text()))
    for path in folder.glob("*.tsv"):
        table = read_table(path)
        found |= {f"{path.name}/{name}": table[name].tolist() for name in table}
    with np.load(folder / "weights.npz") as arrays:
        found |= {name: arrays[name].ravel().tolist() for name in arrays.files if arrays[name].ndim}
    return found


def lists_as_long_as(people: int, folder: Path) -> list[str]:
    return [name for name, values in columns_of(folder).items() if len(values) >= people]


def test_the_only_list_that_is_as_long_as_the_cohort_is_that_of_digests(tmp_path):
    root = make_cohort(tmp_path, 0.95, 1, people=PEOPLE)
    assert group(root, "--accept-no-skill", permutations=0) == 0
    (folder,) = models(root)
    assert lists_as_long_as(PEOPLE, folder) == ["card/TrainingScans"]
    people = read_table(root / "bids" / "participants.tsv")
    numbers = [one for values in columns_of(folder).values() for one in values if isinstance(one, float)]
    assert not set(np.round(people["age"].to_numpy(), 6)) & set(np.round(numbers, 6))
    write_table(folder / "residuals.tsv", people[["age"]])  # a fault that was in models of an earlier format
    assert "residuals.tsv/age" in lists_as_long_as(PEOPLE, folder)
