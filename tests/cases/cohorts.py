"""Small cohorts as a list of series of another program, and the group level on them through the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tests.command import main

PEOPLE = tuple(f"sub-{number:03d}" for number in range(1, 31))
QUICK = ("--folds", 3, "--inner-folds", 2, "--repeats", 1, "--permutations", 0, "--min-time", 0, "--nprocs", 1)


def write_series(
    folder: Path,
    people: Sequence[str] = PEOPLE,
    sessions: Sequence[str] = ("",),
    parcels: int = 6,
    volumes: int = 60,
    signal: Callable[[int], float] | None = None,
    seed: int = 0,
    **columns: Sequence[object],
) -> Path:
    """Write a series per person and session, and the list of them.

    `signal`: the correlation between the first two parcels of each person, by number. `columns`: of the list, a value
    per person.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bids").mkdir(exist_ok=True)
    random, rows = np.random.default_rng(seed), []
    for number, person in enumerate(people):
        for session in sessions:
            series = random.standard_normal((volumes, parcels))
            if signal is not None:
                r = signal(number)
                series[:, 1] = r * series[:, 0] + np.sqrt(1 - r**2) * series[:, 1]
            name = "_".join(filter(None, (person, session))) + ".npy"
            np.save(folder / name, series)
            of_person = {key: values[number] for key, values in columns.items()}
            row = {"participant_id": person, "path": name, "kind": "series", "repetition_time": 2.0, **of_person}
            rows.append(row | ({"session_id": session} if session else {}))
    pd.DataFrame(rows).to_csv(folder / "list.tsv", sep="\t", index=False)
    return folder


def write_table(path: Path, separator: str = "\t", **columns: object) -> Path:
    """Write a table of people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_csv(path, sep=separator, index=False, na_rep="n/a")
    return path


def group(folder: Path, *options: object, quick: Sequence[object] = QUICK) -> int:
    """Run the group level on the list, and return the exit code."""
    source = () if "-d" in options else ("-d", f"list={folder / 'list.tsv'}")
    return main([str(folder / "bids"), str(folder / "out"), "group", *quick, *map(str, (*source, *options))])


def read(folder: Path, name: str) -> pd.DataFrame:
    """Read a table of the group level."""
    return pd.read_csv(folder / "out" / "group" / f"{name}.tsv", sep="\t")


def observed(folder: Path, target: str) -> dict[str, float]:
    """Return the values that the prediction saw, by person."""
    table = read(folder, "predictions").dropna(subset="observed")
    return table[table["target"] == target].groupby("participant_id")["observed"].first().to_dict()
