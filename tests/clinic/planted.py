"""Cohorts of whom it is known how much of their age is in their connectomes, or which scans were exchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.core.series import z_score
from fcpower_bids.outputs.tables import (
    read_table,
    write_table,
)
from tests.planting.participant_outputs import ATLAS, P, add_output
from tests.running import run_group

MEAN, SD = 45.0, 12.0
QUICK = "--folds 5 --inner-folds 3 --repeats 1 --nprocs 1 --min-time 60 --quiet"


def series_with(factor: float, rng: np.random.Generator) -> np.ndarray:
    """Series of six parcels, two correlations of which tell a factor."""
    series = rng.standard_normal((240, P))
    weight = 1 / (1 + np.exp(-factor))
    series[:, 1] = weight * series[:, 0] + (1 - weight) * series[:, 1]
    series[:, 3] = (1 - weight) * series[:, 2] + weight * series[:, 3]
    return series


def make_cohort(root: Path, share: float, sites: int = 1, people: int = 40, seed: int = 0, new: int = 0) -> Path:
    """Outputs of people whose age correlates by ``share`` with one factor of their series; the last ``new`` are apart.

    Returns the folder, with ``bids`` and ``out``; people who are apart have their scans in ``new`` and no known age.
    """
    rng = np.random.default_rng((seed, sites))
    factor, noise = rng.standard_normal((2, people + new))
    where = np.arange(people + new) % sites
    age = MEAN + SD * (share * factor + (1 - share**2) ** 0.5 * noise)
    labels = [f"sub-{person + 1:02d}" for person in range(people + new)]
    for person, label in enumerate(labels):
        series = series_with(factor[person], rng)
        out = root / ("out" if person < people else "new")
        add_output(out, f"{label}_ses-a", z_score(series), mean_fd=float(0.1 + 0.1 * rng.random()))
    for path in root.rglob("*_qc.tsv"):
        write_table(path, read_table(path).assign(volumes=240, dummy_volumes=0, censored_volumes=0))
    for folder in ("out", "new"):
        table = pd.DataFrame({"index": ATLAS.labels, "name": ATLAS.names, "network": ATLAS.networks})
        copies = root / folder / "sourcedata" / "atlases" / f"tpl-{ATLAS.space}"
        write_table(copies / f"tpl-{ATLAS.space}_{ATLAS.name}_dseg.tsv", table)
    columns = {"participant_id": labels, "age": age, "site": [f"s{one}" for one in where]}
    columns["sex"] = rng.choice(["F", "M"], people + new)
    known = pd.DataFrame(columns)
    write_table(root / "bids" / "participants.tsv", known.iloc[:people])
    write_table(root / "truth.tsv", known)
    return root


def group(root: Path, *options: str, target: str = "age", permutations: int = 60, code: int = 0) -> str:
    """Run the group level with ``--save-models``; return what is said on the terminal."""
    words = f"--analyses prediction --targets {target} --representations fc --permutations {permutations}"
    words = ("-w", root / "w", *words.split(), *QUICK.split(), "--save-models", *options)
    return run_group(root / "bids", root / "out", *words, code=code).err


def models(root: Path) -> list[Path]:
    return sorted((root / "out" / "group" / "models").glob("*_model"))
