"""The attacks of docs/outputs.md on a model: the folder, and a sorted list of the people who took part."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fcpower_bids.outputs.tables import read_table, write_table
from tests.clinic.planted import group, make_cohort, models

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
