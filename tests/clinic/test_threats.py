"""The attacks of docs/outputs.md on a model: the folder, and a sorted list of the people who took part."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.outputs.tables import read_table, write_table
from tests.clinic.planted import group, make_cohort, models

PEOPLE = 120


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


def attack(folder: Path, participants: list[str], truth: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Correlation with what is true of people of each list that has one entry for each of them.

    Lists are taken in the order of the participants, and in the order that a draw with the seed of the run gives.
    """
    found = {}
    draws = [np.arange(len(participants)), np.random.default_rng(seed).permutation(len(participants))]
    for name, values in columns_of(folder).items():
        if len(values) != len(participants):
            continue
        numbers = [int(one, 16) if isinstance(one, str) and len(one) == 16 else one for one in values]
        try:
            guess = np.array(numbers, dtype=float)
        except (TypeError, ValueError):
            continue
        for number, order in enumerate(draws if np.ptp(guess) else ()):
            found[f"{name}, order {number}"] = float(np.corrcoef(guess[np.argsort(order)], truth)[0, 1])
    return found


def held_out(root: Path) -> pd.DataFrame:
    """What the group level wrote of each person, and a model must not give away: observed and predicted values."""
    table = read_table(root / "out" / "group" / "predictions.tsv").groupby("participant_id")[["observed", "predicted"]]
    return table.mean().assign(residual=lambda each: each["predicted"] - each["observed"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Three cohorts of 120 people with a strong target, each with its model."""
    roots = []
    for seed in range(3):
        root = make_cohort(tmp_path_factory.mktemp("attacked"), 0.95, 1, people=PEOPLE, seed=seed)
        assert group(root, "--accept-no-skill", permutations=0) == 0
        roots.append(root)
    return roots


def test_a_model_and_the_list_of_participants_give_no_age_sex_or_score_away(saved):
    found = []
    for root in saved:
        people = read_table(root / "bids" / "participants.tsv").set_index("participant_id").sort_index()
        people = people.join(held_out(root)).assign(sex=people["sex"] == "F")
        (folder,) = models(root)
        for name in ("age", "sex", "predicted", "residual"):
            found.append({"truth": name} | attack(folder, people.index.tolist(), people[name].to_numpy(dtype=float)))
    each = pd.DataFrame(found).groupby("truth").mean()
    # the one list with an entry per scan is that of digests: over three cohorts r has a standard deviation of .053
    assert each.columns.tolist() == ["card/TrainingScans, order 0", "card/TrainingScans, order 1"]
    assert each.abs().to_numpy().max() < 0.13, each


def test_the_attack_finds_a_row_per_person(saved):
    """The fault that was in models of an earlier format, planted again."""
    (folder,) = models(saved[0])
    people = read_table(saved[0] / "bids" / "participants.tsv").sort_values("participant_id")
    age = people["age"].to_numpy()
    order = np.random.default_rng(0).permutation(len(age))
    planted = write_table(folder / "residuals.tsv", people[["age"]].iloc[order])
    try:
        assert max(attack(folder, people["participant_id"].tolist(), age).values()) > 0.99
    finally:
        planted.unlink()


def test_the_only_list_that_is_as_long_as_the_cohort_is_that_of_digests(saved):
    for root in saved:
        (folder,) = models(root)
        long = [name for name, values in columns_of(folder).items() if len(values) >= PEOPLE]
        assert long == ["card/TrainingScans"]
        age = read_table(root / "bids" / "participants.tsv")["age"].to_numpy()
        numbers = [one for values in columns_of(folder).values() for one in values if isinstance(one, float)]
        assert not set(np.round(age, 6)) & set(np.round(numbers, 6))
