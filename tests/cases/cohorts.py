"""Small cohorts as a list of series of another program, and the commands on them in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.running import Finished, run

P, T, TR = 6, 60, 2.0
LABELS = tuple(f"{number:03d}" for number in range(1, 31))
PEOPLE = tuple(f"sub-{label}" for label in LABELS)
QUICK = ("--folds", 3, "--inner-folds", 2, "--repeats", 1, "--permutations", 0, "--min-time", 0, "--nprocs", 1)


def series_of(label: str, seed: int = 0) -> np.ndarray:
    """Series (T, P) of a person: the coupling of the first two parcels grows with the label."""
    random = np.random.default_rng([seed, int(label)])
    values = random.normal(size=(T, P))
    values[:, 1] += values[:, 0] * int(label) / 10
    return values


def write_series(
    folder: Path,
    people: Sequence[str] = PEOPLE,
    sessions: Sequence[str] = ("",),
    parcels: int = P,
    volumes: int = T,
    signal: Callable[[int], float] | None = None,
    seed: int = 0,
    draw: Callable[[int, int], np.ndarray] | None = None,
    **columns: Sequence[object],
) -> Path:
    """Write a series per person and session, and the list of them.

    `signal`: the correlation between the first two parcels of each person, by number. `draw`: the series of a person
    and a session, by their numbers. `columns`: of the list, a value per person.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bids").mkdir(exist_ok=True)
    random, rows = np.random.default_rng(seed), []
    for number, person in enumerate(people):
        for place, session in enumerate(sessions):
            series = random.standard_normal((volumes, parcels)) if draw is None else draw(number, place)
            if signal is not None:
                r = signal(number)
                series[:, 1] = r * series[:, 0] + np.sqrt(1 - r**2) * series[:, 1]
            name = "_".join(filter(None, (person, session))) + ".npy"
            np.save(folder / name, series)
            of_person = {key: values[number] for key, values in columns.items()}
            row = {"participant_id": person, "path": name, "kind": "series", "repetition_time": TR, **of_person}
            rows.append(row | ({"session_id": session} if session else {}))
    pd.DataFrame(rows).to_csv(folder / "list.tsv", sep="\t", index=False)
    return folder


def write_list(folder: Path, labels: Sequence[str] = LABELS, sessions: Sequence[str] = ("",), seed: int = 0) -> Path:
    """Write a list of the series of `series_of`, with a mean FD that grows with the label; return the list."""

    def draw(row: int, place: int) -> np.ndarray:
        return series_of(labels[row], seed + 100 * place)

    fd = [0.1 + int(label) / 1000 for label in labels]
    return write_series(folder, [f"sub-{label}" for label in labels], sessions, draw=draw, mean_fd=fd) / "list.tsv"


def store_matrices(folder: Path) -> pd.DataFrame:
    """Write FC in the place of every listed series; return the rows of the list, to be written with their minutes."""
    rows = pd.read_csv(folder / "list.tsv", sep="\t", dtype={"participant_id": str}).drop(columns="repetition_time")
    for name in rows["path"]:
        np.save(folder / name, np.corrcoef(np.load(folder / name).T))
    return rows.assign(kind="matrix")


def write_table(path: Path, separator: str = "\t", **columns: object) -> Path:
    """Write a table of people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_csv(path, sep=separator, index=False, na_rep="n/a")
    return path


def write_people(folder: Path, labels: Iterable[str] = LABELS, **columns: object) -> Path:
    """Write ``participants.tsv`` of a dataset; each column as many cells as people."""
    return write_table(folder / "participants.tsv", participant_id=[f"sub-{label}" for label in labels], **columns)


def group(folder: Path, *options: object, quick: Sequence[object] = QUICK, code: int = 0) -> Finished:
    """Run the group level on the list, which has to end with this exit code."""
    source = () if "-d" in options else ("-d", f"list={folder / 'list.tsv'}")
    return run(folder / "bids", folder / "out", "group", *quick, *source, *options, code=code)


def read(folder: Path, name: str) -> pd.DataFrame:
    """Read a table of the group level."""
    return pd.read_csv(folder / "out" / "group" / f"{name}.tsv", sep="\t")


def observed(folder: Path, target: str) -> dict[str, float]:
    """Return the values that the prediction saw, by person."""
    table = read(folder, "predictions").dropna(subset="observed")
    return table[table["target"] == target].groupby("participant_id")["observed"].first().to_dict()


def table(path: Path) -> pd.DataFrame:
    """Read a table as text, as it stands."""
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)


def index_rows(out: Path) -> list[dict[str, Any]]:
    """The rows of the index, as its script gets them."""
    text = (out / "index.html").read_text()
    return json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)[1])["rows"]
