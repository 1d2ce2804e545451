"""A model is arrays and JSON, predicts new scans, knows what it has not seen, and gives nobody away."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.clinic.fit import REFERENCE, fit_final_model, load_model, model_path, save_model
from fcpower_bids.clinic.predict import NewScan, apply_model
from fcpower_bids.core.edges import rebuild_matrix
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_table, write_table
from tests.analyses.cohorts import choose, demo_cohort
from tests.clinic.planted import group, make_cohort, models

CHOICES = {"family_column": "family_id", "targets": ("planted_score", "g=reasoning,memory,speed"), "folds": 5}


@pytest.fixture(scope="module")
def split():
    """A cohort, and one with 30 of its people left for testing."""
    cohort = demo_cohort(90, seed=1)
    train = cohort.scans["participant_id"].str[-2:].astype(int).to_numpy() < 60
    scans = cohort.scans[train].reset_index(drop=True)
    return cohort, dataclasses.replace(cohort, scans=scans, edges=cohort.edges[train], series=())


def connectome(cohort, row):
    return rebuild_matrix(cohort.edges[row], 1.0, weighted=False)


@pytest.mark.parametrize("kernel", ["correlation", "linear"])
def test_new_people_are_predicted(split, kernel):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES, kernel=kernel), "planted_score", "fc_power")
    facts = json.loads(json.dumps(model.facts))
    found = [apply_model(model, connectome(cohort, row), cohort.parcels) for row in range(120, 180)]
    truth = cohort.phenotypes["planted_score"].loc[cohort.scans["participant_id"].iloc[120:180]]
    assert np.corrcoef([each.prediction for each in found], truth)[0, 1] > 0.7
    assert np.mean([not each.warnings for each in found]) > 0.8
    assert np.mean([each.low <= value <= each.high for each, value in zip(found, truth, strict=True)]) > 0.8
    assert facts["NumberOfPeople"] == 60
    (low, high), ages = facts["AgeRange"], cohort.phenotypes["age"].iloc[:60].astype(float)
    assert low < ages.min() < ages.max() < high, "the ends are of nobody"
    assert high - low < 1.4 * np.ptp(ages)
    assert facts["SecondsRange"] == [400.0, 400.0]
    assert facts["Alpha"] == 0.35


def test_the_order_of_the_parcels_and_further_parcels_do_not_matter(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "g", "fc")
    matrix, names = connectome(cohort, 130), list(cohort.parcels)
    expected = apply_model(model, matrix, names)
    expected = (expected.prediction, expected.low, expected.similarity)
    order = np.random.default_rng(0).permutation(60)
    larger = np.full((61, 61), np.nan)
    larger[:60, :60] = matrix[np.ix_(order, order)]
    found = apply_model(model, larger, [*(names[i] for i in order), "more"])
    assert (found.prediction, found.low, found.similarity) == pytest.approx(expected, abs=1e-12)
    assert model.facts["CompositeOf"] == ["reasoning", "memory", "speed"]


def test_what_a_scan_is_said_to_be_is_compared_with_the_training(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    told = NewScan(seconds=100, mean_fd=3.0, repetition_time=0.8, age=95, in_training=True)
    warnings = " ".join(apply_model(model, connectome(cohort, 0), cohort.parcels, told).warnings)
    for said in ("fitted on this very scan", "95 years old", "1.67 minutes, the training scans 6.67 to 6.67"):
        assert said in warnings
    assert "repetition time of 0.8 s" in warnings
    assert "motion of 3 mm" in warnings


def test_what_is_unlike_the_training_people_is_said(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    strange = np.corrcoef(np.random.default_rng(1).standard_normal((60, 300)))
    found = apply_model(model, strange, cohort.parcels)
    assert "unlike those of the training people" in found.warnings[0]
    model.facts["TargetRange"] = [1e6, 2e6]
    assert "outside the values of 'planted_score'" in apply_model(model, strange, cohort.parcels).warnings[-1]


def test_what_does_not_fit_is_refused(split):
    cohort, train = split
    model = fit_final_model(train, choose(**CHOICES), "planted_score", "fc")
    matrix = connectome(cohort, 0)
    with pytest.raises(ValueError, match=r"needs 1 parcels that are not in this atlas: parcel59"):
        apply_model(model, matrix[:59, :59], cohort.parcels[:59])
    matrix[3] = matrix[:, 3] = np.nan
    with pytest.raises(ValueError, match="does not cover them: parcel03"):
        apply_model(model, matrix, cohort.parcels)


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


DIGESTS = '{"Format": "fcpower_bids model 8", "Digests": {}}'


def with_pickle(path):
    card(path, DIGESTS)
    np.savez(path / "weights.npz", weights=np.array([Harmful()], dtype=object))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
        lambda path: card(path, '{"Format": "other"}'),
        with_pickle,
    ],
)
def test_what_is_not_a_model_is_refused_and_never_run(tmp_path, write, capsys):
    path = tmp_path / "a_model"
    write(path)
    with pytest.raises(DatasetError, match=r"a_model.*(OUTPUT_DIR/group/models|model 8 is needed)"):
        load_model(path)
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize(("old", "new"), [('"Alpha": 0.35', '"Alpha": "much"'), ('["a"]', "7")])
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
    with pytest.raises(DatasetError, match=r"model\.json is not the file|model 8 is needed"):
        load_model(path)


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
    assert group(root, "--any-skill", permutations=0) == 0
    (folder,) = models(root)
    assert lists_as_long_as(PEOPLE, folder) == ["card/TrainingScans"]
    people = read_table(root / "bids" / "participants.tsv")
    numbers = [one for values in columns_of(folder).values() for one in values if isinstance(one, float)]
    assert not set(np.round(people["age"].to_numpy(), 6)) & set(np.round(numbers, 6))
    write_table(folder / "residuals.tsv", people[["age"]])  # a fault that was in models of an earlier format
    assert "residuals.tsv/age" in lists_as_long_as(PEOPLE, folder)
