"""Thirty people as a list of series: six parcels, sixty volumes, one of them the score that can be predicted."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.command import main

P, T, TR = 6, 60, 2.0
LABELS = tuple(f"{number:03d}" for number in range(1, 31))


@dataclass(frozen=True)
class Told:
    """What a command left: its exit code and what it said."""

    code: int
    err: str
    out: str


def run(*words: object) -> Told:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, words)))
    return Told(code, err.getvalue(), out.getvalue())


def series_of(label: str, seed: int = 0, volumes: int = T) -> np.ndarray:
    """Series (T, P) of a person: the coupling of the first two parcels grows with the label."""
    random = np.random.default_rng([seed, int(label)])
    values = random.normal(size=(volumes, P))
    values[:, 1] += values[:, 0] * int(label) / 10
    return values


def write_list(
    folder: Path, labels: Iterable[str] = LABELS, sessions: Iterable[str] = ("",), seed: int = 0, name: str = "list.tsv"
) -> Path:
    """Write series as arrays, and the list of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for label in labels:
        for number, session in enumerate(sessions):
            path = folder / f"{seed}_{label}_{session}.npy"
            np.save(path, series_of(label, seed + 100 * number))
            row = {"participant_id": f"sub-{label}", "path": path.name, "kind": "series", "repetition_time": TR}
            rows.append(row | ({"session_id": session} if session else {}) | {"mean_fd": 0.1 + int(label) / 1000})
    pd.DataFrame(rows).to_csv(folder / name, sep="\t", index=False)
    return folder / name


def write_people(folder: Path, labels: Iterable[str] = LABELS, **columns: object) -> Path:
    """Write ``participants.tsv`` of a dataset; each column as many cells as people."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "participants.tsv"
    pd.DataFrame({"participant_id": [f"sub-{label}" for label in labels], **columns}).to_csv(
        path, sep="\t", index=False
    )
    return path


def table(path: Path) -> pd.DataFrame:
    """Read a table as text, as it stands."""
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)


def files(folder: Path, pattern: str = "**/*") -> dict[str, bytes]:
    """Every file below a folder and its bytes, by its path."""
    found = sorted(path for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def index_rows(out: Path) -> list[dict[str, Any]]:
    """The rows of the index, as its script gets them."""
    text = (out / "index.html").read_text()
    return json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)[1])["rows"]
