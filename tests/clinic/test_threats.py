"""The attacks of docs/outputs.md on a model: its folder, and who holds scans of its people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.outputs.tables import read_table, write_table
from tests.clinic.planted import MEAN, QUICK, SD, group, make_cohort, models
from tests.command import main
from tests.doors.cohort import ONE, Truth, by_list, power

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


ATTACKED, PARCELS = 30, 20
NAMES = [f"sub-p{number:02d}" for number in range(ATTACKED)]


@dataclass(frozen=True)
class Attacked:
    """A study with one scan per person, and what an attacker has: another scan of each, and perhaps the same."""

    out: Path
    model: Path
    series: dict[tuple[str, str], np.ndarray]
    age: pd.Series

    def rows(self, session: str) -> np.ndarray:
        """Edges of FC^alpha of each person, centred and of unit norm, from series alone."""
        return np.array([row_of(np.corrcoef(self.series[name[4:], session].T)) for name in NAMES])


def row_of(fc: np.ndarray) -> np.ndarray:
    edges = power(fc)[np.triu_indices(len(fc), 1)]
    edges = edges - edges.mean()
    return edges / np.linalg.norm(edges)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """Thirty people whose ages have nothing to do with their scans, and a model of these ages."""
    folder, rng = tmp_path_factory.mktemp("attacked"), np.random.default_rng(5)
    shared, series = rng.standard_normal((PARCELS, 4)), {}
    for name in NAMES:
        load = shared + 0.6 * rng.standard_normal((PARCELS, 4))
        for session in "ab":
            noise = rng.standard_normal((200, PARCELS))
            series[name[4:], session] = rng.standard_normal((200, 4)) @ load.T + noise
    age = pd.Series(rng.normal(MEAN, SD, ATTACKED).round(2), NAMES)
    (folder / "bids").mkdir()
    pd.DataFrame({"participant_id": NAMES, "age": age.to_numpy()}).to_csv(
        folder / "bids" / "participants.tsv", sep="\t", index=False
    )
    one_each = {scan: each for scan, each in series.items() if scan[1] == "a"}
    study = by_list(folder / "study", Truth(folder / "bids", one_each), ONE)
    words = "--analyses prediction --targets age --representations fc_power --permutations 0 --save-models"
    places = [str(study.bids), str(study.out), "group", *study.options]
    for options in ([], ["--name", "without-one", "--participant-label", *NAMES[1:]]):
        assert main([*places, *words.split(), "--accept-no-skill", *QUICK.split(), *options]) == 0
    (model,) = (study.out / "group" / "models").iterdir()
    return Attacked(study.out, model, series, age)


def predictions(attacked: Attacked) -> pd.DataFrame:
    assert main(["predict", str(attacked.model), str(attacked.out), "--accept-no-skill"]) == 0
    name = attacked.model.name.removesuffix("_model")
    table = read_table(attacked.out / "group" / "predicted" / f"{name}.tsv")
    return table.set_index("participant_id").loc[NAMES]


def test_who_has_a_scan_can_see_that_it_took_part_and_reads_its_value(attacked):
    """A model gives its training scans back, though it predicts nobody else: skill and this are two things."""
    found = predictions(attacked)
    assert (found["in_training"] == "true").all()
    others = read_table(attacked.out / "group" / "predictions.tsv").groupby("participant_id")["predicted"].mean()
    assert stats.pearsonr(found["prediction"], attacked.age).statistic > 0.8
    assert stats.pearsonr(others[NAMES], attacked.age).statistic < 0.1


def test_who_has_all_scans_solves_for_every_value(attacked):
    """Weights are a sum of the training scans: its coefficients and the penalty give the values to the last digit."""
    with np.load(attacked.model / "weights.npz") as arrays:
        weights, penalty = arrays["weights"][:, 0], float(arrays["penalty"][0])
        centred, level = attacked.rows("a") - arrays["mean_features"], float(arrays["intercept"][0])
    coefficients = np.linalg.lstsq(centred.T, weights, rcond=None)[0]
    found = centred @ weights + penalty * coefficients + level
    np.testing.assert_allclose(found, attacked.age, atol=1e-3)
