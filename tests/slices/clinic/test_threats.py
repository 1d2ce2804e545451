"""The attacks of docs/threats.md on a model: the folder, and a sorted list of the people who took part."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.outputs.tables import read_table, write_table
from tests.slices.clinic.planted import group, make_cohort, models


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


def attack(folder: Path, participants: list[str], truth: np.ndarray, seed: int = 0) -> float:
    """The best correlation with what is true of people, of any list that has one entry for each of them.

    Lists are taken in the order of the participants, and in the order that a draw with the seed of the run gives.
    """
    best = 0.0
    draws = [np.arange(len(participants)), np.random.default_rng(seed).permutation(len(participants))]
    for values in columns_of(folder).values():
        if len(values) != len(participants):
            continue
        numbers = [int(one, 16) if isinstance(one, str) and len(one) == 16 else one for one in values]
        try:
            guess = np.array(numbers, dtype=float)
        except (TypeError, ValueError):
            continue
        for order in draws:
            r = np.corrcoef(guess[np.argsort(order)], truth)[0, 1] if np.ptp(guess) else 0.0
            best = r if abs(r) > abs(best) else best
    return best


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Ten cohorts of forty people with a strong target, each with its model."""
    roots = []
    for seed in range(10):
        root = make_cohort(tmp_path_factory.mktemp("attacked"), 0.95, 1, seed=seed)
        assert group(root, "--accept-no-skill", permutations=0) == 0
        roots.append(root)
    return roots


def test_a_model_and_the_list_of_participants_give_no_age_sex_or_score_away(saved):
    ages, sexes = [], []
    for root in saved:
        people = read_table(root / "bids" / "participants.tsv").sort_values("participant_id")
        (folder,) = models(root)
        names = people["participant_id"].tolist()
        ages.append(attack(folder, names, people["age"].to_numpy()))
        sexes.append(attack(folder, names, (people["sex"] == "F").to_numpy(dtype=float)))
    # the one list with an entry per scan is that of digests: r of 40 people is .16 by chance, the larger of two .2
    assert abs(np.mean(ages)) < 0.1
    assert abs(np.mean(sexes)) < 0.1
    assert max(map(abs, ages)) < 0.5


def test_the_attack_finds_a_row_per_person(saved):
    """The fault that was in models of an earlier format, planted again."""
    (folder,) = models(saved[0])
    people = read_table(saved[0] / "bids" / "participants.tsv").sort_values("participant_id")
    age = people["age"].to_numpy()
    order = np.random.default_rng(0).permutation(len(age))
    planted = write_table(folder / "residuals.tsv", people[["age"]].iloc[order])
    try:
        assert attack(folder, people["participant_id"].tolist(), age) > 0.99
    finally:
        planted.unlink()


def test_the_only_list_that_is_as_long_as_the_cohort_is_that_of_digests(saved):
    for root in saved[:3]:
        (folder,) = models(root)
        long = [name for name, values in columns_of(folder).items() if len(values) >= 40]
        assert long == ["card/TrainingScans"]
        age = read_table(root / "bids" / "participants.tsv")["age"].to_numpy()
        numbers = [one for values in columns_of(folder).values() for one in values if isinstance(one, float)]
        assert not set(np.round(age, 6)) & set(np.round(numbers, 6))


def test_who_has_a_scan_can_see_that_it_took_part(saved, tmp_path):
    """What a model does give away, as docs/threats.md says."""
    root = saved[0]
    (folder,) = models(root)
    table = tmp_path / "table.tsv"
    words = ["predict", str(folder), str(root / "out"), "--accept-no-skill", "--no-pages", "--table", str(table)]
    assert main(words) == 0
    assert (read_table(table)["in_training"] == "true").all()
