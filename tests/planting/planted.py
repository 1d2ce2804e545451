"""A synthetic cohort as participant outputs, sound until a fault is planted in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.core.series import z_score
from fcpower_bids.demo.dataset import draw_connectome, draw_person, draw_population
from fcpower_bids.demo.signals import draw_clean_series
from fcpower_bids.outputs.tables import read_table, write_table
from fcpower_bids.records import Atlas
from tests.planting.participant_outputs import ATLAS, add_output
from tests.running import Finished, run_group

TR = 2.0
VOLUMES = 120


def without_global_signal(series: np.ndarray) -> np.ndarray:
    """Series as another preprocessing leaves them."""
    whole = series.mean(axis=1, keepdims=True)
    return series - whole @ (np.linalg.pinv(whole) @ series)


def draw_table(people: int, seed: int = 0) -> pd.DataFrame:
    """Phenotypes that depend on nothing: whole years, a score, a diagnosis, four sites."""
    rng = np.random.default_rng((seed, 1))
    return pd.DataFrame(
        {
            "participant_id": [f"sub-{number + 1:03d}" for number in range(people)],
            "age": rng.integers(20, 75, people).astype(float),
            "score": rng.standard_normal(people).round(3),
            "patient": rng.permutation(np.arange(people) % 2).astype(float),
            "site": rng.permutation(np.arange(people) % 4).astype(str),
        }
    ).assign(site=lambda table: "s" + table["site"])


@dataclass
class Planted:
    """Folders of a cohort; the methods change what is there. Tables are those of the results of that name."""

    root: Path
    name: str = ""

    @property
    def bids(self) -> Path:
        return self.root / "bids"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def phenotypes(self) -> pd.DataFrame:
        return read_table(self.bids / "participants.tsv")

    @phenotypes.setter
    def phenotypes(self, table: pd.DataFrame) -> None:
        write_table(self.bids / "participants.tsv", table)

    def put(self, person: int, session: str, series: np.ndarray, **facts) -> None:
        n = series.shape[1]
        entities, parcels = (("atlas", "Toy"), ("scale", str(n))), tuple(f"LH_{number:02d}" for number in range(n))
        atlas = Atlas(entities, ATLAS.image, ATLAS.space, tuple(range(1, n + 1)), parcels, ("n/a",) * n, ("L",) * n)
        add_output(self.out, f"sub-{person + 1:03d}_ses-{session}", z_score(series), atlas, **facts)

    def group(self, *options: object, code: int = 0) -> Finished:
        return run_group(self.bids, self.out, *options, code=code)

    def table(self, name: str) -> pd.DataFrame:
        return read_table(self.out / "group" / self.name / f"{name}.tsv")


def make_cohort(root: Path, people: int = 24, sessions: str = "ab", seed: int = 0) -> tuple[Planted, dict]:
    """Write a sound cohort of people who differ and resemble themselves; return its folders and series (T, P)."""
    cohort, rng, drawn = Planted(root), np.random.default_rng(seed), {}
    population = draw_population(rng)
    for number in range(people):
        person, factor = draw_person(rng), rng.standard_normal()
        for session in sessions:
            connectome = draw_connectome(population, person, factor, rng)
            drawn[number, session] = draw_clean_series(connectome, VOLUMES, TR, rng)
    motion = np.random.default_rng((seed, 2)).uniform(0.05, 0.4, len(drawn))
    for (person, session), series, fd in zip(drawn, drawn.values(), motion, strict=True):
        cohort.put(person, session, series, mean_fd=float(fd))
    cohort.phenotypes = draw_table(people, seed)
    return cohort, drawn


def make_sites(root: Path, people: int) -> Planted:
    """Make a cohort of one session at two sites; a scanner colours its connectomes, the score is the site and noise."""
    cohort, drawn = make_cohort(root, people, "a")
    rng, second = np.random.default_rng(0), np.arange(people) % 2 == 1
    artefact = rng.standard_normal((VOLUMES, 1)) @ rng.standard_normal((1, 60))
    for (person, session), series in drawn.items():
        cohort.put(person, session, series + second[person] * series.std() * artefact)
    score = 3.0 * second + rng.standard_normal(people)
    cohort.phenotypes = cohort.phenotypes.assign(site=np.where(second, "two", "one"), score=score)
    return cohort
